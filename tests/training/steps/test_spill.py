"""The folder that edges are spilled to: what is refused before a training, and what is said."""

import gc
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from bigtrk.cost.event_size import EventSize
from bigtrk.cost.machines import A100, CPU
from bigtrk.disk import local_files
from bigtrk.errors import InputError
from bigtrk.models.edges.stores import FileStore
from bigtrk.models.protocol import no_exchange
from bigtrk.models.settings import EdgeMLPConfig, InteractionGNNConfig
from bigtrk.parallel.process_group import process_group
from bigtrk.parallel.ranks import discover
from bigtrk.parallel.routing import WHOLE, Cut, Router
from bigtrk.training.costs import make_cost
from bigtrk.training.data.places import InputFiles
from bigtrk.training.settings import Configuration
from bigtrk.training.steps import routers, spill
from bigtrk.training.steps.spill import (
    HeldSectors,
    LaidEvents,
    Need,
    SpillFolder,
    check_folder,
    check_room,
    edges_on_host,
    held_sectors,
    open_spill,
    spill_edges,
    spill_scoring,
)
from tests.distributed.ranks import ALONE
from tests.models.graphs import F, G, make_graph
from tests.mounts import mounted
from tests.open_files import open_files

GIB = 2**30
NONE = LaidEvents([], Router([], 1))


def test_a_folder_must_be_there(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for name in (tmp_path / "none", file):
        with pytest.raises(InputError, match=r"--spill=.*: no such folder; make it on a local"):
            check_folder(SpillFolder(name))


def test_a_folder_must_not_be_read_only(tmp_path: Path) -> None:
    check_folder(SpillFolder(tmp_path))
    with (
        mounted(tmp_path / "disk", "ro") as folder,
        pytest.raises(InputError, match=r"--spill=.*disk: cannot be written; name a folder of"),
    ):
        check_folder(SpillFolder(folder))


MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:40 / {folder}/far\\040away rw shared:2 - nfs4 server:/home rw
31 30 0:41 / {folder}/far\\040away/near rw - xfs /dev/nvme0 rw
"""


def test_network_local_files_are_known_by_their_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS.format(folder=tmp_path))
    found = {
        name: local_files.network_file_system(tmp_path / name, mounts)
        for name in (".", "far away", "far away/home/me", "far away/near/x", "far away!")
    }
    assert found == {
        ".": None,
        "far away": "nfs4",
        "far away/home/me": "nfs4",
        "far away/near/x": None,
        "far away!": None,
    }
    assert local_files.network_file_system(tmp_path, tmp_path / "none") is None


def test_a_network_file_system_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(spill, "network_file_system", lambda _: "lustre")
    check_folder(SpillFolder(tmp_path))
    assert "lies on a network file system (lustre), which is slower" in capsys.readouterr().err


def test_a_folder_in_memory_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"31 30 0:41 / {tmp_path}/shm rw - tmpfs tmpfs rw\n")
    assert local_files.memory_file_system(tmp_path / "shm/me", mounts) == "tmpfs"
    assert local_files.memory_file_system(tmp_path, mounts) is None
    monkeypatch.setattr(spill, "memory_file_system", lambda _: "tmpfs")
    check_folder(SpillFolder(tmp_path))
    assert "lies in memory (tmpfs), where files spare none; name" in capsys.readouterr().err


def test_what_memory_has_no_room_for_must_fit_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(spill, "free_bytes", lambda _: 10 * GIB)
    folder, ranks = SpillFolder(tmp_path), discover()
    small = Need("small", 1 * GIB, 2 * GIB, 1 * GIB)
    large = Need("large", 3 * GIB, 14.5 * GIB, 0.5 * GIB)
    with pytest.raises(InputError, match=r"10\.0 GiB free, and the edges of large need 11\.5 GiB"):
        open_spill(folder, ranks, [small, large], 6 * GIB)
    store = open_spill(folder, ranks, [small, large], 8 * GIB)
    assert "up to 9.5 GiB of edges go to" in capsys.readouterr().err
    assert store._memory == 5 * GIB
    tiny = Need("tiny", 1 * GIB, 2 * GIB, 1)
    open_spill(folder, ranks, [tiny], 3 * GIB - 2**24)
    assert "up to 0.016 GiB of edges go to" in capsys.readouterr().err
    assert large.spilled(100 * GIB) == 0
    assert replace(large, inputs=GIB).spilled(100 * GIB) == GIB
    assert large.spilled(0) == large.edges


def test_the_room_that_an_event_with_more_nodes_leaves_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "free_bytes", lambda _: 2 * GIB)
    # Each alone fits 10 GiB, but the store keeps 8 of them free for the nodes of the second.
    edges = Need("edges", 5 * GIB, 5 * GIB, 1 * GIB)
    nodes = Need("nodes", 8 * GIB, 1 * GIB, 1 * GIB)
    with pytest.raises(InputError, match=r"2\.0 GiB free, and the edges of edges need 3\.0 GiB"):
        open_spill(SpillFolder(tmp_path), discover(), [edges, nodes], 10 * GIB)


def test_the_space_for_validation_is_checked_before_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "free_bytes", lambda _: GIB / 4)
    configuration = Configuration.model_validate(
        {"model": {"hidden": 64}, "training": {"spill": tmp_path, "memory_gib": 6}}
    )
    small: Any = SimpleNamespace(name="small", parts=1, size=EventSize(100, 1_000))
    large: Any = SimpleNamespace(name="large", parts=1, size=EventSize(100_000, 10_000_000))
    model, router = configuration.model.build(4, 6, pt_head=False), Router([{WHOLE: 1.0}], 1)
    trained, scored = LaidEvents([small], router), LaidEvents([large], router)
    with process_group(ALONE):
        spill_edges(model, configuration, ALONE, trained, NONE)
        with pytest.raises(InputError, match=r"0\.2 GiB free, and the edges of large need"):
            spill_edges(model, configuration, ALONE, trained, scored)


def test_a_rank_has_the_edges_of_all_its_sectors_in_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source: Any = SimpleNamespace(name="event", parts=4, size=EventSize(1_000, 40_000, stored=4))
    edges = source.size.sector(4).edges
    routers = [Router([{Cut(4, ranks): 1.0}], ranks) for ranks in (4, 3, 2, 1)]
    scored = [held_sectors(LaidEvents([source], router)) for router in routers]
    assert [one["event"] for one in scored] == [HeldSectors(edges, n) for n in (1, 2, 2, 4)]
    model = InteractionGNNConfig(hidden=64).build(4, 6, pt_head=False)
    tensor, asked = edges * 64 * 4, (SpillFolder(tmp_path), discover())
    monkeypatch.setattr(spill, "memory_of_rank", lambda _: 2 * 1.5 * tensor)  # room for one
    for one, n_sectors in zip(scored, (1, 2, 2, 4), strict=True):
        free = [(2 * n_sectors - 1) * tensor + 1]
        monkeypatch.setattr(spill, "free_bytes", lambda _, free=free: free[0])
        spill_scoring(model, *asked, one)
        free[0] -= 2
        with pytest.raises(InputError, match="the edges of event need"):
            spill_scoring(model, *asked, one)


@pytest.mark.parametrize(("gib", "short"), [(0.5, True), (0.61, False), (6, False)])
def test_inputs_go_to_files_where_memory_is_short(
    tmp_path: Path, gib: float, short: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """0.61 GiB hold all; the blocks in which edges travel to files would take more beside it."""
    configuration = Configuration.model_validate(
        {"model": {"hidden": 16}, "training": {"spill": tmp_path, "memory_gib": gib}}
    )
    source: Any = SimpleNamespace(name="event", parts=1, size=EventSize(20_000, 500_000))
    model, router = configuration.model.build(4, 6, pt_head=False), Router([{WHOLE: 1.0}], 1)
    with process_group(ALONE):
        files = spill_edges(model, configuration, ALONE, LaidEvents([source], router), NONE)
    assert isinstance(files, InputFiles) is short
    assert ("of edges go to" in capsys.readouterr().err) is short


def test_only_models_that_keep_edges_score_with_files(tmp_path: Path) -> None:
    model = EdgeMLPConfig().build(4, 6, pt_head=False)
    with pytest.raises(InputError, match="--spill: only the Interaction GNN keeps edges"):
        spill_scoring(model, SpillFolder(tmp_path), discover(), {"event": HeldSectors(1000)})


def test_accelerators_are_told_of_their_host_s_memory(tmp_path: Path) -> None:
    ranks: Any = SimpleNamespace(device=torch.device("cuda"))
    model, told = InteractionGNNConfig().build(4, 6, pt_head=False), "not of cuda; .*=offload"
    with pytest.raises(InputError, match=f"--spill: .*{told}"):
        spill_scoring(model, SpillFolder(tmp_path), ranks, {"event": HeldSectors(1000)})
    configuration = Configuration.model_validate({"training": {"spill": tmp_path}})
    with pytest.raises(InputError, match=rf"training\.spill: .*{told}"):
        spill_edges(model, configuration, ranks, NONE, NONE)


@pytest.mark.parametrize(
    ("options", "tensors"),
    [({}, 2), ({"precision": "bf16"}, 1), ({"layers": 1}, 1), ({"concatenate": False}, 1)],
)
def test_scores_are_the_same_with_edges_in_just_the_space_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], tensors: int
) -> None:
    torch.manual_seed(0)
    model = InteractionGNNConfig(**{"hidden": 8, "layers": 4, **options}).build(F, G, pt_head=False)
    n_edges = 20_480  # whole pages of a file
    x, edge_features, edge_index = make_graph(50, n_edges)
    given = x.float(), edge_features.float(), edge_index, len(x), no_exchange
    # Half of it has room for one tensor in bfloat16, and for none in float32.
    monkeypatch.setattr(spill, "memory_of_rank", lambda _: 2 * 400_000.0)
    asked = SpillFolder(tmp_path), discover(), {"event": HeldSectors(n_edges)}
    with torch.no_grad():
        expected = model(*given)
        spill_scoring(model, *asked)
        assert torch.equal(model(*given), expected)
    gc.collect()
    assert isinstance(model._store, FileStore)
    taken = model._store.files.unused_bytes
    assert taken == tensors * n_edges * 8 * (2 if options.get("precision") else 4)
    assert open_files(tmp_path)
    monkeypatch.setattr(spill, "free_bytes", lambda _: taken)
    spill_scoring(model, *asked)
    monkeypatch.setattr(spill, "free_bytes", lambda _: taken - 1)
    with pytest.raises(InputError, match=r"--spill=.*GiB free, and the edges of event need"):
        spill_scoring(model, *asked)


@pytest.mark.parametrize(("recompute", "helps"), [("chunk", True), ("none", False)])
def test_files_are_a_remedy_where_they_would_do(recompute: str, helps: bool) -> None:
    model = {"layers": 8, "recompute": recompute}
    configuration = Configuration.model_validate({"model": model})
    cost, size = make_cost(configuration, 1, 1, CPU), EventSize(100_000, 3_000_000)
    source: Any = SimpleNamespace(name="event", folder=SimpleNamespace(path="graphs"))
    choice = routers.FittingCuts(configuration, cost, budget=3 * GIB)
    told = routers._remedy([(source, size)], choice)
    assert "no number of sectors helps on 1 rank(s), the least is " in told
    assert told.endswith("add ranks, or take hosts with more memory")
    assert (": set training.spill=FOLDER of a local disk, model.precision=bf16" in told) is helps
    if helps:
        spilling = Configuration.model_validate({"model": model, "training": {"spill": "/scratch"}})
        assert list(routers.FittingCuts(spilling, cost, choice.budget).fitting(size)) == [(1, 1)]


def test_a_host_s_memory_is_a_remedy_for_an_accelerator() -> None:
    model = {"layers": 8, "recompute": "chunk"}
    configuration = Configuration.model_validate({"model": model})
    cost, size = make_cost(configuration, 1, 1, A100), EventSize(100_000, 3_000_000)
    source: Any = SimpleNamespace(name="event", folder=SimpleNamespace(path="graphs"), size=size)
    choice = routers.FittingCuts(configuration, cost, budget=2 * GIB)
    told = routers._remedy([(source, size)], choice)
    assert "on 1 rank(s), the least is " in told
    assert ": set model.recompute=offload, model.precision=bf16" in told
    offloading = Configuration.model_validate({"model": {**model, "recompute": "offload"}})
    cost = make_cost(offloading, 1, 1, A100)
    fitting = routers.FittingCuts(offloading, cost, choice.budget).fitting(size)
    assert list(fitting) == [(1, 1)]


def test_a_host_has_room_for_the_edges_of_its_ranks() -> None:
    configuration = Configuration.model_validate({"model": {"recompute": "offload"}})
    cost, size = make_cost(configuration, 4, 4, A100), EventSize(100_000, 3_000_000, stored=4)
    source: Any = SimpleNamespace(name="event", size=size)
    cuts = [Cut(1, 1), Cut(4, 4)]
    laid: Any = SimpleNamespace(cuts=lambda: [(source, cut) for cut in cuts])
    whole, cut = cost.away_bytes(size, 1, 1), cost.away_bytes(size, 4, 4)
    assert whole > 3 * cut > 0
    # A step of one event keeps one rank at work with it whole, one of two keeps two.
    assert edges_on_host(cost, laid, 4, 1) == {"event": (min(whole, 4 * cut), max(whole, 4 * cut))}
    needed = edges_on_host(cost, laid, 4, 2)
    assert needed == {"event": (4 * cut, 2 * whole)}
    assert edges_on_host(cost, laid, 1, 2) == {"event": (cut, whole)}
    check_room(needed, 4 * cut)
    with pytest.raises(InputError, match=r"offload: the edges of event need .* at least, and may"):
        check_room(needed, 4 * cut - 1)


@pytest.mark.parametrize(("parts", "most"), [(2, 1), (4, 2), (8, 3)])
def test_what_three_ranks_would_need_is_that_of_all_of_them(parts: int, most: int) -> None:
    """Routing gives 8 sectors to 3 ranks as 3, 3 and 2, not as 4 and 4 to two of them."""
    configuration = Configuration.model_validate({"model": {"recompute": "layer"}})
    cost, size = make_cost(configuration, 3, 3, CPU), EventSize(100_000, 3_000_000)
    choice = routers.FittingCuts(configuration, cost, budget=3 * GIB)
    needed = {cut.parts: (n_bytes, cut) for n_bytes, cut in choice.by_parts(size)}
    n_bytes, cut = needed[parts]
    assert cut.most_on_a_rank == most
    stored = replace(size, stored=parts)
    routed = [one for one in chain(*choice.cuts(parts)) if one.parts == parts]
    assert n_bytes == pytest.approx(min(choice.needed(stored, one) for one in routed))


def test_only_edges_that_are_kept_can_be_spilled(tmp_path: Path) -> None:
    for settings, told in (
        ({"model": {"name": "attention"}}, "model.name=attention"),
        ({"model": {"recompute": "none"}}, "model.recompute=none"),
        ({"sampling": {"method": "wedges"}}, "sampling.method=wedges"),
    ):
        with pytest.raises(ValidationError, match=rf"training\.spill: .*{told}"):
            Configuration.model_validate({**settings, "training": {"spill": tmp_path}})
