"""Sectors that do not fit together, though all checksums do: refused before anybody exchanges."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bigtrk.errors import InputError
from bigtrk.graphs.event_graph import Sector
from bigtrk.graphs.storage.event_folder import file_of
from bigtrk.graphs.storage.sector_folder import SectorFolder
from bigtrk.training.data.event_source import Events, open_events
from partition.sectors import cut
from tests.hostile import sectors as hostile
from tests.hostile.reader import refusal
from tests.hostile.sectors import (
    EVENT,
    GRAPH,
    PARTS,
    Sectors,
    changed,
    good,
    lie,
    put,
    store,
    swapped,
)


def read_all(folder: Path) -> None:
    opened = SectorFolder(folder)
    for part in range(opened.parts(EVENT)):
        opened.read(EVENT, part, opened.parts(EVENT))


UNFIT: list[tuple[Callable[[Sectors], Sectors], str]] = [
    (hostile.sends_less, r"sector 0 sends \d+ rows to sector 1, which expects \d+"),
    (hostile.sends_to_itself, "sector 0 sends rows to itself"),
    (hostile.sends_another_row, "do not send each other the nodes that they expect"),
    (hostile.repeats_an_edge, "do not own each of the event's edges once"),
    (hostile.swaps_two_for_others, "do not own each of the event's edges once"),
    (hostile.owns_a_node_of_another, "do not own each of the event's nodes once"),
    (hostile.lacks_the_copy_of_a_cut_edge, "do not hold the same cut edges"),
    (
        lambda sectors: [replace(sector, event_edges=2**31 - 1) for sector in sectors],
        "do not own each of the event's edges once",
    ),
]


@pytest.mark.parametrize(("spoil", "complaint"), UNFIT)
def test_sectors_that_do_not_fit_are_refused_by_all_who_open_them(
    tmp_path: Path, spoil: Callable[[Sectors], Sectors], complaint: str
) -> None:
    """The manifest alone gives them away, whichever sector a rank reads."""
    store(tmp_path, spoil(good()))
    with pytest.raises(InputError, match=complaint) as caught:
        SectorFolder(tmp_path)
    said = str(caught.value)
    assert f"{tmp_path / 'manifest.json'}, event '{EVENT}'" in said
    assert "remove manifest.json and run 'python -m partition GRAPHS" in said


LIES: list[tuple[Callable[[Sector], dict[str, Tensor]], str]] = [
    (lambda s: {"node_id": swapped(s.node_id, 0, 1)}, "node_id is out of order at row 1"),
    (
        lambda s: {"node_id": swapped(s.node_id, s.n_owned, s.n_owned + 1)},
        "node_id is out of order at row",
    ),
    (lambda s: {"send_index": put(s.send_index, 1, s.send_index[0])}, "send_index is out of order"),
    (
        lambda s: {"edge_index": s.edge_index.flip(1)},
        "edges must be in this order: those between owned nodes, then cut edges, each",
    ),
    (
        lambda s: {"edge_index": put(s.edge_index, (slice(None), -1), s.n_nodes - 1)},
        r"edge \d+ joins two nodes of other sectors",
    ),
    (hostile.other_edge_id, "the checksum 'edge_ids' differs from the stored one, so this sector"),
    (  # a node that has no edge
        lambda s: {"node_id": put(s.node_id, s.n_owned - 1, GRAPH.n_nodes - 1)},
        "the checksum 'node_ids' differs from the stored one, so this sector does not fit",
    ),
]


@pytest.mark.parametrize(("spoil", "complaint"), LIES)
def test_a_sector_that_its_record_does_not_tell_is_refused_by_its_reader(
    tmp_path: Path, spoil: Callable[[Sector], dict[str, Tensor]], complaint: str
) -> None:
    store(tmp_path, good())
    lie(tmp_path, 1, spoil(good()[1]))
    folder = SectorFolder(tmp_path)
    folder.read(EVENT, 0, PARTS)
    with pytest.raises(InputError, match=complaint) as caught:
        folder.read(EVENT, 1, PARTS)
    assert str(caught.value).startswith(f"{file_of(tmp_path, EVENT)}, sector 1")
    assert str(caught.value).endswith("make it again")
    with pytest.raises(InputError, match=complaint):
        folder.read(EVENT, 0, 1)


def test_the_only_sector_is_in_order_too(tmp_path: Path) -> None:
    """ShaDow relies on it, and ended in an AssertionError."""
    [whole] = good(1)
    store(tmp_path, changed([whole], 0, edge_index=whole.edge_index.flip(1)))
    with pytest.raises(InputError, match="edges must be in this order: those between owned"):
        read_all(tmp_path)


def test_good_sectors_are_read(tmp_path: Path) -> None:
    for parts in (1, 2, 3, 8):
        store(tmp_path, good(parts))
        read_all(tmp_path)


def test_a_particle_that_is_listed_twice_is_refused(tmp_path: Path) -> None:
    """Matching tracks would refuse it in the middle of an evaluation, and name no file."""
    particles = GRAPH.particles
    assert particles is not None
    ids = put(particles.particle_id, 1, particles.particle_id[0])
    twice = replace(particles, particle_id=ids)
    path = store(tmp_path, [replace(sector, particles=twice) for sector in good()])
    assert str(refusal(lambda: read_all(tmp_path))) == (
        f"{path}, particles: particle {int(ids[0])} is listed twice; correct or remake the data"
    )


def test_ranks_with_other_cuts_of_an_event_have_other_data(tmp_path: Path) -> None:
    """Each cut is good in itself, but they would exchange other rows."""
    store(tmp_path / "one", good())
    store(tmp_path / "same", good())
    store(tmp_path / "other", cut(GRAPH, torch.arange(1, GRAPH.n_nodes + 1) % PARTS, PARTS))
    one, same, other = (
        Events(open_events([tmp_path / name]), []).fingerprint for name in ("one", "same", "other")
    )
    assert one == same
    assert one != other
