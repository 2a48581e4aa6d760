"""Volumes of cuts against the sectors that the partitioner makes; the script with a small event."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bigtrk.cost.event_size import PowerLaw
from bigtrk.disk.files import read_json
from bigtrk.graphs.sector import Sector
from partition.cutting import figures
from partition.sectors import cut
from scripts.docs.tables import cut_tables
from scripts.scaling import partition_volumes
from scripts.scaling.fit_cut_law import errors, fitted
from scripts.scaling.fit_cut_law import figures as figures_of_law
from scripts.scaling.halo_volumes import (
    FinestCut,
    between_hosts,
    exchanged_rows,
    finest_cut,
    placed,
    volumes,
)
from scripts.scaling.partition_volumes import Case
from tests.partition.test_sectors import make_graph

FINEST, NODES = 16, 70


@pytest.fixture(scope="module")
def ends() -> list[tuple[int, int]]:
    """Edges between nodes near each other, some twice, some from a node to itself."""
    draw = np.random.default_rng(5)
    source = draw.integers(0, NODES, 300)
    return list(
        zip(source.tolist(), ((source + draw.integers(0, 9, 300)) % NODES).tolist(), strict=True)
    )


@pytest.fixture(scope="module")
def part() -> Any:
    """Parts in rows of nodes, with some nodes elsewhere and part 3 empty."""
    found = np.arange(NODES) * FINEST // NODES
    found[::11] = 5
    found[found == 3] = 2
    return found.astype(np.int32)


@pytest.fixture(scope="module")
def finest(ends: list[tuple[int, int]], part: Any) -> FinestCut:
    return finest_cut(np.array(ends, dtype=np.int32).T, part, FINEST)


def sectors_of(ends: list[tuple[int, int]], part: Any, parts: int) -> list[Sector]:
    merged = torch.from_numpy(part.astype(np.int64) * parts // FINEST)
    return cut(make_graph(NODES, ends), merged, parts)


@pytest.mark.parametrize("parts", [2, 4, 8, 16])
def test_rows_and_edges_are_those_of_the_sectors(
    ends: list[tuple[int, int]], part: Any, finest: FinestCut, parts: int
) -> None:
    sectors, counted = sectors_of(ends, part, parts), volumes(finest, parts)
    rows = exchanged_rows(finest, parts)
    assert rows.tolist() == [list(sector.send_splits) for sector in sectors]
    assert rows.T.tolist() == [list(sector.recv_splits) for sector in sectors]
    quality = figures(sectors)
    assert counted["cut_edges"] / len(ends) == quality["cut_fraction"]
    assert counted["halo_rows"] / NODES == quality["halo_fraction"]
    assert counted["largest_edges"] == max(sector.n_edges for sector in sectors)
    assert counted["largest_halo"] == max(sector.n_nodes - sector.n_owned for sector in sectors)
    assert counted["neighbours"]["mean"] == quality["neighbours"]


@pytest.mark.parametrize("ranks", [4, 8])
def test_rows_between_hosts_are_counted_rank_by_rank(
    ends: list[tuple[int, int]], part: Any, finest: FinestCut, ranks: int
) -> None:
    sectors = sectors_of(ends, part, FINEST)
    found = volumes(finest, FINEST)["hosts"][str(ranks)]
    hosts = {
        "tree": [p // ranks for p in range(FINEST)],
        "cyclic": [p % (FINEST // ranks) for p in range(FINEST)],
    }
    for name, host in hosts.items():
        received = [
            sum(n for p, n in enumerate(sector.recv_splits) if host[p] != host[sector.part])
            for sector in sectors
        ]
        assert found[name]["rows"] == sum(received)
        assert found[name]["largest"] == max(received)


def test_the_smallest_example_by_hand() -> None:
    """Four parts of one node each in a chain 0 - 1 - 2 - 3, two to a host."""
    chain = finest_cut(np.array([[0, 1, 2], [1, 2, 3]]), np.arange(4), 4)
    rows = exchanged_rows(chain, 4)
    assert rows.tolist() == [[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0]]
    assert between_hosts(rows, np.array([0, 0, 1, 1])) == {"rows": 2, "largest": 1, "messages": 1}
    assert between_hosts(rows, np.array([0, 1, 0, 1])) == {"rows": 6, "largest": 2, "messages": 2}


def test_random_hosts_are_crossed_by_their_share_of_rows() -> None:
    """All pairs of 32 ranks are alike: 28 of a rank's 31 others are on another host of four."""
    found = placed(np.random.default_rng(1).integers(0, 100, (32, 32)), 4)
    rows = np.random.default_rng(1).integers(0, 100, (32, 32))
    total = rows.sum() - np.trace(rows)
    assert found["random"]["rows"] == pytest.approx(total * 28 / 31, rel=0.02)


def test_a_law_is_found_again_from_its_own_cuts() -> None:
    law = PowerLaw(factor=2e-3, degree=1.2, nodes=-0.3, parts=0.6)
    events = ((1e5, 3e5), (1e5, 3e6), (7e5, 4e7))
    cuts = [(n, e, 1 << i, law(n, e, 1 << i)) for n, e in events for i in range(1, 9)]
    found = fitted(cuts)
    assert asdict(found) == pytest.approx(asdict(law), rel=1e-6)
    assert figures_of_law(found, cuts)["largest"] < 1e-6
    assert errors(law, [(1e5, 3e6, 8, law(1e5, 3e6, 8) / 2)]) == pytest.approx([1.0])


def test_the_script_takes_up_what_it_has_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(partition_volumes, "QUICK", (Case("small", 60),))
    command = ["partition_volumes.py", "--quick", f"--work={tmp_path}/work"]
    monkeypatch.setattr(sys, "argv", [*command, f"--output={tmp_path}/found.json"])
    partition_volumes.main()
    found = read_json(tmp_path / "found.json")
    assert [cut["parts"] for cut in found["events"][0]["merged"]] == [2, 4, 8, 16]
    assert [cut["parts"] for cut in found["events"][0]["direct"]] == [8]
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == found["summary"]
    # The second time the graph is there, and what METIS cut.
    (tmp_path / "work/small/volumes.json").unlink()
    monkeypatch.setattr(partition_volumes, "bigtrk", lambda *_: None)
    monkeypatch.setattr(partition_volumes, "bisect", None)
    partition_volumes.main()
    assert read_json(tmp_path / "found.json")["events"] == found["events"]
    lines = cut_tables.partition_volumes(found).markdown().splitlines()
    assert len(lines) == 2 + 2, "2 and 8 sectors"
    assert len(cut_tables.direct_cuts(found).markdown().splitlines()) == 2 + 1
