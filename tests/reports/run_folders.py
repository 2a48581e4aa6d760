"""Small run folders, written as the trainer writes them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

MakeRun = Callable[..., Path]


def run_record(world_size: int = 1, **changes: Any) -> dict[str, Any]:
    """A complete `run.json`."""
    return {
        "bigtrk": "0.1.0",
        "git": "abc1234",
        "software": {"bigtrk": "0.1.0", "python": "3.11.7", "torch": "2.13.0", "deepspeed": None},
        "machine": {"host": "node01", "cpu": "Some CPU", "cores": 2, "accelerator": "cpu"},
        "started": "2026-11-20T19:00:00Z",
        "launcher": "torchrun",
        "world_size": world_size,
        "engine": "ddp",
        "engine_detail": None,
        "parameters": 123456,
        "config": {
            "model": {"hidden": 64, "layers": 8, "recompute": True},
            "target": {"pt_min": 1.0, "min_hits": 3},
            "training": {"epochs": 3},
        },
        "data": {
            "train_events": 6,
            "validation_events": 2,
            "nodes": 12000,
            "edges": 51000,
        },
        **changes,
    }


def step_line(step: int, **changes: Any) -> dict[str, Any]:
    return {
        "kind": "step",
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
        **changes,
    }


def epoch_line(epoch: int, seconds: float = 2.0, **changes: Any) -> dict[str, Any]:
    return {
        "kind": "epoch",
        "epoch": epoch,
        "steps": 3,
        "events": 6,
        "edges": 51000,
        "train_loss": 0.6,
        "seconds": seconds,
        "edges_per_second": 51000 / seconds,
        "batch_seconds": seconds / 3,
        "shares": {"exchange": 0.05, "compute": 0.85, "reduce": 0.06, "data": 0.04},
        "imbalance": 1.02,
        "peak_memory_bytes": 512 * 2**20,
        "validation": {
            "loss": 0.00406,
            "efficiency": 0.996,
            "target_purity": 0.87831,
            "total_purity": 0.99249,
            "purity": None,
            "auc": 0.98577,
        },
        **changes,
    }


def binned_record(*counts: tuple[int, int], edges: tuple[float, ...] = ()) -> dict[str, Any]:
    """Part and whole of each bin; limits 1, 2, 4 ... without `edges`. One of two is unknown."""
    return {
        "edges": edges or [2.0**k for k in range(len(counts) + 1)],
        "part": [part for part, _ in counts],
        "whole": [whole for _, whole in counts],
        "outside": [0, 0],
        "unknown": [1, 2],
    }


def binned_evaluation_record() -> dict[str, Any]:
    """With bins in strict mode, perfect scores and a loss budget."""
    record = evaluation_record()
    (acorn,) = record["tracks"]["matching"]
    bins = {
        "efficiency_by_pt": binned_record((60, 80), (0, 0), (15, 20)),
        "efficiency_by_eta": binned_record((75, 100), edges=(-1.0, 1.0)),
        "duplicates_by_pt": binned_record((3, 60), (0, 0), (0, 15)),
        "fakes_by_eta": binned_record((5, 50), edges=(-1.0, 1.0)),
    }
    perfect = {"efficiency_by_pt": binned_record((80, 80), (0, 0), (18, 20))}
    strict = {**acorn, "mode": "strict"}
    record["tracks"]["matching"] = [acorn, {**strict, "bins": bins}]
    record["tracks"]["perfect"] = {
        "matching": [{**strict, "n_reconstructed": 98, "n_particles": 100, "bins": perfect}]
    }
    losses = {"found": 75, "no_true_edges": 1, "too_few_true_edges": 1}
    record["tracks"]["losses"] = {**losses, "true_edges_cut": 20, "merged": 3}
    record["tracks"]["loss_bins"] = {"merged_by_pt": binned_record((3, 80), (0, 0), (0, 20))}
    record["edge_bins"] = {"purity_by_eta": binned_record((9, 10), edges=(-1.0, 1.0))}
    return record


def evaluation_record() -> dict[str, Any]:
    return {
        "data": "graphs",
        "events": 2,
        "edges": 34000,
        "edge_metrics": {"loss": 0.1, "efficiency": 0.93, "auc": 0.97},
        "tracks": {
            "score_cut": 0.5,
            "min_hits": 3,
            "pt_min": 1.0,
            "matching_fraction": 0.5,
            "trackml_score": 0.7125,
            "matching": [
                {
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
            ],
        },
    }


def run_writer(parent: Path) -> MakeRun:
    """A function that writes the run folder `parent / name`: by default three epochs of steps."""

    def make(
        name: str = "0001",
        record: dict[str, Any] | None = None,
        lines: list[dict[str, Any]] | None = None,
        evaluation: dict[str, Any] | None = None,
    ) -> Path:
        folder = parent / name
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps(record or run_record()))
        if lines is None:
            lines = [step_line(step) for step in range(9)]
            lines += [epoch_line(0, 4.0), epoch_line(1, 2.0), epoch_line(2, 1.0)]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
        if evaluation:
            (folder / "evaluation.json").write_text(json.dumps(evaluation))
        return folder

    return make
