import dataclasses
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bigtrk.errors import InputError
from bigtrk.graphs.event_graph import EventGraph, ParticleTable, Sector, whole_sector
from bigtrk.graphs.storage.event_folder import file_of, write_manifest
from bigtrk.graphs.storage.sector_folder import SectorFolder, write_sectors
from partition.sectors import cut

EVENT = "event000000003"


def a_graph(*, labelled: bool) -> EventGraph:
    generator = torch.Generator().manual_seed(3)
    n_nodes, n_edges = 60, 300
    edge_index = torch.randint(n_nodes, (2, n_edges), generator=generator)
    ids = torch.arange(n_nodes)
    particles = ParticleTable(
        particle_id=torch.tensor([2**53 + 1, 2**60 + 3]),
        pt=torch.tensor([0.5, 2.0]),
        eta=torch.tensor([-1.0, 3.0]),
        vertex=torch.rand(2, 3, generator=generator),
        nhits=torch.tensor([3, 9]),
    )
    return EventGraph(
        name=EVENT,
        node_feature_names=("r", "phi", "z"),
        edge_feature_names=("dr",),
        node_features=torch.rand(n_nodes, 3, generator=generator),
        edge_index=edge_index,
        edge_features=torch.rand(n_edges, 1, generator=generator),
        y=torch.rand(n_edges, generator=generator) < 0.5 if labelled else None,
        hit_id=ids + 1 if labelled else None,
        particle_id=(ids % 2) * (2**53 + 1) if labelled else None,
        hit_weight=torch.rand(n_nodes, generator=generator).double() if labelled else None,
        particles=particles if labelled else None,
    )


def a_part(graph: EventGraph, parts: int) -> Tensor:
    return torch.arange(graph.n_nodes) * 7 % parts


def a_folder(path: Path, graph: EventGraph, parts: int) -> SectorFolder:
    write_sectors(path, cut(graph, a_part(graph, parts), parts), {"scale": [1.5]})
    write_manifest(path, "sectors", {"parts": parts}, [graph.name])
    return SectorFolder(path)


def assert_same(one: object, other: object) -> None:
    """Compares field by field, and tensors bit by bit."""
    assert type(one) is type(other)
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    elif isinstance(one, Sector | ParticleTable):
        for field in dataclasses.fields(one):
            assert_same(getattr(one, field.name), getattr(other, field.name))
    else:
        assert one == other


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize(("stored", "parts"), [(8, 8), (8, 4), (8, 2), (8, 1), (6, 3), (6, 4)])
def test_reads_what_cutting_gives(tmp_path: Path, labelled: bool, stored: int, parts: int) -> None:
    graph = a_graph(labelled=labelled)
    folder = a_folder(tmp_path, graph, stored)
    expected = cut(graph, a_part(graph, stored) * parts // stored, parts)
    for k in range(parts):
        assert_same(folder.read(EVENT, k, parts), expected[k])
    numbers = [parts - 1, 0]
    for k, sector in zip(numbers, folder.read_several(EVENT, numbers, parts), strict=True):
        assert_same(sector, expected[k])


def test_the_whole_graph_and_its_record(tmp_path: Path) -> None:
    graph = a_graph(labelled=True)
    folder = a_folder(tmp_path, graph, 4)
    assert_same(folder.read(EVENT, 0, 1), whole_sector(graph))
    record = folder.record(EVENT)
    assert (folder.events, folder.parts(EVENT), record["scale"]) == ([EVENT], 4, [1.5])
    assert (record["nodes"], record["edges"]) == (60, 300)
    assert [s["owned"] for s in record["sectors"]] == [15, 15, 15, 15]


def test_a_share_is_read_without_the_others(tmp_path: Path) -> None:
    graph = a_graph(labelled=True)
    folder = a_folder(tmp_path, graph, 4)
    path = file_of(tmp_path, EVENT)
    content = bytearray(path.read_bytes())
    features = cut(graph, a_part(graph, 4), 4)[3].edge_features.numpy().tobytes()
    content[content.index(features)] ^= 1
    path.write_bytes(content)
    assert folder.read(EVENT, 0, 2).n_owned == 30
    with pytest.raises(InputError, match="is damaged in section 'sector/3'"):
        folder.read(EVENT, 1, 2)


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "sectors", a_graph(labelled=True), 4)
    for parts in (8, 3):
        with pytest.raises(InputError, match=f"holds 4 sectors.*--parts {parts}"):
            folder.read(EVENT, 0, parts)
    with pytest.raises(InputError, match="no event 'event9'; name another, or add it by 'python"):
        folder.read("event9", 0, 1)
    write_manifest(tmp_path / "graphs", "graphs", {}, [])
    with pytest.raises(InputError, match="holds graphs; name a folder of sectors"):
        SectorFolder(tmp_path / "graphs")
