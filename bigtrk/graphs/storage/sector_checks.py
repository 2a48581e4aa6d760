"""Checks of a stored sector: it has the shapes and sums of its record, and is in order."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bigtrk.errors import InputError
from bigtrk.graphs.checks import LABELS, SECTOR, check_columns, check_rows
from bigtrk.graphs.sector import Sector, is_ordered
from bigtrk.graphs.storage.sector_sums import sector_sums
from bigtrk.graphs.storage.tensor_files import Section

_REMEDY = "make the file again"


def check_content(
    content: Section, record: dict[str, Any], counts: dict[str, Any], where: str
) -> None:
    """Refuses tensors that do not match the record, or that index rows that are not there.

    `counts`: the counts of this sector in the event's `record`.

    Raises:
        InputError: a tensor does not match, or an index leads outside.
    """
    nodes = counts["owned"] + counts["halo"]
    sizes = {
        "N": nodes,
        "E": counts["edges"],
        "F": len(record["node_feature_names"]),
        "G": len(record["edge_feature_names"]),
        "S": sum(counts["send_splits"]),
    }
    check_columns(content, SECTOR, sizes, where)
    labels = [name for name in LABELS if name in content]
    if labels != record["labels"]:
        raise InputError(
            f"{where}: knows {', '.join(labels) or 'no labels'}, where the event's sectors know "
            f"{', '.join(record['labels']) or 'none'}; {_REMEDY}"
        )
    bounds = {
        "edge_index": nodes,
        "node_id": record["nodes"],
        "edge_id": record["edges"],
        "send_index": counts["owned"],
    }
    for name, bound in bounds.items():
        check_rows(content[name], bound, f"{where}: {name}")


def check_sector(sector: Sector, sums: dict[str, int], where: str) -> None:
    """Refuses a sector that is out of order, or that has other `sums` than its record says.

    Raises:
        InputError: nodes are not ascending in the blocks of their owners, or rows sent in those of
            their receivers; edges are not among owned nodes first, then cut, each by (destination,
            source); or ids are not those that the other sectors expect.
    """
    _check_ascending(sector.node_id, (sector.n_owned, *sector.recv_splits), f"{where}: node_id")
    _check_ascending(sector.send_index, sector.send_splits, f"{where}: send_index")
    _check_edges(sector, where)
    found = sector_sums(sector)
    if wrong := [name for name, value in found.items() if value != sums[name]]:
        raise InputError(
            f"{where}: its ids are not those that the record counts (sum {wrong[0]!r}), so it does "
            f"not fit the other sectors; {_REMEDY}"
        )


def _check_ascending(ids: Tensor, splits: Sequence[int], where: str) -> None:
    """Checks that ids [sum of splits] ascend within each of the blocks."""
    starts = torch.tensor(splits).cumsum(0)
    rises = ids[1:] > ids[:-1]
    rises[starts[(starts > 0) & (starts < len(ids))] - 1] = True
    if not rises.all():
        row = int((~rises).nonzero()[0, 0]) + 1
        raise InputError(
            f"{where} does not ascend at row {row}, so it repeats itself or is out of order; "
            f"{_REMEDY}"
        )


def _check_edges(sector: Sector, where: str) -> None:
    owned = sector.edge_index < sector.n_owned
    inside, touching = owned.all(dim=0), owned.any(dim=0)
    n_inside = int(inside.sum())
    if not touching.all():
        row = int((~touching).nonzero()[0, 0])
        raise InputError(f"{where}: edge {row} joins two nodes of other sectors; {_REMEDY}")
    # Owned rows ascend as their node ids do.
    cut = sector.node_id[sector.edge_index[:, n_inside:]]
    ordered = is_ordered(sector.edge_index[:, :n_inside]) and is_ordered(cut)
    if not (inside[:n_inside].all() and ordered):
        raise InputError(
            f"{where}: edges are not those among owned nodes first, then cut ones, each by "
            f"(destination, source); {_REMEDY}"
        )
