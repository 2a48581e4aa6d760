"""Calls exported models as ACTS's GNN plugin does, and compares what they give with ours.

Shapes: N hits, E edges, F columns of x, D dimensions of an embedding.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bigtrk.api import build_tracks
from bigtrk.formats.acts.modules import EDGE_ATTR, EDGE_SCALES, Stage
from bigtrk.graphs.event_graph import EventGraph, whole_sector
from bigtrk.graphs.features import EDGE_FEATURES, as_tensor, edge_table
from bigtrk.models.mlps import Embedding
from bigtrk.models.protocol import no_exchange
from bigtrk.pipeline.trained import stages_of
from bigtrk.training.data.batch import load_features
from tests.oracle.changed_hits import changed_hits

Exported = Callable[..., Tensor]  # an exported model: ACTS's tensors -> what it gives


def open_onnx(file: Path) -> Exported:
    """Opens an ONNX file with the options of ACTS's OnnxEdgeClassifier."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]

    def run(*tensors: Tensor) -> Tensor:
        by_place = dict(zip(names, (tensor.numpy() for tensor in tensors), strict=True))
        return torch.from_numpy(session.run(None, by_place)[0])

    return run


def open_torchscript(file: Path) -> Exported:
    """Opens a TorchScript file, to be run in inference mode as ACTS does."""
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        module = torch.jit.load(file).eval()

    def run(*tensors: Tensor) -> Tensor:
        with torch.inference_mode():
            made: Tensor = module(*tensors)
        return made

    return run


OPEN = {"onnx": open_onnx, "pt": open_torchscript}


def given_x(graph: EventGraph, stage: Stage) -> Tensor:
    """Returns the columns of hits that ACTS would hand to a stage: x [N, F] float32."""
    return _scaled(graph.node_features, graph.node_feature_names, stage.columns.scales)


def given_edge_attr(graph: EventGraph) -> Tensor:
    """Returns a graph's features of edges in ACTS's units: edge_attr [E, 6] float32."""
    return _scaled(graph.edge_features, graph.edge_feature_names, EDGE_SCALES)


def _scaled(values: Tensor, names: Sequence[str], scales: Mapping[str, float]) -> Tensor:
    columns = [values[:, names.index(name)].double() / scale for name, scale in scales.items()]
    return torch.stack(columns, dim=1).float()


def as_known(graph: EventGraph, stage: Stage) -> EventGraph:
    """Returns a graph as far as x [N, F] and edge_index [2, E] tell it: hits in float32, edges
    outwards by these, in the order in which they were, and their features computed anew.
    """
    x = given_x(graph, stage).double().numpy()
    columns = {
        name: x[:, i] * scale for i, (name, scale) in enumerate(stage.columns.scales.items())
    }
    place = np.empty(len(x), dtype=np.int64)
    place[np.argsort(x[:, 0] ** 2 + x[:, 2] ** 2, kind="stable")] = np.arange(len(x))
    ends = graph.edge_index.numpy()
    ends = np.where(place[ends[0]] > place[ends[1]], ends[::-1], ends)
    return replace(
        graph,
        node_feature_names=tuple(columns),
        node_features=as_tensor(columns),
        edge_index=torch.from_numpy(ends),
        edge_feature_names=EDGE_FEATURES,
        edge_features=edge_table(columns, ends),
    )


def ours(graph: EventGraph, stage: Stage) -> Tensor:
    """Returns what a stage's trained model gives in float32: logits [E, 1] in the order of the
    graph's edges, or places [N, D].
    """
    model: Any = deepcopy(stage.model)
    features = load_features(stage.data, stage.measured)
    model.config = model.config.model_copy(update={"precision": "fp32"})
    sector = features.computed.of(whole_sector(graph))
    x, edges = features.of_nodes(sector), features.of_edges(sector)
    with torch.no_grad():
        made: Tensor = model(x, edges, sector.edge_index, len(x), no_exchange)
    if isinstance(model, Embedding):
        return made
    logits = torch.empty(graph.n_edges, 1)
    logits[sector.edge_id] = made[:, :1] if made.dim() == 2 else made[:, None]  # without pT
    return logits


def calls(graph: EventGraph, stage: Stage) -> Iterator[tuple[str, tuple[Tensor, ...], EventGraph]]:
    """Yields, for each form of a stage's model, the suffix of its files, the tensors that ACTS
    would call it with, and the graph that these tell of.
    """
    x = given_x(graph, stage)
    if isinstance(stage.model, Embedding):
        yield "", (x,), graph
        return
    yield "", (x, graph.edge_index), as_known(graph, stage)
    yield EDGE_ATTR, (x, graph.edge_index, given_edge_attr(graph)), graph


def difference(made: Tensor, expected: Tensor) -> float:
    """Returns the largest difference, relative to the largest value expected where that is above 1.

    Raises:
        AssertionError: the shapes differ, or something is no number.
    """
    assert made.shape == expected.shape, f"{list(made.shape)}, not {list(expected.shape)}"
    assert made.isfinite().all()
    if not expected.numel():
        return 0.0
    return float((made - expected).abs().max() / expected.abs().max().clamp(min=1.0))


def parity(stages: Sequence[Stage], models: Path, graphs: Iterable[EventGraph]) -> dict[str, float]:
    """Returns the largest `difference` of what the files in `models`, exported of these stages,
    give from what their models do, by the kind of file: onnx, pt.
    """
    worst, opened = dict.fromkeys(OPEN, 0.0), cache(_open)
    for graph in graphs:
        for stage in stages:
            for suffix, tensors, told in calls(graph, stage):
                expected = ours(told, stage)
                for kind in OPEN:
                    made = opened(models / f"{stage.name}{suffix}.{kind}")(*tensors)
                    worst[kind] = max(worst[kind], difference(made, expected))
    return worst


def changed_tracks(
    run: Path,
    models: Path,
    graphs: Iterable[EventGraph],
    builder: str,
    score_cut: float | None = None,
) -> dict[str, float]:
    """Returns the share of hits whose track is of other hits by the scores of exported files than
    by those of the trained model of edges, the last of a run or a pipeline: by the kind of file and
    the suffix of its form, such as onnx and onnx_edge_attr.

    builder, score_cut: as build_tracks takes them.
    """
    stage, opened = stages_of(run)[-1], cache(_open)
    n_hits, changed = 0, Counter[str]()

    def tracks(graph: EventGraph, logits: Tensor) -> NDArray[np.int64]:
        return build_tracks(graph, logits[:, 0].double().sigmoid(), builder, score_cut)

    for graph in graphs:
        expected = tracks(graph, ours(graph, stage))
        n_hits += len(expected)
        for suffix, tensors, _ in calls(graph, stage):
            for kind in OPEN:
                logits = opened(models / f"{stage.name}{suffix}.{kind}")(*tensors)
                changed[kind + suffix] += changed_hits(expected, tracks(graph, logits))
    return {form: count / max(n_hits, 1) for form, count in changed.items()}


def _open(file: Path) -> Exported:
    return OPEN[file.suffix[1:]](file)
