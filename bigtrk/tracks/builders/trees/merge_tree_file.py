"""The file of a merge tree: the network of its track quality, and its threshold; no pickle."""

from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import Field

from bigtrk.config import Settings, parse
from bigtrk.errors import InputError, one_line
from bigtrk.graphs.event_graph import Layout, check_columns
from bigtrk.graphs.storage.tensor_files import SectionFile, write_sections
from bigtrk.tracks.builders.merge_tree import MergeTree
from bigtrk.tracks.builders.trees.candidates import FEATURES
from bigtrk.tracks.builders.trees.quality import HIDDEN, Quality

FORMAT, VERSION = "bigtrk merge tree", 1
_LAYOUT: Layout = {
    "mean": (torch.float32, "F"),
    "scale": (torch.float32, "F"),
    "weight_0": (torch.float32, "HF"),
    "bias_0": (torch.float32, "H"),
    "weight_1": (torch.float32, "HH"),
    "bias_1": (torch.float32, "H"),
    "weight_2": (torch.float32, "1H"),
    "bias_2": (torch.float32, "1"),
}
_SIZES = {"F": len(FEATURES), "H": HIDDEN}
_WEIGHTS = [name for name in _LAYOUT if name not in ("mean", "scale")]


class _Record(Settings):
    """The record beside the tensors."""

    format: Literal["bigtrk merge tree"]
    version: Literal[1]
    features: tuple[str, ...]
    with_modules: bool
    threshold: Annotated[float, Field(ge=0, le=1)]


def write_merge_tree(path: Path, builder: MergeTree) -> None:
    """Writes `builder` to one file, atomically."""
    quality = builder.quality
    tensors = dict(zip(_WEIGHTS, quality.weights, strict=True))
    record = _Record(
        format=FORMAT,
        version=VERSION,
        features=FEATURES,
        with_modules=quality.with_modules,
        threshold=builder.threshold,
    )
    write_sections(
        path,
        {"quality": {"mean": quality.mean, "scale": quality.scale, **tensors}},
        record.model_dump(mode="json"),
    )


def read_merge_tree(path: Path) -> MergeTree:
    """Reads what `write_merge_tree` wrote, and verifies its checksums.

    Raises:
        InputError: the file is missing, damaged, none of a merge tree, or of another version.
    """
    opened = SectionFile(path)
    if opened.record.get("format") != FORMAT:
        raise InputError(f"{path}: holds no merge tree; name a file of one")
    if (version := opened.record.get("version")) != VERSION:
        raise InputError(
            f"{path}: is of version {one_line(repr(version))}; this bigtrk reads version "
            f"{VERSION}: use the version of bigtrk that wrote it, or train it again"
        )
    record = parse(_Record, opened.record, str(path))
    if record.features != FEATURES:
        raise InputError(f"{path}: is of other features than {', '.join(FEATURES)}; train it again")
    tensors = opened.read("quality")
    check_columns(tensors, _LAYOUT, _SIZES, str(path))
    weights = tuple(tensors[name] for name in _WEIGHTS)
    quality = Quality(record.with_modules, tensors["mean"], tensors["scale"], weights)
    return MergeTree(quality, record.threshold)
