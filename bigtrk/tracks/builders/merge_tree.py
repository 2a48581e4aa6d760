"""The merge tree: tracks are the candidates of the best quality, which a small network predicts.

Shapes: N hits, C candidates, F features.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor
from torch.nn.functional import linear

from bigtrk.config import Settings, parse
from bigtrk.errors import InputError, one_line
from bigtrk.graphs.event_graph import Layout, check_columns
from bigtrk.graphs.storage.event_folder import SectionFile, write_sections
from bigtrk.tracks.builders.builder import NO_TRACK, ScoredGraph, numbered
from bigtrk.tracks.builders.candidates import FEATURES, Candidates, find_candidates, ranges
from bigtrk.tracks.builders.chains import Chains, Triplets, find_chains, find_triplets, take_chains
from bigtrk.tracks.builders.hit_tree import HitTree, Ids, Values, grow

HIDDEN = 64
WIDTHS = (len(FEATURES), HIDDEN, HIDDEN, 1)
BLOCK = 2**14  # candidates that a network judges at once; each takes about 1.5 kB meanwhile


@dataclass(frozen=True, eq=False)
class Quality:
    """A trained network. mean, scale [F]: of the features. weights: each layer's weight [outputs,
    inputs] and bias [outputs], by WIDTHS. All are float32. with_modules: its training graphs had
    the hits' modules. second: the networks of the second pass; None: there is none.
    """

    with_modules: bool
    mean: Tensor
    scale: Tensor
    weights: tuple[Tensor, ...]
    second: "SecondPass | None" = None

    def __call__(self, features: NDArray[np.float32]) -> Values:
        """Returns the probability that each candidate is a good track: [C, F] -> [C] float64.

        Rounding of sums differs between machines; in float64 too little to change tracks.
        """
        weights = [weight.double() for weight in self.weights]
        blocks = (features[at : at + BLOCK] for at in range(0, max(len(features), 1), BLOCK))
        inputs = (standardised(block, self.mean, self.scale).double() for block in blocks)
        probability: Values = torch.cat([logits(weights, one) for one in inputs]).sigmoid().numpy()
        return probability


class SecondPass(NamedTuple):
    """The networks that judge triplets and chains of the hits that the tree leaves free."""

    triplets: Quality
    chains: Quality


def standardised(features: NDArray[np.float32], mean: Tensor, scale: Tensor) -> Tensor:
    """Standardises features: subtracts the mean, divides by the scale: [C, F] -> [C, F]."""
    return (torch.from_numpy(features) - mean) / scale


def logits(weights: Sequence[Tensor], features: Tensor) -> Tensor:
    """Computes the network's logit of each row of standardised features: [C, F] -> [C]."""
    values = features
    for layer in range(0, len(weights), 2):
        values = linear(values.relu() if layer else values, weights[layer], weights[layer + 1])
    return values[:, 0]


@dataclass(frozen=True)
class MergeTree:
    """Unites hits by edges of falling score; every union is a track candidate. Of all sets of
    candidates without a hit in common, it takes the one with the largest sum of (P - SURE) x hits,
    where P is a candidate's `quality`. A second pass joins triplets of the hits left over into
    chains (chains.py), and takes chains by their quality P and (P - `threshold`) x hits. A
    `threshold` above SURE replaces SURE. Without the networks of a second pass there is one pass,
    by `threshold`.

    A higher threshold, between 0 and 1, gives fewer fakes and finds fewer particles. Tracks have at
    least two hits and at most candidates.MOST_HITS. If modules are unknown, hits of one module may
    be united, too: tracks are worse, and their quality should be learnt from graphs like these.
    """

    quality: Quality
    threshold: float

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= 1:
            raise InputError(f"threshold {self.threshold} of track quality: must be from 0 to 1")

    def __call__(self, graph: ScoredGraph, min_hits: int) -> Ids:
        """Returns each hit's track [N], or NO_TRACK (TrackBuilder). InputError if modules are known
        in this event but were not in training, or the reverse.
        """
        if self.quality.with_modules != (graph.modules is not None):
            here = "lacks" if graph.modules is None else "has"
            raise InputError(
                f"this event {here} module ids of hits, unlike the events that trained the "
                f"pipeline; train a pipeline on events like this one"
            )
        tree = grow(graph)
        candidates = find_candidates(tree, graph.position, min_hits)
        return tracks_at(graph, tree, candidates, self.quality, min_hits)(self.threshold)


# SURE = 0.8, 0.95 and 0.98: both passes found 99.56, 99.67 and 99.71 % of the particles in 6 events
# of Fatras, and 90.8, 91.6 and 92.3 % in event 1000, at threshold 0.005, with at most 0.4 % fakes.
SURE = 0.98


def triplets_left(
    graph: ScoredGraph, tree: HitTree, candidates: Candidates, gain: Values, min_hits: int
) -> tuple[Ids, Triplets]:
    """Returns the first pass's tracks [N], and the triplets of the hits left without a track."""
    sure = take_tracks(tree, candidates, gain, min_hits)
    return sure, find_triplets(graph, sure == NO_TRACK)


def tracks_at(
    graph: ScoredGraph, tree: HitTree, candidates: Candidates, quality: Quality, min_hits: int
) -> Callable[[float], Ids]:
    """Does all work that needs no threshold; returns a function from threshold to tracks [N]."""
    probability = quality(candidates.features)
    if quality.second is None:
        return lambda threshold: take_tracks(tree, candidates, probability - threshold, min_hits)
    of_triplets, of_chains = quality.second

    @lru_cache(1)  # all thresholds below SURE share one result
    def left(least: float) -> tuple[Ids, Chains, Values]:
        sure, triplets = triplets_left(graph, tree, candidates, probability - least, min_hits)
        chains = find_chains(graph, triplets, of_triplets, min_hits)
        return sure, chains, of_chains(chains.features)

    def tracks(threshold: float) -> Ids:
        sure, chains, of_chain = left(max(threshold, SURE))
        return take_chains(chains.hits, of_chain - threshold, sure, min_hits)

    return tracks


def take_tracks(tree: HitTree, candidates: Candidates, gain: Values, min_hits: int) -> Ids:
    """Takes the set of candidates without a hit in common that has the largest sum of gain x hits:
    gain [C] -> the track of each hit [N], or NO_TRACK.
    """
    values = np.zeros(len(tree.size))
    values[candidates.union] = gain * candidates.hits.size
    group = np.full(len(tree.hits), NO_TRACK, np.int64)
    taken = tree.take_best(values)
    size = tree.size[taken]
    group[tree.hits[ranges(tree.first[taken], size)]] = np.repeat(taken, size)
    return numbered(group, min_hits)


FORMAT, VERSION = "bigtrk merge tree", 3
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


class _Record(Settings):
    """The record in a merge tree's file; the file's tensors are the weights."""

    format: Literal["bigtrk merge tree"]
    version: Literal[3]
    features: tuple[str, ...]
    with_modules: bool
    threshold: Annotated[float, Field(ge=0, le=1)]


def write_merge_tree(path: Path, builder: MergeTree) -> None:
    """Writes `builder` to one file, atomically."""
    quality = builder.quality
    record = {
        "format": FORMAT,
        "version": VERSION,
        "features": list(FEATURES),
        "with_modules": quality.with_modules,
        "threshold": builder.threshold,
    }
    networks = {"quality": quality} | (quality.second._asdict() if quality.second else {})
    sections = {
        name: dict(zip(_LAYOUT, (one.mean, one.scale, *one.weights), strict=True))
        for name, one in networks.items()
    }
    write_sections(path, sections, record)


def read_merge_tree(path: Path) -> MergeTree:
    """Reads a file of `write_merge_tree`; InputError if it is damaged or another kind of file."""
    opened = SectionFile(path)
    if opened.record.get("format") != FORMAT:
        raise InputError(f"{path}: is no merge tree; train the pipeline again")
    if (version := opened.record.get("version")) != VERSION:
        raise InputError(
            f"{path}: has version {one_line(repr(version))}, but this bigtrk reads version "
            f"{VERSION}; use the version of bigtrk that wrote it, or train the pipeline again"
        )
    record = parse(_Record, opened.record, str(path), remedy="train the pipeline again")
    if record.features != FEATURES:
        raise InputError(
            f"{path}: judges tracks by other features than this bigtrk; train the pipeline again"
        )
    quality = _read_quality(opened, "quality", record)
    if set(SecondPass._fields) & set(opened.digests):
        second = SecondPass(*(_read_quality(opened, one, record) for one in SecondPass._fields))
        quality = replace(quality, second=second)
    return MergeTree(quality, record.threshold)


def _read_quality(opened: SectionFile, section: str, record: _Record) -> Quality:
    tensors = opened.read(section)
    check_columns(tensors, _LAYOUT, _SIZES, str(opened.path))
    mean, scale, *weights = (tensors[name] for name in _LAYOUT)
    return Quality(record.with_modules, mean, scale, tuple(weights))
