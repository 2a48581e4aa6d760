"""The folder that edges are spilled to: what is refused before a training, and the messages."""

import gc
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bigtrk.cost.event_size import EventSize
from bigtrk.cost.machines import A100, CPU, Machine
from bigtrk.disk import local_files
from bigtrk.errors import InputError
from bigtrk.models.edges.stores import FileStore
from bigtrk.models.protocol import no_exchange
from bigtrk.models.settings import EdgeMLPConfig, InteractionGNNConfig
from bigtrk.parallel.process_group import process_group
from bigtrk.parallel.ranks import FILLED, discover
from bigtrk.parallel.routing import WHOLE, Cut, Router
from bigtrk.training import fitting, spill
from bigtrk.training.data.input_files import InputFiles
from bigtrk.training.fitting import make_cost
from bigtrk.training.settings import Configuration
from bigtrk.training.spill import (
    HeldSectors,
    LaidEvents,
    Need,
    SpillFolder,
    check_folder,
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


def test_folders_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    check_folder(SpillFolder(tmp_path))
    with pytest.raises(InputError, match=r"--spill=.*none: no such folder; make it on a local"):
        check_folder(SpillFolder(tmp_path / "none"))
    with (
        mounted(tmp_path / "disk", "ro") as folder,
        pytest.raises(InputError, match=r"--spill=.*disk: cannot be written to; name a folder of"),
    ):
        check_folder(SpillFolder(folder))


MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:40 / {folder}/far\\040away rw shared:2 - nfs4 server:/home rw
31 30 0:41 / {folder}/far\\040away/near rw - xfs /dev/nvme0 rw
32 30 0:41 / {folder}/shm rw - tmpfs tmpfs rw
"""


def test_folders_on_a_network_or_in_memory_are_known_by_their_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS.format(folder=tmp_path))
    names = (".", "far away", "far away/home/me", "far away/near/x", "far away!")
    found = [local_files.file_system(tmp_path / name, mounts) for name in names]
    assert found == ["ext4", "nfs4", "nfs4", "xfs", "ext4"]
    assert local_files.file_system(tmp_path, tmp_path / "none") is None
    assert local_files.file_system(tmp_path / "shm/me", mounts) == "tmpfs"
    for kind in ("lustre", "tmpfs"):
        monkeypatch.setattr(spill, "file_system", lambda _, kind=kind: kind)
        check_folder(SpillFolder(tmp_path))
    said = capsys.readouterr().err
    assert "lies on a network file system (lustre), which is slower" in said
    assert "lies in memory (tmpfs), so it saves no memory; name" in said


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
    assert "up to 9.5 GiB of edges go to the folder" in capsys.readouterr().err
    assert store._memory == 5 * GIB
    tiny = Need("tiny", 1 * GIB, 2 * GIB, 1)
    open_spill(folder, ranks, [tiny], 3 * GIB - 2**24)
    assert "up to 0.016 GiB of edges go to the folder" in capsys.readouterr().err
    assert large.spilled(100 * GIB) == 0
    assert replace(large, inputs=GIB).spilled(100 * GIB) == GIB
    assert large.spilled(0) == large.edges
    # Each alone would fit, but the store keeps memory free for the nodes of the second.
    edges, nodes = Need("edges", GIB, 5 * GIB, GIB), Need("nodes", 8 * GIB, GIB, GIB)
    monkeypatch.setattr(spill, "free_bytes", lambda _: 2 * GIB)
    with pytest.raises(InputError, match=r"2\.0 GiB free, and the edges of edges need 3\.0 GiB"):
        open_spill(folder, ranks, [edges, nodes], 10 * GIB)


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


def test_only_the_interaction_gnn_on_a_cpu_scores_with_files(tmp_path: Path) -> None:
    gpu: Any = SimpleNamespace(device=torch.device("cuda"))
    folder, held = SpillFolder(tmp_path), {"event": HeldSectors(1000)}
    for config, ranks, told in (
        (EdgeMLPConfig(), discover(), "--spill: needs model.name=interaction"),
        (InteractionGNNConfig(), gpu, "--spill: .*not on cuda; .*=offload"),
    ):
        with pytest.raises(InputError, match=told):
            spill_scoring(config.build(4, 6, pt_head=False), folder, ranks, held)
    configuration = Configuration.model_validate({"training": {"spill": tmp_path}})
    model = InteractionGNNConfig().build(4, 6, pt_head=False)
    with pytest.raises(InputError, match=r"training\.spill: .*not on cuda; .*=offload"):
        spill_edges(model, configuration, gpu, NONE, NONE)


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
    taken = sum(file.size for file in model._store.files._unused)
    assert taken == tensors * n_edges * 8 * (2 if options.get("precision") else 4)
    assert open_files(tmp_path)
    monkeypatch.setattr(spill, "free_bytes", lambda _: taken)
    spill_scoring(model, *asked)
    monkeypatch.setattr(spill, "free_bytes", lambda _: taken - 1)
    with pytest.raises(InputError, match=r"--spill=.*GiB free, and the edges of event need"):
        spill_scoring(model, *asked)


@pytest.mark.parametrize(
    ("recompute", "machine", "gib", "remedy"),
    [
        ("chunk", CPU, 1.2, "set training.spill=FOLDER of a local disk, or "),
        ("chunk", CPU, 0.2, ""),
        ("none", CPU, 3.5, "set model.recompute=chunk, or "),
        ("chunk", A100, 3, "set model.recompute=offload or model.precision=bf16, or "),
    ],
)
def test_a_remedy_names_the_settings_that_fit(
    recompute: str, machine: Machine, gib: float, remedy: str
) -> None:
    model = {"layers": 2, "recompute": recompute}
    configuration = Configuration.model_validate({"model": model})
    cost, size = make_cost(configuration, 1, 1, machine), EventSize(100_000, 3_000_000)
    source: Any = SimpleNamespace(name="event", folder=SimpleNamespace(path="graphs"))
    choice = fitting.FittingCuts(configuration, cost, budget=gib * GIB)
    told = fitting.remedy([(source, size)], choice)
    assert "no number of sectors helps on 1 rank, the least is " in told
    assert told.endswith(f": {remedy}lower model.hidden, add ranks, or take hosts with more memory")


def test_a_host_has_room_for_the_edges_of_its_ranks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    size = EventSize(100_000, 3_000_000, stored=4)
    source: Any = SimpleNamespace(name="event", size=size)
    laid: Any = SimpleNamespace(cuts=lambda: [(source, Cut(1, 1)), (source, Cut(4, 4))])
    monkeypatch.setattr(spill, "find_machine", lambda _: A100)

    def check(local_size: int, per_step: int, room: float) -> str:
        gpus: Any = SimpleNamespace(
            device=torch.device("cuda"), world_size=4, local_size=local_size, is_first=True
        )
        training = {"events_per_step": per_step}
        content = {"model": {"recompute": "offload"}, "training": training}
        monkeypatch.setattr(spill, "memory_bytes", lambda: (room + 1) / FILLED)
        with process_group(ALONE):
            spill.check_host_memory(Configuration.model_validate(content), gpus, laid)
        return capsys.readouterr().out

    cost = make_cost(Configuration.model_validate({"model": {"recompute": "offload"}}), 4, 4, A100)
    whole, cut = cost.away_bytes(size, 1, 1), cost.away_bytes(size, 4, 4)
    assert whole > 3 * cut > 0
    # A step of one event keeps one rank at work with it whole, one of two keeps two.
    for local_size, per_step, at_work in ((4, 1, (1, 4)), (4, 2, (2, 4)), (1, 2, (1, 1))):
        taken = [ranks * n_bytes for ranks, n_bytes in zip(at_work, (whole, cut), strict=True)]
        told = f"edges take up to {spill.gib(max(taken))} GiB of each host's memory"
        assert told in check(local_size, per_step, min(taken))
        with pytest.raises(InputError, match=r"offload: the edges of event need at least .*, but"):
            check(local_size, per_step, min(taken) - 2)
