"""Exported models give what ours do, in every form, of graphs of any size and order."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray

from bigtrk.formats.acts import modules
from bigtrk.formats.acts.modules import EDGE_ATTR, OPSET, Stage, edge_attributes, forms_of
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.models.mlps import Embedding
from tests.formats.acts.stages import MODELS, hits_and_edges, stage
from tests.oracle.as_acts import OPEN, as_known, calls, difference, given_edge_attr, given_x, ours
from tests.programs import CHECKOUT

CLOSE = 1e-5
SIZES = ((0, 0), (5, 0), (1, 1), (2, 1), (3, 2), (120, 1000))


@pytest.fixture(scope="module", params=MODELS)
def exported(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Stage, Path]:
    """A model and the folder of its files."""
    made, folder = stage(MODELS[request.param]), tmp_path_factory.mktemp("exported")
    write(made, folder)
    return made, folder


def write(made: Stage, folder: Path) -> None:
    for form in forms_of(made):
        modules.write_onnx(form, folder / f"model{form.suffix}.onnx")
        modules.write_torchscript(form, folder / f"model{form.suffix}.pt")


def check(made: Stage, folder: Path, graphs: Iterable[EventGraph]) -> None:
    """Compares files with their model: each is opened once, and called with graph after graph, as
    ACTS does.
    """
    opened = {file.name: OPEN[file.suffix[1:]](file) for file in folder.iterdir()}
    for graph in graphs:
        for suffix, tensors, told in calls(graph, made):
            expected = ours(told, made)
            for kind in OPEN:
                found = opened[f"model{suffix}.{kind}"](*tensors)
                assert difference(found, expected) < CLOSE, f"{kind}{suffix}, {len(expected)} rows"


def test_every_option_and_size(exported: tuple[Stage, Path]) -> None:
    """Small graphs come again after the large one: what was compiled for it is not for them."""
    sizes = (*SIZES, *SIZES[:4])
    check(*exported, (hits_and_edges(*size, seed) for seed, size in enumerate(sizes)))


def test_files_are_of_standard_operators_and_name_their_tensors(
    exported: tuple[Stage, Path],
) -> None:
    """ACTS gives ONNX its tensors by place, TensorRT by these names."""
    made, folder = exported
    bare = ["x"] if isinstance(made.model, Embedding) else ["x", "edge_index"]
    names = {"": bare, EDGE_ATTR: [*bare, "edge_attr"]}
    files = sorted(folder.glob("*.onnx"))
    assert len(files) == len(bare)
    for file in files:
        model = onnx.load(file)
        onnx.checker.check_model(model)
        assert [(one.domain, one.version) for one in model.opset_import] == [("", OPSET)]
        assert {node.domain for node in model.graph.node} == {""}
        assert not model.functions
        assert [one.name for one in model.graph.input] == names[file.stem.removeprefix("model")]
        assert [one.name for one in model.graph.output] == ["output"]
        assert len(model.graph.output[0].type.tensor_type.shape.dim) == 2


def test_hits_alone_have_their_edges_in_any_order(tmp_path: Path) -> None:
    """The form without edge_attr gives an edge its logit whatever its direction and its place."""
    made, graph = stage(MODELS["interaction"]), hits_and_edges(120, 1000)
    write(made, tmp_path)
    expected, x = ours(as_known(graph, made), made), given_x(graph, made)
    order = torch.randperm(1000, generator=torch.Generator().manual_seed(0))
    ends = graph.edge_index[:, order]
    ends[:, ::2] = ends[:, ::2].flip(0)
    for kind, open_file in OPEN.items():
        found = open_file(tmp_path / f"model.{kind}")(x, ends)
        assert difference(found, expected[order]) < CLOSE, kind


def acts_edge_attr(x: NDArray[np.float32], ends: NDArray[np.int64]) -> NDArray[np.float32]:
    """Computes features of edges as ACTS's kernel does, edge by edge in float32."""
    pi, rows = np.float32(np.pi), []
    for source, target in ends.T:
        dr, dphi, dz, deta = x[target, :4] - x[source, :4]
        angle = pi * dphi
        if angle > pi:
            angle -= np.float32(2) * pi
        if angle < -pi:
            angle += np.float32(2) * pi
        dphi, slope, rslope = angle / pi, np.float32(0), np.float32(0)
        if dr != 0:
            slope = np.clip(dphi / dr, np.float32(-100), np.float32(100))
            rslope = np.float32(0.5) * (x[target, 0] + x[source, 0]) * slope
        rows.append((dr, dphi, dz, deta, slope, rslope))
    return np.array(rows, dtype=np.float32)


def test_units_of_edge_attr_are_those_of_acts() -> None:
    """Ours in ACTS's units, those that the form without them computes, and ACTS's kernel agree."""
    made, graph = stage(MODELS["interaction"]), hits_and_edges(120, 1000)
    x, ends = given_x(graph, made), graph.edge_index
    of_acts = torch.from_numpy(acts_edge_attr(x.numpy(), ends.numpy()))
    inside, stored = edge_attributes(x, ends[0], ends[1]), given_edge_attr(graph)
    dr = of_acts[:, :1].abs()
    # float32 knows a place to 1e-7 of these units; the slopes divide by dr.
    divided = torch.where(torch.arange(6) >= 4, 1 + 1 / dr.clamp(min=1e-9), 1.0)
    allowed = 1e-6 * (divided + of_acts.abs())
    for found in (inside, stored):
        assert ((found - of_acts).abs() <= allowed).all()
    assert (of_acts[dr[:, 0] == 0][:, 4:] == 0).all()
    assert (dr == 0).sum() > 100
    turned = (x[ends[1], 1] - x[ends[0], 1]).abs() > 1
    assert turned.sum() > 50
    assert of_acts[:, 1].abs().max() <= 1
    assert of_acts[:, 4].abs().max() == 100


def test_files_do_not_tell_where_they_were_made(exported: tuple[Stage, Path]) -> None:
    for file in exported[1].iterdir():
        content = file.read_bytes()
        assert str(CHECKOUT).encode() not in content
        assert str(Path(torch.__file__).parent).encode() not in content
