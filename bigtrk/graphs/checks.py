"""Checks of the tensors of a stored graph or sector, so that no index leads outside."""

import torch
from torch import Tensor

from bigtrk.errors import InputError
from bigtrk.graphs.storage.tensor_files import Section

# Name -> type, and a letter for each dimension: N nodes, E edges, F and G features of them, P
# particles, S rows sent; a digit stands for itself.
Layout = dict[str, tuple[torch.dtype, str]]

LABELS: Layout = {
    "y": (torch.bool, "E"),
    "hit_id": (torch.int64, "N"),
    "particle_id": (torch.int64, "N"),
    "hit_weight": (torch.float64, "N"),
    "modules": (torch.int64, "N3"),
}
FEATURES: Layout = {
    "node_features": (torch.float32, "NF"),
    "edge_features": (torch.float32, "EG"),
}
GRAPH: Layout = {**FEATURES, "edge_index": (torch.int64, "2E"), **LABELS}
SECTOR: Layout = {
    **FEATURES,
    "edge_index": (torch.int32, "2E"),
    "node_id": (torch.int32, "N"),
    "edge_id": (torch.int32, "E"),
    "send_index": (torch.int32, "S"),
    **LABELS,
}
PARTICLES: Layout = {
    "particle_id": (torch.int64, "P"),
    "pt": (torch.float32, "P"),
    "eta": (torch.float32, "P"),
    "vertex": (torch.float32, "P3"),
    "nhits": (torch.int64, "P"),
}


def check_columns(content: Section, layout: Layout, sizes: dict[str, int], where: str) -> None:
    """Refuses tensors that do not follow `layout`, of which only `LABELS` may be absent.

    `sizes`: the known sizes by letter; the others need only agree.

    Raises:
        InputError: a tensor is missing, unknown, or of another type or shape.
    """
    labels = LABELS.keys() if layout is not PARTICLES else set()
    wrong = (layout.keys() - labels - content.keys()) | (content.keys() - layout.keys())
    if wrong:
        raise InputError(f"{where}: {min(wrong)!r} is missing or unknown; make the file again")
    sizes = dict(sizes)
    for name, tensor in content.items():
        dtype, dims = layout[name]
        shape = tuple(tensor.shape)
        if tensor.dtype != dtype or len(shape) != len(dims):
            raise InputError(
                f"{where}: {name} is {tensor.dtype} {shape}, not {dtype} [{', '.join(dims)}]; "
                "make the file again"
            )
        for dim, size in zip(dims, shape, strict=True):
            expected = int(dim) if dim.isdigit() else sizes.setdefault(dim, size)
            if size != expected:
                raise InputError(
                    f"{where}: {name} has shape {shape}, which makes {size} and not {expected} for "
                    f"the {dim} of [{', '.join(dims)}]; make the file again"
                )


def check_particles(content: Section, where: str) -> None:
    """Refuses columns that are no table of particles.

    Raises:
        InputError: a column is missing, unknown, or of another type or shape, or a particle is
            listed twice.
    """
    check_columns(content, PARTICLES, {}, where)
    ids, counts = content["particle_id"].unique(return_counts=True)
    if (counts > 1).any():
        raise InputError(
            f"{where}: particle {int(ids[counts > 1][0])} is listed twice; make the file again"
        )


def check_rows(index: Tensor, rows: int, where: str) -> None:
    """Refuses an index of any shape that leads outside `rows` rows.

    Raises:
        InputError: it leads outside.
    """
    if index.numel() == 0:
        return
    lowest, highest = (int(value) for value in torch.aminmax(index))
    if lowest < 0 or highest >= rows:
        raise InputError(
            f"{where} runs from {lowest} to {highest}, but there are {rows} rows; "
            "make the file again"
        )
