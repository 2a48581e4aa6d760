"""Small run folders, of records as the trainer and the evaluation build them."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bigtrk.records.evaluation import (
    Binned,
    EvaluationRecord,
    Judged,
    MatchingRecord,
    TrackRecord,
    write_evaluation,
)
from bigtrk.records.metrics import (
    EpochRecord,
    MeanEdgeMetrics,
    MetricsRecord,
    Shares,
    StepRecord,
    ValidationRecord,
)
from bigtrk.records.run import DataRecord, MachineRecord, RunRecord
from bigtrk.records.run_folder import append_metrics, write_run_record

MakeRun = Callable[..., Path]

MACHINE = MachineRecord(host="node01", cpu="Some CPU", cores=2, accelerator="cpu")
DATA = DataRecord(train_events=6, validation_events=2, nodes=12000, edges=51000)
METRICS = MeanEdgeMetrics(
    loss=0.00406, efficiency=0.996, target_purity=0.87831, total_purity=0.99249, auc=0.98577
)


def run_record(world_size: int = 1, **changes: Any) -> RunRecord:
    """A complete `run.json`."""
    content = {
        "bigtrk": "0.1.0",
        "git": "abc1234",
        "software": {"bigtrk": "0.1.0", "python": "3.11.7", "torch": "2.13.0", "deepspeed": None},
        "machine": MACHINE,
        "started": "2026-11-20T19:00:00Z",
        "launcher": "torchrun",
        "world_size": world_size,
        "engine": "ddp",
        "engine_detail": "DDP",
        "parameters": 123456,
        "config": {
            "model": {"hidden": 64, "layers": 8, "recompute": True},
            "target": {"pt_min": 1.0, "hits_min": 3},
            "training": {"epochs": 3},
        },
        "data": DATA,
    }
    return RunRecord(**{**content, **changes})


def step_record(step: int, **changes: Any) -> StepRecord:
    content = {
        "epoch": step // 3,
        "step": step,
        "loss": 0.7 / (step + 1),
        "lr": 0.001,
        "events": 2,
        "edges": 17000,
        "micro_steps": 1 + step % 3,
        "imbalance": 1 + 0.1 * (step % 3),
        "routes": {f"event{2 * (step % 3)}": 1, f"event{2 * (step % 3) + 1}": 1 + (step % 3 > 0)},
        "seconds": 0.71,
    }
    return StepRecord(**{**content, **changes})


def epoch_record(epoch: int, seconds: float = 2.0, **changes: Any) -> EpochRecord:
    content = {
        "epoch": epoch,
        "steps": 3,
        "events": 6,
        "edges": 51000,
        "train_loss": 0.6,
        "seconds": seconds,
        "edges_per_second": 51000 / seconds,
        "batch_seconds": seconds / 3,
        "shares": Shares(exchange=0.05, compute=0.85, reduce=0.06, data=0.04),
        "imbalance": 1.02,
        "lr": 0.001,
        "peak_memory_bytes": 512 * 2**20,
        "validation": METRICS,
    }
    return EpochRecord(**{**content, **changes})


def validation_record(step: int, seconds: float, **metrics: Any) -> ValidationRecord:
    """A validation on the way."""
    scores = MeanEdgeMetrics(**metrics)
    return ValidationRecord(epoch=step // 3, step=step, seconds=seconds, validation=scores)


def binned(*counts: tuple[int, int], edges: tuple[float, ...] = ()) -> Binned:
    """Part and whole of each bin; limits 1, 2, 4 ... without `edges`. One of two is unknown."""
    return Binned(
        edges=edges or tuple(2.0**k for k in range(len(counts) + 1)),
        part=tuple(part for part, _ in counts),
        whole=tuple(whole for _, whole in counts),
        unknown=(1, 2),
    )


def matching_record(**changes: Any) -> MatchingRecord:
    content = {
        "style": "ATLAS",
        "mode": "acorn",
        "efficiency": 0.9,
        "fake_rate": 0.1,
        "duplicate_rate": 0.01,
        "n_particles": 120,
        "n_reconstructed": 110,
        "n_tracks": 130,
        "n_matched": 121,
    }
    return MatchingRecord(**{**content, **changes})


def track_record(**changes: Any) -> TrackRecord:
    content = {
        "score_cut": 0.5,
        "min_hits": 3,
        "pt_min": 1.0,
        "matching_fraction": 0.5,
        "trackml_score": 0.7125,
        "matching": (matching_record(),),
    }
    return TrackRecord(**{**content, **changes})


def evaluation_record(**changes: Any) -> EvaluationRecord:
    content = {
        "data": "/data/graphs",
        "made": datetime(2026, 11, 22, 6, 41, 5, tzinfo=UTC),
        "events": 2,
        "edges": 34000,
        "edge_metrics": MeanEdgeMetrics(loss=0.1, efficiency=0.93, auc=0.97),
        "tracks": track_record(),
    }
    return EvaluationRecord(**{**content, **changes})


def binned_evaluation_record() -> EvaluationRecord:
    """Makes a record with bins in strict mode, perfect scores and a loss budget."""
    bins = {
        "efficiency_by_pt": binned((60, 80), (0, 0), (15, 20)),
        "efficiency_by_eta": binned((75, 100), edges=(-1.0, 1.0)),
        "duplicates_by_pt": binned((3, 60), (0, 0), (0, 15)),
        "fakes_by_eta": binned((5, 50), edges=(-1.0, 1.0)),
    }
    perfect = matching_record(
        mode="strict",
        n_reconstructed=98,
        n_particles=100,
        bins={"efficiency_by_pt": binned((80, 80), (0, 0), (18, 20))},
    )
    losses = {"found": 75, "no_true_edges": 1, "too_few_true_edges": 1}
    tracks = track_record(
        matching=(matching_record(), matching_record(mode="strict", bins=bins)),
        perfect=Judged(matching=(perfect,)),
        losses={**losses, "true_edges_cut": 20, "merged": 3},
        loss_bins={"merged_by_pt": binned((3, 80), (0, 0), (0, 20))},
    )
    purity = {"purity_by_eta": binned((9, 10), edges=(-1.0, 1.0))}
    return evaluation_record(tracks=tracks, edge_bins=purity)


def run_writer(parent: Path) -> MakeRun:
    """A function that writes the run folder `parent / name`: by default three epochs of steps."""

    def make(
        name: str = "0001",
        record: RunRecord | None = None,
        lines: Sequence[MetricsRecord] | None = None,
        evaluation: EvaluationRecord | None = None,
    ) -> Path:
        folder = parent / name
        folder.mkdir(parents=True)
        write_run_record(folder, record or run_record())
        if lines is None:
            lines = [*map(step_record, range(9))]
            lines += [epoch_record(0, 4.0), epoch_record(1, 2.0), epoch_record(2, 1.0)]
        for line in lines:
            append_metrics(folder, line)
        if evaluation:
            write_evaluation(folder, evaluation)
        return folder

    return make
