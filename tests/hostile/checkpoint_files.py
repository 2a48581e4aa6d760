"""Files of models and checkpoints: valid ones, and a reader of each."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch
from safetensors.torch import save

from bigtrk.disk.files import seal
from bigtrk.disk.json_lines import read_lines
from bigtrk.parallel.engines.ddp import replica_pieces
from bigtrk.parallel.engines.engine import AVERAGE, Piece
from bigtrk.records.run import RunRecord
from bigtrk.records.run_folder import METRICS, RUN
from bigtrk.training.checkpoint.checkpointer import restore, stored_weights
from bigtrk.training.checkpoint.folder import (
    commit,
    continue_record,
    last_good,
    make_temporary,
    resumed_configuration,
    temporary_of,
)
from bigtrk.training.checkpoint.manifest import (
    KINDS,
    MANIFEST,
    RANDOM,
    Checkpoint,
    EpochTotals,
    Progress,
    shard_name,
    write_shard,
)
from bigtrk.training.guards import LossHistory
from bigtrk.training.model_files import build_model, check_shapes, describe, load_model
from bigtrk.training.run_folder import DESCRIPTION, WEIGHTS
from bigtrk.training.schedule import Best, BestEpoch, Plateau
from tests.hostile.records import CONFIGURATION


@cache
def model_files() -> dict[str, bytes]:
    description = describe(CONFIGURATION, ["a", "b"])
    weights = build_model(CONFIGURATION).state_dict()
    return {DESCRIPTION: json.dumps(description).encode(), WEIGHTS: save(weights)}


def read_model(folder: Path) -> object:
    stored = load_model(folder)
    return dict(stored.model.state_dict()), stored.configuration, stored.trained_on


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
    best = Best("auc", BestEpoch(0.9, 0, 10))
    at = Progress(1, 3, 13, Plateau(0.3, 1, 2), LossHistory((0.1, 0.2), 1), totals, best)
    shapes = {name: tuple(x.shape) for name, x in OneRank().model.named_parameters()}
    sizes = {name: torch.Size(shape).numel() for name, shape in shapes.items()}
    tensors = {f"{kind}/{name}": torch.rand(n) for name, n in sizes.items() for kind in KINDS}
    tensors |= {f"{AVERAGE}/{name}": torch.rand(n) for name, n in sizes.items()}
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
        told: dict[str, Any] = {"configuration": {"a": 1}, "software": {"torch": "2"}}
        commit(root, Checkpoint(at, shapes, (shard,), "data", "DDP", **told, averaged=True))
        return {path.name: path.read_bytes() for path in (root / "step-00000013").iterdir()}


def resealed(raw: bytes) -> bytes:
    """Returns the manifest with a digest that fits, as an attacker would write it."""
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
    engine = OneRank()
    with (
        patch("torch.distributed.get_world_size", lambda: 1),
        patch("torch.distributed.get_rank", lambda: 0),
    ):
        restore(engine, found.folder, found.checkpoint)  # type: ignore[arg-type]
    stored_weights(found.folder, found.checkpoint)
    if found.checkpoint.averaged:
        stored_weights(found.folder, found.checkpoint, AVERAGE)
    return found.checkpoint.progress, dict(engine.model.state_dict())


def checkpoint_seeds() -> list[bytes]:
    files = checkpoint_files()
    return [b"\0" + files[MANIFEST], b"\1" + files[MANIFEST], b"\2" + files[shard_name(0)]]


def read_resumed(folder: Path) -> object:
    """Take a run's record up."""
    configuration = resumed_configuration(folder, ["training.epochs=7"])
    at = Progress(1, 0, 1, Plateau(), LossHistory(), EpochTotals())
    record = RunRecord(world_size=1, engine="ddp", engine_detail="DDP", launcher="x")
    continue_record(folder, record, at)
    return configuration, [line.content for line in read_lines(folder / METRICS)]
