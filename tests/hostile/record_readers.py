"""Readers of what runs leave (records, models, checkpoints) for fuzzing and property tests.

As in readers.py, `read(folder, content)` lays `content` where the reader looks for it; a first byte
chooses the file.
"""

import json
from pathlib import Path
from typing import Any

from bigtrk.parallel.engines.deepspeed import load_ds_config
from bigtrk.parallel.settings import EngineSettings, OptimizerSettings
from bigtrk.training.checkpoint.manifest import MANIFEST
from bigtrk.training.run_folder import DESCRIPTION
from tests.hostile.checkpoint_files import (
    checkpoint_files,
    checkpoint_seeds,
    model_files,
    read_checkpoint,
    read_model,
    read_resumed,
)
from tests.hostile.json_values import as_json
from tests.hostile.reader import Reader, of_files
from tests.hostile.records import CONTENT, METRIC_LINES
from tests.hostile.report_files import GOOD, REPORT_READERS


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
    }


def read_ds_config(folder: Path, content: bytes) -> object:
    path = folder / "ds.json"
    path.write_bytes(content)
    settings = EngineSettings(name="deepspeed", ds_config=str(path))
    return settings.sharding(4), load_ds_config(str(path), OptimizerSettings(), 1000)


RECORD_READERS = {
    **REPORT_READERS,
    "model": of_files(model_files, read_model),
    "checkpoint": Reader(checkpoint_seeds, read_checkpoint),
    "resumed": of_files(lambda: {n: GOOD[n] for n in ("run.json", "metrics.jsonl")}, read_resumed),
    "deepspeed": Reader(lambda: [as_json(ds_json())], read_ds_config),
}
# Files of JSON by the reader they are for: the byte that chooses them, and their content.
JSON_FILES: dict[str, tuple[str, bytes, Any]] = {
    "run.json": ("report", b"\0", CONTENT["run.json"]),
    "metrics.jsonl": ("report", b"\1", METRIC_LINES),
    "best.json": ("report", b"\2", CONTENT["best.json"]),
    "evaluation.json": ("report", b"\3", CONTENT["evaluation.json"]),
    "series.json": ("report", b"\4", CONTENT["series.json"]),
    "watched run.json": ("watch", b"\0", CONTENT["run.json"]),
    "watched metrics.jsonl": ("watch", b"\1", METRIC_LINES),
    "stall.json": ("watch", b"\2", CONTENT["stall.json"]),
    "pipeline.json": ("pipeline", b"\0", CONTENT["pipeline.json"]),
    "pipeline evaluation.json": ("pipeline", b"\1", CONTENT["pipeline evaluation.json"]),
    "search.json": ("search", b"\0", CONTENT["search.json"]),
    "result.json": ("search", b"\1", CONTENT["result.json"]),
    "config.json": ("model", b"\0", json.loads(model_files()[DESCRIPTION])),
    "manifest.json": ("checkpoint", b"\1", json.loads(checkpoint_files()[MANIFEST])),
    "resumed run.json": ("resumed", b"\0", CONTENT["run.json"]),
    "resumed metrics.jsonl": ("resumed", b"\1", METRIC_LINES),
    "ds.json": ("deepspeed", b"", ds_json()),
}


def as_file(name: str, content: Any) -> bytes:
    """Returns the bytes that the reader of JSON_FILES[name] is given."""
    _, first, _ = JSON_FILES[name]
    if name.endswith("jsonl") and isinstance(content, list):
        return first + b"".join(as_json(line) + b"\n" for line in content)
    return first + as_json(content)
