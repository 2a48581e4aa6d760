"""Passes by CUDA graphs: their padding changes no bit. Without a GPU a stand-in repeats them."""

from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from bigtrk.models.edges import fused, schedule
from bigtrk.models.protocol import no_exchange
from bigtrk.parallel.process_group import process_group
from bigtrk.training import cuda_graphs
from bigtrk.training.settings import Configuration
from tests.distributed.ranks import ALONE
from tests.models.fused import DEVICE, Repeater, usable_everywhere
from tests.models.graphs import gradients, make_graph
from tests.models.test_interaction_gnn import make_model

pytest.importorskip("triton")


def inputs(n_nodes: int, n_edges: int, device: Any = "cpu") -> tuple[Any, ...]:
    x, edge_features, edge_index = (one.to(device) for one in make_graph(n_nodes, n_edges))
    return x.float(), edge_features.float(), edge_index, n_nodes, no_exchange


@pytest.mark.gpu
@pytest.mark.usefixtures("interpreted_bf16")
@pytest.mark.parametrize("options", [{"pt_head": True}, {"mlp_layers": 3, "concatenate": False}])
def test_padding_changes_no_bit(monkeypatch: Any, options: Any) -> None:
    monkeypatch.setattr(fused, "usable", usable_everywhere)
    monkeypatch.setattr(schedule, "PROGRAMS", 32)  # so that each has several tiles
    options |= {"hidden": 16, "layers": 2, "precision": "bf16"}
    model, ordinary = (make_model(**options).to(DEVICE) for _ in range(2))
    recorder: Any = cuda_graphs.Recorder(DEVICE) if DEVICE.type == "cuda" else Repeater()
    passes = cuda_graphs.SmallPasses(model, recorder, cuda_graphs.steps_of(model) or (0, 0))
    model.forward = passes  # type: ignore[method-assign]
    for size in ((5, 20), (7, 31), (20, 70)):
        found, wanted = (one(*inputs(*size, DEVICE)) for one in (model, ordinary))
        assert torch.equal(found, wanted)
        of_found, of_wanted = gradients(model, found), gradients(ordinary, wanted)
        assert all(torch.equal(of_found[name], one) for name, one in of_wanted.items())
    assert passes.turn == 6, "all three were replayed"


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("bigtrk.console._warned", set())
    model, recorder = make_model(), Repeater()
    model.forward = cuda_graphs.SmallPasses(model, recorder, (64, 64))  # type: ignore
    return model


def test_gradients_of_micro_steps_add_up_under_ddp(plain: Any) -> None:
    ordinary, one, other = make_model(), inputs(9, 30), inputs(7, 25)
    with process_group(ALONE):
        replica = DistributedDataParallel(plain, gradient_as_bucket_view=True)
        with replica.no_sync():
            replica(*one).sum().backward()
        replica(*other).sum().backward()
    (ordinary(*one).sum() + ordinary(*other).sum()).backward()
    for found, wanted in zip(plain.parameters(), ordinary.parameters(), strict=True):
        torch.testing.assert_close(found.grad, wanted.grad)
    assert len(plain.forward._known) == 1, "both are of one bucket"


def test_what_is_not_replayed(plain: Any, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(cuda_graphs, "MOST_EDGES", 40)
    monkeypatch.setattr(cuda_graphs, "MOST_BUCKETS", 1)
    graph, known = inputs(9, 30), plain.forward._known
    torch.no_grad()(plain)(*graph)
    for others in ((*graph[:4], lambda owned: owned), inputs(9, 41), inputs(64, 30)):  # no room
        plain(*others)
    first, *_ = plain(*graph), plain(*inputs(30, 40)), plain(*graph)
    assert len(known) == 1, "the first bucket alone"
    with pytest.raises(RuntimeError, match="another pass"):
        first.sum().backward()
    assert capsys.readouterr().err.count("run without CUDA graphs") == 1


def test_no_node_of_the_padding_has_many_edges(plain: Any) -> None:
    for n_nodes, is_replayed in ((63, False), (62, True)):  # of 64, for 288 edges
        plain(*inputs(n_nodes, 260))
        assert bool(plain.forward._known) == is_replayed
    [recorded] = plain.forward._known.values()
    assert recorded._edge_index[0].bincount(minlength=64)[62:].tolist() == [12, 16]


def test_what_fails_is_said_once(plain: Any, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(Repeater, "record", lambda *_: 1 / 0)
    for _ in range(2):
        assert torch.equal(plain(*inputs(9, 30)), make_model()(*inputs(9, 30)))
    assert capsys.readouterr().err.count("recording failed: division by zero") == 1
    cuda_graphs.use_graphs(Configuration(), plain, torch.device("cpu"))
    assert "they need an NVIDIA GPU" in capsys.readouterr().err


def test_buckets_cross_no_step() -> None:
    for n in range(1, 200_001, 7):
        assert n <= cuda_graphs.bucket(n, 0, 512) <= min(max(n * 1.125, n + 15), -(-n // 512) * 512)
