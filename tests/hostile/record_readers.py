"""Readers of what runs leave (records, models, checkpoints) for fuzzing and property tests.

As in readers.py, `read(folder, content)` lays `content` where the reader looks for it; a first byte
chooses the file.
"""

import io
import json
from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch
from rich.console import Console
from safetensors.torch import save

from bigtrk.cost.machine_constants import CPU
from bigtrk.cost.sharding import sharding
from bigtrk.disk.files import seal
from bigtrk.disk.json_lines import read_lines
from bigtrk.parallel.engines.ds_config import load_ds_config
from bigtrk.parallel.engines.pieces import Piece, replica_pieces
from bigtrk.parallel.settings import EngineSettings, OptimizerSettings
from bigtrk.planning.check import check
from bigtrk.planning.plan import check_summary
from bigtrk.records.metrics import MeanEdgeMetrics, NormsRecord, PowerRecord
from bigtrk.records.pipeline import PIPELINE
from bigtrk.records.run import DataRecord, Resumption, RunRecord
from bigtrk.records.run_folder import METRICS, RUN
from bigtrk.records.series import SeriesRecord
from bigtrk.reports import (
    read_pipeline,
    read_run,
    show,
    show_pipelines,
    summarise,
    summarise_pipelines,
    write_html,
    write_pipelines_html,
)
from bigtrk.reports.study import StudyReport
from bigtrk.studies.scaling.report import SeriesReport
from bigtrk.training.checkpoint.files import KINDS, RANDOM, write_shard
from bigtrk.training.checkpoint.folder import (
    commit,
    last_good,
    make_temporary,
    temporary_of,
)
from bigtrk.training.checkpoint.manifest import MANIFEST, Checkpoint, shard_name
from bigtrk.training.checkpoint.progress import EpochTotals, Progress
from bigtrk.training.checkpoint.resume import check_place, continue_record, resumed_configuration
from bigtrk.training.checkpoint.state import restore, stored_weights
from bigtrk.training.model_files import build_model, check_shapes, describe, load_model
from bigtrk.training.run_folder import DESCRIPTION, WEIGHTS
from bigtrk.training.schedule import Plateau
from bigtrk.training.settings import Configuration
from bigtrk.training.spikes import LossHistory
from tests.hostile.readers import Reader, refusal
from tests.reports.pipeline_folders import PIPELINE_RECORD, pipeline_evaluation
from tests.reports.run_folders import (
    binned_evaluation_record,
    epoch_record,
    run_record,
    step_record,
    validation_record,
)

CONFIGURATION = Configuration.model_validate({"model": {"hidden": 4, "layers": 2}})
PER_EPOCH = 10
DEEP: Any = []
for _ in range(300):
    DEEP = [DEEP]
# What a record's value may be instead of what it should.
VALUES: list[Any] = [
    *(None, True, -1, 0, 1, 3, 2**31, 2**53, 2**63, 10**30, 10**4000),
    *(0.5, -0.5, 1e-320, 1e-30, 1e30, 1e300, float("nan"), float("inf")),
    *("", "x", "a\nb", "\x1b[31m", "\ud800", "../../x", "x" * 5000, "1" * 5000),
    *([], [1], [1, 2, 3], ["a"], {}, {"a": 1}, {"a\nb": {}}, {"x" * 5000: []}, [[]], DEEP),
]


def places(content: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to every value in JSON content, that of all of it first."""
    yield here
    if isinstance(content, list):
        content = dict(enumerate(content))
    for key, value in content.items() if isinstance(content, dict) else ():
        yield from places(value, (*here, key))


def mutated(content: Any, place: Sequence[Any], value: Any, how: str = "replace") -> Any:
    """The content with `value` at `place`, or without what is there ("drop"), or with `value`
    beside it ("add").
    """
    if not place:
        return value
    changed = deepcopy(content)
    around = changed
    for key in place[:-1]:
        around = around[key]
    if how == "drop":
        del around[place[-1]]
    elif how == "add" and isinstance(around, list):
        around.insert(place[-1], value)
    else:
        around[place[-1] if how == "replace" else f"{place[-1]}?"] = value
    return changed


def as_json(content: Any) -> bytes:
    """Writes JSON as hostile as there is: with NaN, numbers beyond all and halves of characters."""
    return json.dumps(content).replace("Infinity", "1e999").encode()


def run_json() -> dict[str, Any]:
    config = CONFIGURATION.model_dump(mode="json")
    data = DataRecord(train_events=6, validation_events=2, nodes=1200, edges=5100)
    record = run_record(2, config=config, data=data, resumed=(Resumption(step=1),))
    return record.model_dump(mode="json")


def metric_lines() -> list[dict[str, Any]]:
    norms = NormsRecord(
        gradient={"encoder": 0.1, "layer": None}, weight={"encoder": 1.0, "layer": 2.0}
    )
    routes, absent = {"event0": 1, "event1": 2}, PowerRecord(absent={"accelerator": "none"})
    lines = [
        step_record(0, norms=norms, routes=routes, pt_loss=0.1, spike=False),
        step_record(1, norms=norms, routes=routes, spike=True),
        validation_record(1, 1.5, **COUNTED),
        epoch_record(
            *(0, 4.0),
            validation=MeanEdgeMetrics(**COUNTED),
            power=PowerRecord(host_joules=3.0),
            planned_steps=3,
        ),
        epoch_record(1, 2.0, validation=MeanEdgeMetrics(**COUNTED), power=absent),
    ]
    return [line.model_dump(mode="json") for line in lines]


COUNTED: dict[str, Any] = {
    "n_target": 90,
    "n_predicted": 80,
    "n_found": 60,
    "n_true_predicted": 70,
    "efficiency": 0.7,
    "target_purity": 0.8,
    "total_purity": 0.9,
    "purity": 0.85,
    "loss": 0.1,
    "auc": 0.9,
    "events_skipped": 1.0,
}


def evaluation_json() -> dict[str, Any]:
    return binned_evaluation_record().model_dump(mode="json")


def series_json() -> dict[str, Any]:
    record = SeriesRecord(
        kind="strong",
        ranks=(1, 2),
        repeats=2,
        events=6,
        validation=2,
        cores_per_rank=1,
        host_cores=2,
        price_per_device_hour=1.0,
        configuration={"training": {"epochs": 3}},
    )
    return record.model_dump(mode="json")


def pipeline_evaluation_json() -> dict[str, Any]:
    return pipeline_evaluation().model_dump(mode="json")


EVALUATION = "evaluations/graphs-20261122T064105Z.json"
RECORDS = ("run.json", "metrics.jsonl", EVALUATION, "series.json")


def good_record(name: str) -> bytes:
    if name == "metrics.jsonl":
        return b"".join(as_json(line) + b"\n" for line in metric_lines())
    whole = {"run.json": run_json, EVALUATION: evaluation_json}
    return as_json({**whole, "series.json": series_json}[name]())


def report_runs(folder: Path) -> None:
    runs = [read_run(folder / f"ranks000{n}-1") for n in (1, 2)]
    show(runs, Console(file=io.StringIO()))
    write_html(runs, folder / "page.html")
    json.dumps(summarise(runs), allow_nan=False)


def report_series(folder: Path) -> None:
    series = SeriesReport([folder])
    series.show(Console(file=io.StringIO()))
    series.write_html(folder / "series.html")
    series.write_lines(folder / "lines.jsonl")


def report_study(folder: Path) -> None:
    study = StudyReport({name: folder / f"{name}-1" for name in ("ranks0001", "ranks0002")})
    study.show(Console(file=io.StringIO()))
    study.write(folder / "study.html", folder / "study.json")


def check_plan(folder: Path) -> None:
    """Compares a run with its plan as `bigtrk plan --check` does."""
    check_summary([check(folder / "ranks0002-1", CPU, None)])


REPORTS = (report_runs, report_series, report_study, check_plan)


def read_reports(folder: Path, content: bytes) -> object:
    """Every report there is of a run, a study of it, and a series of two. First byte: which of
    RECORDS is `content`.
    """
    spoilt = RECORDS[content[0] % len(RECORDS)] if content else "run.json"
    for name in RECORDS:
        good = content[1:] if name == spoilt else good_record(name)
        for run in ("ranks0001-1", "ranks0002-1"):
            path = folder / "series" / ("" if name == "series.json" else run) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(good)
    other = as_json({**run_json(), "world_size": 4})
    (folder / "series" / "ranks0001-1" / "run.json").write_bytes(other)
    refused = [refusal(partial(report, folder / "series")) for report in REPORTS]
    for told in filter(str, refused):
        raise told
    return None


def report_seeds() -> list[bytes]:
    return [bytes([kind]) + good_record(name) for kind, name in enumerate(RECORDS)]


PIPELINE_FILES = {
    PIPELINE: PIPELINE_RECORD.model_dump(mode="json"),
    "evaluations/events-20261122T064105Z.json": pipeline_evaluation_json(),
}


def read_pipeline_reports(folder: Path, content: bytes) -> object:
    """Every report there is of a pipeline. First byte: which of PIPELINE_FILES is `content`."""
    spoilt = [*PIPELINE_FILES][content[0] % len(PIPELINE_FILES)] if content else PIPELINE
    for name, good in PIPELINE_FILES.items():
        path = folder / "mine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content[1:] if name == spoilt else as_json(good))
    pipelines = [read_pipeline(folder / "mine")]
    show_pipelines(pipelines, Console(file=io.StringIO()))
    write_pipelines_html(pipelines, folder / "page.html")
    json.dumps(summarise_pipelines(pipelines), allow_nan=False)
    return None


def pipeline_seeds() -> list[bytes]:
    return [bytes([kind]) + as_json(good) for kind, good in enumerate(PIPELINE_FILES.values())]


@cache
def model_files() -> dict[str, bytes]:
    description = describe(CONFIGURATION, ["a", "b"])
    weights = build_model(CONFIGURATION).state_dict()
    return {DESCRIPTION: json.dumps(description).encode(), WEIGHTS: save(weights)}


def read_model(folder: Path, content: bytes) -> object:
    """First byte even: `content` is the description; odd: the weights."""
    spoilt = WEIGHTS if content[:1] and content[0] % 2 else DESCRIPTION
    for name, good in model_files().items():
        (folder / name).write_bytes(content[1:] if name == spoilt else good)
    stored = load_model(folder)
    return dict(stored.model.state_dict()), stored.configuration, stored.trained_on


def model_seeds() -> list[bytes]:
    return [bytes([kind]) + content for kind, content in enumerate(model_files().values())]


class OneRank:
    """An engine, as far as checkpoints see it."""

    def __init__(self) -> None:
        self.model = build_model(CONFIGURATION)
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def pieces(self) -> Iterator[Piece]:
        yield from replica_pieces(self.model, self.optimizer, 0, 1)


@cache
def checkpoint_files() -> dict[str, bytes]:
    """Returns, by name, the files of one rank's checkpoint in the middle of its second epoch."""
    totals = EpochTotals(2, 4, 60, 0.5, 1.5, (11,))
    at = Progress(1, 3, 13, Plateau(0.3, 1, 2), LossHistory((0.1, 0.2), 1), totals)
    shapes = {name: tuple(x.shape) for name, x in OneRank().model.named_parameters()}
    sizes = {name: torch.Size(shape).numel() for name, shape in shapes.items()}
    tensors = {f"{kind}/{name}": torch.rand(n) for name, n in sizes.items() for kind in KINDS}
    tensors[f"{RANDOM}cpu"] = torch.get_rng_state()
    with TemporaryDirectory() as name:
        root = Path(name)
        make_temporary(root, "step-00000013")
        shard = write_shard(
            temporary_of(root, "step-00000013"),
            0,
            tensors,
            {x: (0, n, 13) for x, n in sizes.items()},
        )
        commit(root, Checkpoint(at, shapes, (shard,), "data", "DDP", {"a": 1}, {"torch": "2"}))
        return {path.name: path.read_bytes() for path in (root / "step-00000013").iterdir()}


def resealed(raw: bytes) -> bytes:
    """The manifest with a digest that fits, as an attacker would write it."""
    try:
        content = json.loads(raw)
        del content["sha256"]
        return seal(content)
    except Exception:  # no manifest can be made of it
        return raw


def read_checkpoint(folder: Path, content: bytes) -> object:
    """Resume from a checkpoint. First byte: 0 a manifest, 1 one to be sealed anew, 2 a shard."""
    step = folder / "checkpoints" / "step-00000013"
    step.mkdir(parents=True, exist_ok=True)
    kind = content[0] % 3 if content else 0
    spoilt = MANIFEST if kind < 2 else shard_name(0)
    given = resealed(content[1:]) if kind == 1 else content[1:]
    for name, good in checkpoint_files().items():
        (step / name).write_bytes(given if name == spoilt else good)
    found = last_good(folder)
    check_shapes(CONFIGURATION, RUN, found.checkpoint.shapes, str(found.folder))
    check_place(found, PER_EPOCH)
    engine = OneRank()
    with (
        patch("torch.distributed.get_world_size", lambda: 1),
        patch("torch.distributed.get_rank", lambda: 0),
    ):
        restore(engine, found.folder, found.checkpoint)  # type: ignore[arg-type]
    stored_weights(found.folder, found.checkpoint)
    return found.checkpoint.progress, dict(engine.model.state_dict())


def checkpoint_seeds() -> list[bytes]:
    files = checkpoint_files()
    return [
        b"\0" + files[MANIFEST],
        b"\1" + files[MANIFEST],
        b"\2" + files[shard_name(0)],
    ]


def read_resumed(folder: Path, content: bytes) -> object:
    """Take a run's record up. First byte even: `content` is run.json; odd: metrics.jsonl."""
    spoilt = METRICS if content[:1] and content[0] % 2 else RUN
    for name in (RUN, METRICS):
        (folder / name).write_bytes(content[1:] if name == spoilt else good_record(name))
    configuration = resumed_configuration(folder, ["training.epochs=7"])
    at = Progress(1, 0, 1, Plateau(), LossHistory(), EpochTotals())
    record = RunRecord(world_size=1, engine="ddp", engine_detail="DDP", launcher="x")
    continue_record(folder, record, at)
    return configuration, [line.content for line in read_lines(folder / METRICS)]


def resumed_seeds() -> list[bytes]:
    return [b"\0" + good_record(RUN), b"\1" + good_record(METRICS)]


def ds_json() -> dict[str, Any]:
    zero = {
        "stage": 2,
        "overlap_comm": True,
        "reduce_bucket_size": 5e8,
        "offload_optimizer": {"device": "cpu", "pin_memory": True},
    }
    return {
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "communication_data_type": "fp32",
        "steps_per_print": 10,
        "wall_clock_breakdown": False,
        "comms_logger": {"enabled": True, "verbose": False},
        "flops_profiler": {"enabled": False, "profile_step": 1},
        "csv_monitor": {"enabled": False, "output_path": "x"},
    }


def read_ds_config(folder: Path, content: bytes) -> object:
    path = folder / "ds.json"
    path.write_bytes(content)
    settings = EngineSettings(name="deepspeed", ds_config=str(path))
    return sharding(settings, 4), load_ds_config(str(path), OptimizerSettings())


RECORD_READERS = {
    "report": Reader(report_seeds, read_reports),
    "pipeline": Reader(pipeline_seeds, read_pipeline_reports),
    "model": Reader(model_seeds, read_model),
    "checkpoint": Reader(checkpoint_seeds, read_checkpoint),
    "resumed": Reader(resumed_seeds, read_resumed),
    "deepspeed": Reader(lambda: [as_json(ds_json())], read_ds_config),
}

# Files of JSON by the reader they are for: the byte that chooses them, and their content.
JSON_FILES: dict[str, tuple[str, bytes, Any]] = {
    "run.json": ("report", b"\0", run_json()),
    "metrics.jsonl": ("report", b"\1", metric_lines()),
    "evaluation.json": ("report", b"\2", evaluation_json()),
    "series.json": ("report", b"\3", series_json()),
    "pipeline.json": ("pipeline", b"\0", PIPELINE_RECORD.model_dump(mode="json")),
    "pipeline evaluation.json": ("pipeline", b"\1", pipeline_evaluation_json()),
    "config.json": ("model", b"\0", json.loads(model_files()[DESCRIPTION])),
    "manifest.json": ("checkpoint", b"\1", json.loads(checkpoint_files()[MANIFEST])),
    "resumed run.json": ("resumed", b"\0", run_json()),
    "resumed metrics.jsonl": ("resumed", b"\1", metric_lines()),
    "ds.json": ("deepspeed", b"", ds_json()),
}


def as_file(name: str, content: Any) -> bytes:
    """Returns the bytes that the reader of JSON_FILES[name] is given."""
    _, first, _ = JSON_FILES[name]
    if name.endswith("jsonl") and isinstance(content, list):
        return first + b"".join(as_json(line) + b"\n" for line in content)
    return first + as_json(content)
