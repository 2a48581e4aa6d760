"""Stores of edge states: the same bits wherever the rows are, and nothing is left behind."""

import gc
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from bigtrk.errors import InputError
from bigtrk.models.edges import states, stores
from bigtrk.models.edges.states import EdgeStore, MemoryStore
from bigtrk.models.edges.stores import FilePlace, FileStore, HostStore, StreamedStore
from bigtrk.models.interaction_gnn import InteractionGNN
from bigtrk.models.protocol import no_exchange
from bigtrk.models.settings import InteractionGNNConfig
from tests.models.graphs import Cut, F, G, gradients, make_graph
from tests.mounts import mounted
from tests.open_files import open_files

CPU = torch.device("cpu")
TYPES = [torch.float32, torch.bfloat16, torch.float64]


STORES = ["files", "memory and files", "host"]


@pytest.fixture(params=STORES)
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> StreamedStore:
    """A store whose blocks are as small as they can be, on a host of blocks that span pieces."""
    monkeypatch.setattr(stores, "PIECE_BYTES", 100_000)
    made: dict[str, StreamedStore] = {
        "files": FileStore(tmp_path),
        "memory and files": FileStore(tmp_path, memory=2_500_000),
        "host": HostStore(),
    }
    made[request.param]._block_bytes = 1
    return made[request.param]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n_rows", [0, 2048, 20_001])
def test_rows_come_back_as_they_went(store: StreamedStore, n_rows: int, dtype: torch.dtype) -> None:
    values = torch.randn(n_rows, 7).to(dtype)
    kept = store.new(n_rows, 7, dtype, CPU)
    for block in store.blocks(n_rows, [], [kept]):
        block.made[0].copy_(values[block.rows])
    found = [block.read[0].clone() for block in store.blocks(n_rows, [kept], [])]
    assert torch.equal(torch.cat([values[:0], *found]), values)


def test_rows_may_be_read_and_made_in_one_pass(store: StreamedStore) -> None:
    values, other = torch.randn(15_000, 3), torch.randn(15_000, 3)
    a, b = (store.new(15_000, 3, torch.float32, CPU) for _ in range(2))
    for block in store.blocks(15_000, [], [a, b]):
        for made, given in zip(block.made, (values, other), strict=True):
            made.copy_(given[block.rows])
    for block in store.blocks(15_000, [a, b], [a]):
        block.made[0].copy_(block.read[0] * 2 + block.read[1])
    found = torch.cat([block.read[0].clone() for block in store.blocks(15_000, [a], [])])
    assert torch.equal(found, values * 2 + other)


def trained(
    store: EdgeStore, steps: int = 2, **options: Any
) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
    """Logits and gradients of steps on a graph of 9,000 edges, and those of an empty one."""
    torch.manual_seed(0)
    config = InteractionGNNConfig(**{"hidden": 12, "layers": 3, **options})
    model = InteractionGNN(config, F, G, pt_head=config.shared_weights)
    model.keep_edges_in(store)
    x, edge_features, edge_index = make_graph(300, 9000)
    given = x.float(), edge_features.float(), edge_index
    logits, found = [], []
    for n_edges in (9000, 5000, 0, 9000)[:steps]:
        made = model(given[0], given[1][:n_edges], given[2][:, :n_edges], len(x), no_exchange)
        logits.append(made.detach())
        found.append(gradients(model, made))
    with torch.no_grad():
        logits.append(model(*given, len(x), no_exchange))
    return logits, found


OPTIONS: list[dict[str, Any]] = [
    {},
    {"precision": "bf16"},
    {"concatenate": False},
    {"in_out": False, "layers": 1},
    {"shared_weights": True, "mlp_layers": 1},
]


# Each store with the default, and each option in one of them.
TRAINED = [
    *((store, OPTIONS[0]) for store in STORES),
    *zip(itertools.cycle(STORES), OPTIONS[1:], strict=False),
]


@pytest.mark.parametrize(("store", "options"), TRAINED, indirect=["store"], ids=str)
def test_training_and_scoring_give_the_same_bits(
    store: StreamedStore, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "CPU_BYTES", 4 * 12 * 100)  # chunks within the blocks
    expected, wanted = trained(MemoryStore(), 4, **options)
    logits, found = trained(store, 4, **options)
    assert all(torch.equal(a, b) for a, b in zip(logits, expected, strict=True))
    for of_step, of_memory in zip(found, wanted, strict=True):
        assert of_step.keys() == of_memory.keys()
        assert all(torch.equal(of_step[name], of_memory[name]) for name in of_memory)


def test_sectors_of_one_rank_share_a_store(
    store: StreamedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are trained layer by layer, each in files of its own."""
    monkeypatch.setattr(states, "CPU_BYTES", 8 * 6 * 100)
    config = InteractionGNNConfig(hidden=6, layers=3)
    model, cut = InteractionGNN(config, F, G).double(), Cut(make_graph(60, 9000))
    expected = cut.merged(model.forward_all(cut.sectors, cut.exchange))
    wanted = gradients(model, expected)
    model.keep_edges_in(store)
    made = cut.merged(model.forward_all(cut.sectors, cut.exchange))
    found = gradients(model, made)
    assert torch.equal(made, expected)
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_files_have_no_names_are_used_again_and_closed(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    trained(store, 2)
    assert not list(tmp_path.iterdir())
    held = len(open_files(tmp_path))
    trained(store, 4)
    assert len(open_files(tmp_path)) == held == 4  # three states, and one gradient more
    del store
    gc.collect()
    assert not open_files(tmp_path)


def test_what_fits_the_memory_makes_no_file(tmp_path: Path) -> None:
    store = FileStore(tmp_path, memory=1e9)
    trained(store, 2)
    assert not open_files(tmp_path)
    store._memory = 60_000
    kept = store.new(1000, 10, torch.float32, CPU)
    assert isinstance(kept, Tensor)
    assert isinstance(store.new(1000, 10, torch.float32, CPU), FilePlace)
    del kept
    assert isinstance(store.new(1000, 10, torch.float32, CPU), Tensor)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    with mounted(tmp_path / "small", "size=1m") as folder:
        yield folder


_FULL = (
    r"training\.spill=.*small: no room for the edges.*No space left on device: "
    r"0\.037 GiB are needed, but 0\.00\d GiB are free.* on a working local disk with enough free"
)


def test_a_full_disk_ends_in_one_line(small_disk: Path) -> None:
    store = FileStore(small_disk)
    with pytest.raises(InputError, match=_FULL):
        store.new(10**6, 10, torch.float32, CPU)
    trained_on_it = store.new(10, 10, torch.float32, CPU)  # a cache that cannot be passed by
    for block in store.blocks(10, [], [trained_on_it]):
        block.made[0].fill_(3)
    assert [block.read[0].sum().item() for block in store.blocks(10, [trained_on_it], [])] == [300]


@pytest.mark.parametrize(
    ("call", "made", "words"),
    [
        ("posix_fallocate", OSError(2, "No such file"), r"training\.spill=.*no room for the edges"),
        ("preadv", lambda *_: 0, r"edges cannot be read \(a file ends too early\)"),
        ("pwritev", OSError(5, "Input/output error"), r"training\.spill=.*Input/output error"),
    ],
)
def test_a_disk_that_fails_ends_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, made: Any, words: str
) -> None:
    failing = Mock(side_effect=made)
    monkeypatch.setattr(os, call, failing)
    with pytest.raises(InputError, match=words):
        trained(FileStore(tmp_path))
    assert failing.called
