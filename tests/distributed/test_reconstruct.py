"""Tracks made on several ranks: the same as on one, of whole and of cut events, where some fail."""

import copy
import shutil
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from bigtrk.events.reader import event_sizes
from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.events.trackml import write_event
from bigtrk.parallel.ranks import Ranks
from bigtrk.pipeline.models import EdgeScorer
from bigtrk.pipeline.options import MakingOptions, Precision
from bigtrk.pipeline.reconstruct import TracksMade, reconstruct_folder, share_of
from bigtrk.pipeline.stages import load_pipeline
from tests.distributed.graphs import write_graphs
from tests.distributed.pipelines import write_pipeline
from tests.distributed.ranks import Done, run_all, run_ranks, said

PARTICLES = {0: 60, 1: 130, 2: 120, 3: 40}  # of the events
CUTS_ONE = 5_000  # edges, of which the event of 120 particles has more, and that of 60 fewer
LIMITS = (None, CUTS_ONE)  # of the edges of an event that is not cut
FLOAT64 = MakingOptions(precision=Precision.FLOAT64)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline, events of several sizes, and the graphs that its filter leaves of them."""
    folder = tmp_path_factory.mktemp("reconstruct")
    events = [simulate_event(n, seed=3, event_id=i) for i, n in PARTICLES.items()]
    write_pipeline(folder / "pipeline", events[1])
    pipeline = load_pipeline(folder / "pipeline")
    for event in events:
        write_event(event, folder / "events")
    write_graphs(folder / "graphs", [pipeline.graph(event)[0] for event in events])
    return folder


@pytest.fixture(scope="module")
def alone(folder: Path) -> TracksMade:
    """Reconstructs the events on one rank, into `alone`."""
    [made] = run_ranks(1, reconstructed, folder, "events", folder / "alone", FLOAT64)
    assert isinstance(made, TracksMade)
    assert made.failed == {}
    assert min(made.tracks.values()) > 10
    return made


def reconstructed(
    ranks: Ranks, folder: Path, events: str, out: Path, options: MakingOptions
) -> TracksMade:
    return reconstruct_folder(folder / "pipeline", folder / events, out, options, ranks)


def files(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(out.iterdir())}


def told(made: TracksMade) -> dict[str, Any]:
    """Returns the record of the events, in order, except seconds and notes."""
    content = copy.deepcopy(made.as_json())
    for event in content["events"].values():
        del event["seconds"], event["notes"]
    return {what: list(found.items()) for what, found in content.items()}


def check_all(found: Sequence[TracksMade], out: Path, alone: TracksMade, expected: Path) -> None:
    """Checks that every rank tells the same as one does, and that the same is written."""
    for made in found:
        assert told(made) == told(alone)
    assert files(out) == files(expected)


def edges_of(alone: TracksMade) -> dict[str, int]:
    return {name: passage.edges["filter"] for name, passage in alone.passages.items()}


def two_cut(alone: TracksMade) -> MakingOptions:
    """Has two events cut, and two not."""
    middle = sorted(edges_of(alone).values())[-2]
    return replace(FLOAT64, max_edges=middle - 1)


@pytest.fixture(scope="module")
def of_three(folder: Path, alone: TracksMade, tmp_path_factory: pytest.TempPathFactory) -> Done:
    """Has three ranks make tracks of the events, whole and cut, and where some are damaged."""
    out = tmp_path_factory.mktemp("three")
    spoilt(folder, out / "spoilt")
    works: dict[str, Any] = {
        "whole": (reconstructed, (folder, "events", out / "whole", FLOAT64)),
        "cut": (reconstructed, (folder, "events", out / "cut", two_cut(alone))),
    }
    for limit in LIMITS:
        name, options = f"failed {limit}", replace(FLOAT64, max_edges=limit)
        works[name] = reconstructed, (out / "spoilt", "events", out / name, options)
    return Done({3: run_all(3, works)}, out)


def test_ranks_share_events(folder: Path, alone: TracksMade, of_three: Done) -> None:
    out = of_three.folder / "whole"
    check_all(of_three.of[3]["whole"], out, alone, folder / "alone")
    assert list(alone.tracks) == [f"event{i:09d}" for i in PARTICLES]
    assert {"event000000001-tracks.parquet", "submission.csv"} <= files(out).keys()


def test_cut_events_have_the_same_tracks(folder: Path, alone: TracksMade, of_three: Done) -> None:
    found = of_three.of[3]["cut"]
    check_all(found, of_three.folder / "cut", alone, folder / "alone")
    edges = edges_of(alone)
    for name, passage in found[0].passages.items():
        note = f"is scored in 3 sectors, as its {edges[name]:,} edges are more than"
        is_cut = edges[name] >= sorted(edges.values())[-2]
        assert [one.startswith(note) for one in passage.notes] == [True] * is_cut


def spoilt(folder: Path, place: Path) -> None:
    """Copies the pipeline and the events, of which the smallest and the largest are damaged."""
    shutil.copytree(folder / "pipeline", place / "pipeline")
    shutil.copytree(folder / "events", place / "events")
    for number in (1, 3):
        [hits] = (place / "events").glob(f"event{number:09d}-hits.*")
        hits.write_bytes(b"not a table")


@pytest.mark.parametrize("max_edges", LIMITS)
def test_failed_events_are_named_and_the_others_done(
    folder: Path, of_three: Done, max_edges: int | None
) -> None:
    """One of three ranks has no event that can be read, whether or not another's is cut."""
    found = of_three.of[3][f"failed {max_edges}"]
    assert all(told(made) == told(found[0]) for made in found)
    assert list(found[0].failed) == ["event000000001", "event000000003"]
    for name, reason in found[0].failed.items():
        assert f"{name}-hits.csv.gz: " in reason
    written = files(of_three.folder / f"failed {max_edges}")
    assert len(written) == 3
    del written["submission.csv"]
    assert written.items() <= files(folder / "alone").items()


def exhausted(
    ranks: Ranks, folder: Path, out: Path, options: MakingOptions
) -> Mapping[str, str] | str:
    """Returns the events that fail where rank 1 has no memory for scores, or what it says."""

    def scores(*_: Any) -> torch.Tensor:
        return torch.empty(2**55)

    broken = patch.object(EdgeScorer, "scores", scores)
    with broken if ranks.rank == 1 else nullcontext():
        found: Mapping[str, str] | str = said(
            lambda: reconstructed(ranks, folder, "events", out, options).failed
        )
    return found


def test_an_event_that_takes_too_much_memory_is_named(folder: Path, tmp_path: Path) -> None:
    sizes = event_sizes(folder / "events")
    of_rank_1 = {name for name in share_of(sizes, Ranks(1, 2, 1, 2, "test")) if name}
    found = run_ranks(2, exhausted, folder, tmp_path / "out", MakingOptions())
    assert found[0] == found[1]
    assert found[0].keys() == of_rank_1
    for name, reason in found[0].items():
        assert reason.startswith(f"{name}: this rank ran out of memory in 'filter' (")
        assert "give --max-edges N" in reason


def test_a_rank_that_runs_out_of_memory_leaves_none_waiting(folder: Path, tmp_path: Path) -> None:
    """Here the others wait for its part of an event."""
    options = MakingOptions(max_edges=CUTS_ONE)
    first, second = run_ranks(2, exhausted, folder, tmp_path / "out", options, fresh=True)
    assert first == "the other rank is gone"
    assert second.startswith("rank 1 ran out of memory in 'classifier' (")
    assert second.endswith(
        "; start more ranks, so that each holds fewer edges, or on CPUs add --spill FOLDER"
    )


def test_ranks_take_like_shares_the_largest_events_first() -> None:
    sizes = {f"event{i}": size for i, size in enumerate([5, 30, 10, 10, 20, 5, 1])}
    for world_size in (1, 2, 3, 9):
        ranks = [Ranks(i, world_size, i, world_size, "test") for i in range(world_size)]
        found = [share_of(sizes, one) for one in ranks]
        assert len({len(share) for share in found}) == 1
        named = [[name for name in share if name] for share in found]
        assert sorted(name for share in named for name in share) == sorted(sizes)
        loads = [sum(sizes[name] for name in share) for share in named]
        assert max(loads) - min(loads) <= 30
        for share in named:
            assert share == sorted(share, key=lambda name: -sizes[name])
