"""Labelled edge graphs in the HEPTrkX npz layout, imported.

X [N, 3] float: r / 1000 mm, phi / pi, z / 1000 mm. y [E]: 1 true, 0 fake. Sparse incidence
matrices [N, E]: edge Ro_cols[i] starts at node Ro_rows[i], edge Ri_cols[i] ends at node
Ri_rows[i]. Source: `SparseGraph` of the HEPTrkX project's heptrkx-gnn-tracking.
"""

import hashlib
import io
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import torch
from numpy.lib.format import read_array
from numpy.typing import NDArray

from bigtrk.disk.files import check_file
from bigtrk.disk.unpacking import check_members, read_member
from bigtrk.errors import InputError, reason
from bigtrk.graphs.coordinates import Ints, with_eta
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.features import EDGE_FEATURES, as_tensor, edge_table
from bigtrk.graphs.storage.fill_folder import GraphToMake, as_it_is, fill_folder

Arrays = dict[str, NDArray[np.generic]]
UNITS = (1000.0, np.pi, 1000.0)  # of the columns of X, in mm and rad
KEYS = ("X", "y", "Ri_rows", "Ri_cols", "Ro_rows", "Ro_cols")
INCIDENCE = KEYS[2:]
FARTHEST = 1e6  # of |X|, a thousand kilometres: keeps features finite in float32


def import_heptrkx_folder(source: Path, out: Path, prefix: str = "") -> dict[str, Any]:
    """Imports all npz graphs of `source` (a folder or one npz file) to `out`; returns the manifest.

    prefix: comes before the names of files, in those of graphs.

    Raises:
        InputError: there are none, or one is damaged; those imported before it stay.
    """
    files = [source] if source.is_file() else sorted(source.glob("*.npz"))
    if not files:
        raise InputError(f"{source}: holds no npz graphs; name the folder that does")
    tasks = (_task(file) for file in files)
    made = {"from": "heptrkx"}
    return fill_folder(out, tasks, len(files), made, "importing graphs", prefix=prefix)


def _task(file: Path) -> GraphToMake:
    source = hashlib.sha256(file.read_bytes()).hexdigest()
    return GraphToMake(file.stem, source, lambda: as_it_is(read_heptrkx(file)))


def read_heptrkx(file: Path) -> EventGraph:
    """Reads one graph, named after its file; ids and particles are not known (None).

    Edges run from Ro to Ri and are sorted by (destination, source).

    Raises:
        InputError: the file is damaged, or an array is missing, misshapen or out of range.
    """
    arrays = _read_arrays(file)
    _check(arrays, file)
    x = arrays["X"].astype(np.float64)
    r, phi, z = (x * UNITS).T
    nodes = with_eta(r, phi, z)
    edges = np.stack([_edge_ends(arrays, matrix, file) for matrix in ("Ro", "Ri")])
    order = np.lexsort(edges)
    return EventGraph(
        name=file.stem,
        node_feature_names=tuple(nodes),
        edge_feature_names=EDGE_FEATURES,
        node_features=as_tensor(nodes),
        edge_index=torch.from_numpy(edges[:, order]),
        edge_features=edge_table(nodes, edges[:, order]),
        y=torch.from_numpy(arrays["y"][order] == 1),
    )


def _read_arrays(file: Path) -> Arrays:
    check_file(file)
    try:
        with ZipFile(file) as archive:
            check_members(file, archive)
            known = set(archive.namelist())
            missing = [key for key in KEYS if f"{key}.npy" not in known]
            if missing:
                raise _bad(file, f"has no array {missing[0]!r} (a graph has {', '.join(KEYS)})")
            return {key: _read_array(archive, key, file) for key in KEYS}
    except InputError:
        raise
    except Exception as error:  # zipfile promises no one kind for damage
        raise _bad(file, f"is not an npz file, or damaged ({reason(error)})") from None


def _read_array(archive: ZipFile, key: str, file: Path) -> NDArray[np.generic]:
    content, _ = read_member(file, archive, f"{key}.npy")
    try:
        array: NDArray[np.generic] = read_array(io.BytesIO(content), allow_pickle=False)
    except Exception as error:  # numpy evaluates the header as Python: any kind
        raise _bad(file, f"array {key!r} cannot be read ({reason(error)})") from None
    if array.dtype.kind not in ("iu" if key in INCIDENCE else "fiub"):
        raise _bad(file, f"array {key!r} holds {array.dtype}, not numbers of its kind")
    return array


def _check(arrays: Arrays, file: Path) -> None:
    x, y = arrays["X"], arrays["y"]
    if x.ndim != 2 or x.shape[1] != 3:
        raise _bad(file, f"array 'X' has shape {x.shape}, not (nodes, 3)")
    if not np.isfinite(x.astype(np.float64)).all():
        raise _bad(file, "array 'X' holds NaN or infinite coordinates")
    if np.abs(x.astype(np.float64)).max(initial=0.0) > FARTHEST:
        raise _bad(file, f"array 'X' holds coordinates beyond {FARTHEST:g}")
    # Unscaled coordinates (rad) would pass for a detector of three turns.
    if np.abs(x[:, 1].astype(np.float64)).max(initial=0.0) > 1.0 + 1e-3:
        raise _bad(file, "array 'X' must hold phi / pi within -1 and 1 in its second column")
    if y.ndim != 1 or not np.isin(y, (0, 1)).all():
        raise _bad(file, f"array 'y' (shape {y.shape}) must be one column of 0 and 1")
    for key in INCIDENCE:
        if arrays[key].shape != y.shape:
            raise _bad(file, f"array {key!r} has shape {arrays[key].shape}, not y's {y.shape}")


def _edge_ends(arrays: Arrays, matrix: str, file: Path) -> Ints:
    """Returns the node of each edge [E] in the incidence matrix "Ri" or "Ro"."""
    nodes, edges = (arrays[f"{matrix}_{axis}"].astype(np.int64) for axis in ("rows", "cols"))
    n_nodes, n_edges = len(arrays["X"]), len(arrays["y"])
    if ((nodes < 0) | (nodes >= n_nodes)).any():
        raise _bad(file, f"array '{matrix}_rows' names nodes outside 0 to {n_nodes - 1}")
    if not np.array_equal(np.sort(edges), np.arange(n_edges)):
        raise _bad(file, f"array '{matrix}_cols' must name each edge 0 to {n_edges - 1} once")
    ends = np.empty(n_edges, dtype=np.int64)
    ends[edges] = nodes
    return ends


def _bad(file: Path, problem: str) -> InputError:
    return InputError(f"{file}: {problem}; fetch or write the file again")
