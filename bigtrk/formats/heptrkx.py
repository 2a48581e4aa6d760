"""Imports and exports labelled graphs in the HEPTrkX npz layout.

X [N, 3] float: r / 1000 mm, phi / pi, z / 1000 mm. y [E]: 1 true, 0 fake. Sparse incidence
matrices [N, E]: edge Ro_cols[i] starts at node Ro_rows[i], edge Ri_cols[i] ends at node
Ri_rows[i]. Source: `SparseGraph` of the HEPTrkX project's heptrkx-gnn-tracking.

Its prepare.py may cut an event into sections, NAME_g000.npz, NAME_g001.npz and so on. Their phi is
measured from the section's middle, in units of pi / (sections in phi). Ids of hits may lie beside a
graph: NAME_ID.npz holds ID [N].
"""

import hashlib
import io
import re
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import torch
from numpy.lib.format import read_array
from numpy.typing import NDArray

from bigtrk.console import complain, follow, warn_once
from bigtrk.disk.files import by_numbers, check_file, write_atomically
from bigtrk.disk.unpacking import check_members, read_member
from bigtrk.errors import InputError, damage_told, number_of
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.features import EDGE_FEATURES, Floats, Ints, as_tensor, edge_table, with_eta
from bigtrk.graphs.storage.event_folder import GraphFolder
from bigtrk.graphs.storage.graph_folder import GraphToMake, as_it_is, fill_folder

Arrays = dict[str, NDArray[np.generic]]
UNITS = (1000.0, np.pi, 1000.0)  # of the columns of X, in mm and rad
KEYS = ("X", "y", "Ri_rows", "Ri_cols", "Ro_rows", "Ro_cols")
INCIDENCE = KEYS[2:]
REMEDY = "fetch or write the file again"
FARTHEST = 1e6  # of |X|, a thousand kilometres: keeps features finite in float32


_LATER_SECTION = re.compile(r"_[gs](?!0+$)\d+$")
_CROSSING = 10  # expected edges across phi = pi; if there are none, the graph is a section


def import_heptrkx_folder(
    source: Path, out: Path, phi_sections: int | None = None, prefix: str = ""
) -> dict[str, Any]:
    """Imports all npz graphs of `source` (a folder or one npz file) to `out`; returns the manifest.

    phi_sections: number of sections in phi into which each event was cut; None: files hold whole
    events, unless a file's name says that it is a section. prefix: starts the names of graphs,
    before the file's name. Raises InputError if there are no graphs, one is a section and
    phi_sections is None, or one is damaged; those imported before it stay.
    """
    files = [source] if source.is_file() else _graph_files(source)
    if not files:
        problem = "holds no npz graphs" if source.is_dir() else "no such folder"
        raise InputError(f"{source}: {problem}; name the folder of HEPTrkX's npz graphs")
    if phi_sections is None:
        for file in files:
            if _LATER_SECTION.search(file.stem):
                raise InputError(
                    f"{file}: holds a section of an event, whose phi depends on the number of "
                    "sections; give --phi-sections N, which is n_phi_sections of HEPTrkX's "
                    "prepare.py (1 if events were cut in eta alone)"
                )
        complain(
            f"{source}: taken for whole events, with phi in units of pi; if events were cut in "
            "phi, give --phi-sections N"
        )
    tasks = (_task(file, phi_sections) for file in files)
    parameters = {"from": "heptrkx", "phi_sections": phi_sections or 1}
    return fill_folder(out, tasks, len(files), parameters, "importing graphs", prefix=prefix)


def _graph_files(folder: Path) -> list[Path]:
    """Lists a folder's npz files that hold a graph; warns of the others."""
    files = sorted(folder.glob("*.npz"), key=lambda file: by_numbers(file.stem))
    graphs = [file for file in files if _is_graph(file)]
    others = [file.name for file in files if file not in {*graphs, *map(_id_file, graphs)}]
    if others:
        warn_once(
            "others",
            f"{folder}: left out {number_of(len(others), 'file')} without a graph, such as "
            f"{others[0]}",
        )
    return graphs


def _is_graph(file: Path) -> bool:
    """True if a file has an array of a graph, or is unreadable (read_heptrkx then refuses it)."""
    try:
        with ZipFile(file) as archive:
            return any(f"{key}.npy" in archive.namelist() for key in KEYS)
    except Exception:  # zipfile promises no one kind for damage
        return True


def _id_file(graph: Path) -> Path:
    return graph.with_name(f"{graph.stem}_ID.npz")


def _task(file: Path, phi_sections: int | None) -> GraphToMake:
    ids = _id_file(file)
    content = file.read_bytes() + (ids.read_bytes() if ids.is_file() else b"")
    source = hashlib.sha256(content).hexdigest()
    return GraphToMake(file.stem, source, lambda: as_it_is(read_heptrkx(file, phi_sections)))


def read_heptrkx(file: Path, phi_sections: int | None = None) -> EventGraph:
    """Reads one graph, named after its file. Hit ids come from NAME_ID.npz next to it, if that
    fits, else they are None; particles are not known.

    phi_sections: number of sections in phi; None: one, with a warning if the edges suggest several.

    Edges run from Ro to Ri and are sorted by (destination, source). InputError if the file is
    damaged, or an array is missing, misshapen or out of range.
    """
    arrays = _read_arrays(file)
    _check(arrays, file)
    x = arrays["X"].astype(np.float64)
    r, phi, z = (x * UNITS / (1, phi_sections or 1, 1)).T
    nodes = with_eta(r, phi, z)
    edges = np.stack([_edge_ends(arrays, matrix, file) for matrix in ("Ro", "Ri")])
    if phi_sections is None:
        _warn_of_section(x[:, 1], edges, file)
    order = np.lexsort(edges)
    return EventGraph(
        name=file.stem,
        node_feature_names=tuple(nodes),
        edge_feature_names=EDGE_FEATURES,
        node_features=as_tensor(nodes),
        edge_index=torch.from_numpy(edges[:, order]),
        edge_features=edge_table(nodes, edges[:, order]),
        y=torch.from_numpy(arrays["y"][order] == 1),
        hit_id=_hit_ids(_id_file(file), len(x)),
    )


def _warn_of_section(phi: Floats, edges: Ints, file: Path) -> None:
    """Warns if hits lie on both sides of phi = pi, but no edge [2, E] crosses it, as in a section
    of an event. phi [N], in units of pi.
    """
    step = np.abs(np.diff(phi[edges], axis=0))
    around = len(phi) and phi.min() < -0.9 and phi.max() > 0.9
    if around and step.max(initial=0.0) <= 1 and step.sum() / 2 > _CROSSING:
        warn_once(
            "sections",
            f"{file}: no edge crosses phi = pi, where a whole event would have about "
            f"{step.sum() / 2:.0f} such edges; if it is a section in phi, give --phi-sections",
        )


def _hit_ids(file: Path, n_nodes: int) -> torch.Tensor | None:
    """Returns the hit ids in `file`, next to a graph, [N]; None if there is no such file or, with a
    warning, if its ids do not fit.
    """
    if not file.exists():
        return None
    try:
        ids = _read_arrays(file, ("ID",))["ID"]
        if ids.shape != (n_nodes,) or len(np.unique(ids)) < n_nodes:
            raise _bad(file, f"array 'ID' must hold {n_nodes} different ids, one for each node")
    except InputError as error:
        warn_once("hit ids", f"{error} (until then graphs are imported without hit ids)")
        return None
    return torch.from_numpy(ids.astype(np.int64))


def _read_arrays(file: Path, keys: tuple[str, ...] = KEYS) -> Arrays:
    check_file(file)
    with damage_told(f"{file}: is damaged or not an npz file", REMEDY), ZipFile(file) as archive:
        check_members(file, archive)
        known = set(archive.namelist())
        if missing := [key for key in keys if f"{key}.npy" not in known]:
            raise _bad(file, f"has no array {missing[0]!r} (it needs {', '.join(keys)})")
        return {key: _read_array(archive, key, file) for key in keys}


def _read_array(archive: ZipFile, key: str, file: Path) -> NDArray[np.generic]:
    content, _ = read_member(file, archive, f"{key}.npy")
    with damage_told(f"{file}: array {key!r} cannot be read", REMEDY):
        array: NDArray[np.generic] = read_array(io.BytesIO(content), allow_pickle=False)
    kinds, needed = ("iu", "integers") if key in (*INCIDENCE, "ID") else ("fiub", "numbers")
    if array.dtype.kind not in kinds:
        raise _bad(file, f"array {key!r} has dtype {array.dtype}, but must hold {needed}")
    return array


def _check(arrays: Arrays, file: Path) -> None:
    x, y = arrays["X"], arrays["y"]
    if x.ndim != 2 or x.shape[1] != 3:
        raise _bad(file, f"array 'X' has shape {x.shape}, not (nodes, 3)")
    if not np.isfinite(x.astype(np.float64)).all():
        raise _bad(file, "array 'X' holds NaN or infinite coordinates")
    if np.abs(x.astype(np.float64)).max(initial=0.0) > FARTHEST:
        raise _bad(file, f"array 'X' holds coordinates beyond {FARTHEST:g}")
    # Unscaled coordinates (rad) would look like a detector of three turns.
    if np.abs(x[:, 1].astype(np.float64)).max(initial=0.0) > 1.0 + 1e-3:
        raise _bad(file, "array 'X' must hold phi / pi within -1 and 1 in its second column")
    if y.ndim != 1 or not np.isin(y, (0, 1)).all():
        raise _bad(file, f"array 'y' has shape {y.shape}, but must be one column of 0 and 1")
    for key in INCIDENCE:
        if arrays[key].shape != y.shape:
            raise _bad(file, f"array {key!r} has shape {arrays[key].shape}, but y has {y.shape}")


def _edge_ends(arrays: Arrays, matrix: str, file: Path) -> Ints:
    """Returns the end node of each edge, [E], from the incidence matrix "Ri" or "Ro"."""
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
    return InputError(f"{file}: {problem}; {REMEDY}")


COLUMNS = ("r", "phi", "z")  # of X, in the order of UNITS


def export_heptrkx_folder(graphs: Path, out: Path) -> list[Path]:
    """Writes each graph of folder `graphs` as `out`/NAME.npz, atomically; returns the paths. The
    format has no place for ids, particles and features other than r, phi and z. Raises InputError
    if the folder or a graph cannot be read, or a graph lacks labels, r, phi or z; those written
    before stay.
    """
    folder = GraphFolder(graphs)
    names = follow(folder.events, len(folder.events), "exporting graphs")
    return [write_heptrkx(folder.read(name), out) for name in names]


def write_heptrkx(graph: EventGraph, folder: Path) -> Path:
    """Writes one graph to `folder`/NAME.npz, atomically, and returns the path. InputError if the
    graph lacks labels, r, phi or z.
    """
    if graph.y is None:
        raise InputError(f"{graph.name}: has no labels; build the graph from events with truth")
    if missing := [name for name in COLUMNS if name not in graph.node_feature_names]:
        raise InputError(
            f"{graph.name}: has no node feature {missing[0]!r}, but HEPTrkX needs r, phi and z; "
            "build the graph from events"
        )
    columns = [graph.node_feature_names.index(name) for name in COLUMNS]
    # Rounded to the nearest float32, which gives back the column on import if any float32 does.
    x = (graph.node_features[:, columns].numpy().astype(np.float64) / UNITS).astype(np.float32)
    source, destination = graph.edge_index.numpy()
    edges = np.arange(graph.n_edges)
    incidence = dict(zip(INCIDENCE, (destination, edges, source, edges), strict=True))
    arrays: dict[str, Any] = {"X": x, "y": graph.y.numpy().astype(np.float32), **incidence}
    path = folder / f"{graph.name}.npz"

    def save(temporary: Path) -> None:
        with temporary.open("wb") as file:  # by a name, numpy would add a suffix to it
            np.savez(file, **arrays)

    write_atomically(path, save)
    return path
