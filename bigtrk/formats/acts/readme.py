"""The README.md beside exported models: what they read, and the ACTS configuration of them."""

from collections.abc import Sequence

from bigtrk.formats.acts.columns import EDGE_SCALES
from bigtrk.formats.acts.configuration import (
    ACTS_NAMES,
    RADIUS,
    configuration,
    joined_scales,
    written_scale,
)
from bigtrk.formats.acts.forms import EDGE_ATTR, OUTPUT
from bigtrk.formats.acts.model_files import OPSET
from bigtrk.formats.acts.stage import Stage
from bigtrk.models.mlps import Embedding

README = "README.md"
TITLE = "# Models for ACTS, exported by bigtrk\n"
_TEXT = """
| file | reads | gives |
|---|---|---|
{files}

Each is there as `.onnx` (opset {opset}, standard operators, one output called `{output}`) and as
`.pt` (TorchScript). x, edge_attr and what is given are float32, edge_index is int64. N and E differ
from call to call and may be 0. Models of edges give logits: ACTS applies the sigmoid itself.

| file | model | features of hits | features of edges |
|---|---|---|---|
{models}

The models make these features of x, and bring them to the scales that they were trained with.

## Columns

x has these columns, in this order, each divided by its scale:

| column | scale | of ACTS |
|---|---|---|
{columns}
"""
_EDGES = """
edge_attr has {attributes}, computed from the scaled columns, as
ACTS's `ModuleMapCuda` does: phi wraps at 1, and the two slopes are 0 where dr is 0. Models that
read it take edges as they come, from the inner hit to the outer one. Those that do not, for graphs
of `TorchMetricLearning`, order the two hits of an edge by their distance from the origin, and
compute the same themselves.

## Cuts

| file | keep edges with a score above |
|---|---|
{cuts}
"""
_RADIUS = """
Hits are joined within {radius!r} of each other in the embedding{why}.
"""
_CONFIGURATION = """
## Configuration

```python
{code}```

All edges of an event go through a model at once (`nChunks=1`), and in one direction.
"""


def readme(stages: Sequence[Stage]) -> str:
    """Writes the text for models that are exported together."""
    files = [row for stage in stages for row in _files(stage)]
    columns = [_column(name, scale) for name, scale in joined_scales(stages).items()]
    text = TITLE + _TEXT.format(
        files="\n".join(files),
        models="\n".join(map(_model, stages)),
        columns="\n".join(columns),
        opset=OPSET,
        output=OUTPUT,
    )
    cuts = [f"| {stage.name} | {stage.cut!r} |" for stage in stages if stage.cut is not None]
    if cuts:
        text += _EDGES.format(attributes=", ".join(EDGE_SCALES), cuts="\n".join(cuts))
    for stage in stages:
        if isinstance(stage.model, Embedding):
            text += _radius(stage.radius)
    return text + _CONFIGURATION.format(code=configuration(stages))


def _files(stage: Stage) -> list[str]:
    x = f"x [N, {len(stage.columns.names)}]"
    if isinstance(stage.model, Embedding):
        return [f"| {stage.name} | {x} | places [N, {stage.model.config.dimensions}] |"]
    ends = f"{x}, edge_index [2, E]"
    return [
        f"| {stage.name} | {ends} | logits [E, 1] |",
        f"| {stage.name}{EDGE_ATTR} | {ends}, edge_attr [E, {len(EDGE_SCALES)}] | logits [E, 1] |",
    ]


def _model(stage: Stage) -> str:
    edges = [] if isinstance(stage.model, Embedding) else stage.data.edge_features
    read = [", ".join(names) for names in (stage.data.node_features, edges)]
    return f"| {stage.name} | {type(stage.model).__name__} | {read[0]} | {read[1]} |"


def _column(name: str, scale: float) -> str:
    known = ACTS_NAMES.get(name)
    return f"| {name} | {written_scale(scale)} | {f'NodeFeature.{known}' if known else ''} |"


def _radius(radius: float | None) -> str:
    if radius is None:
        return _RADIUS.format(radius=RADIUS, why=", unless you know better: no validation chose it")
    return _RADIUS.format(radius=radius, why="")
