"""The parts of acorn's file that an imported graph keeps, so that it can be handed back as it was.

It lies beside the graph, in a section of its file: the columns as acorn had them, in its precision
and by its newer names, which edges were turned, and plain values such as config. Left out is what
the graph has (edges, their truth), and the features of edges, which acorn computes where a file has
none.

Shapes: N hits, E edges.
"""

from dataclasses import dataclass
from typing import Any

import torch
import yaml
from torch import Tensor

from bigtrk.disk.safe_yaml import parse_yaml
from bigtrk.errors import InputError
from bigtrk.formats.acorn.graphs.columns import AcornColumns
from bigtrk.formats.acorn.graphs.names import EDGE_COLUMNS, EDGES, HITS, TRUE_EDGES, TRUE_MAP
from bigtrk.graphs.event_graph import EventGraph, Section
from bigtrk.graphs.storage.tensor_files import SectionFile

SECTION = "acorn"
FOLDER = "acorn_folder"  # in a record: such as trainset, where a graph goes back to
_COLUMN = "column/"
_BFLOAT16 = "bfloat16/"  # the bits of such a column, as numpy, with which files are read, has none
_TURNED = "turned"
_PLAIN = "plain"
_IN_GRAPH = ("edge_index", *(EDGES + name for name in EDGE_COLUMNS))


@dataclass(frozen=True)
class AcornSource:
    """The columns that acorn had of a graph. turned [E] bool: edges whose ends were exchanged."""

    tensors: dict[str, Tensor]
    turned: Tensor
    plain: dict[str, Any]

    def columns(self, graph: EventGraph) -> dict[str, Any]:
        """Returns acorn's columns of the graph by their newer names, its edges as acorn had them:
        in the same order and directions.
        """
        edges = torch.where(self.turned, graph.edge_index.flip(0), graph.edge_index)
        truth = {} if graph.y is None else {f"{EDGES}y": graph.y}
        return {"config": [], **self.plain, "edge_index": edges, **truth, **self.tensors}


def kept_columns(columns: AcornColumns, turned: Tensor) -> Section:
    """Returns the section that keeps what acorn knew: turned [E] bool, as in AcornSource."""
    kept = {name: one for name, one in columns.tensors.items() if name not in _IN_GRAPH}
    if f"{EDGES}y" in kept and kept[f"{EDGES}y"].dtype is torch.bool:
        del kept[f"{EDGES}y"]
    text = yaml.safe_dump(columns.plain, sort_keys=False).encode()
    plain = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    return {**dict(map(_kept, kept, kept.values())), _TURNED: turned, _PLAIN: plain}


def _kept(name: str, column: Tensor) -> tuple[str, Tensor]:
    """Returns the name and the values under which a column is kept."""
    if column.dtype is torch.bfloat16:
        return _BFLOAT16 + name, column.contiguous().view(torch.int16)
    return _COLUMN + name, column


def _kept_columns(content: Section) -> dict[str, Tensor]:
    """Returns the columns that are kept in a section, by their names."""
    columns = {}
    for name, tensor in content.items():
        if name.startswith(_COLUMN):
            columns[name.removeprefix(_COLUMN)] = tensor
        elif name.startswith(_BFLOAT16):
            columns[name.removeprefix(_BFLOAT16)] = tensor.view(torch.bfloat16)
    return columns


def thinned_section(opened: SectionFile, keep: Tensor) -> dict[str, Section]:
    """Returns what acorn knew of the graph that only the edges keep [E] bool are left of, as the
    section of its file; none of a graph from elsewhere. Columns that are of edges by their length
    alone are left out.

    Raises:
        InputError: as read_source.
    """
    source = read_source(opened)
    if source is None:
        return {}
    n_edges, tensors = len(keep), {}
    for name, column in source.tensors.items():
        if name == TRUE_MAP:
            tensors[name] = _renumbered(column, keep)
        elif name.startswith((HITS, TRUE_EDGES)) or n_edges not in column.shape:
            tensors[name] = column
        elif name.startswith(EDGES):
            tensors[name] = column[keep] if len(column) == n_edges else column[..., keep]
    columns = AcornColumns(opened.path, tensors, source.plain)
    return {SECTION: kept_columns(columns, source.turned[keep])}


def _renumbered(edge_of: Tensor, keep: Tensor) -> Tensor:
    """Returns which of the edges that are kept those are that had the numbers edge_of, else -1."""
    number = torch.cat([torch.where(keep, keep.cumsum(0) - 1, -1), torch.tensor([-1])])
    known = (edge_of >= 0) & (edge_of < len(keep))
    return number[edge_of.long().where(known, -1)]


def read_source(opened: SectionFile) -> AcornSource | None:
    """Reads what acorn knew of a graph from the graph's file; None of a graph from elsewhere.

    Raises:
        InputError: the section is damaged.
    """
    if SECTION not in opened.digests:
        return None
    content = opened.read(SECTION)
    remedy = "import acorn's graphs again"
    turned, text = content.get(_TURNED), content.get(_PLAIN)
    if turned is None or text is None or turned.shape != (opened.record["edges"],):
        raise InputError(f"{opened.path}: does not say what acorn knew of its graph; {remedy}")
    try:
        plain = parse_yaml(text.numpy().tobytes().decode())
        assert isinstance(plain, dict)
    except (ValueError, AssertionError):
        raise InputError(f"{opened.path}: acorn's config cannot be read; {remedy}") from None
    return AcornSource(_kept_columns(content), turned, plain)
