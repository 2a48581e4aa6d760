"""Files of other software: valid ones, and a reader of each."""

import io
import zipfile
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from bigtrk.formats.acorn.checkpoint import AcornCheckpoint, of_model, write_checkpoint
from bigtrk.formats.acorn.import_graphs import read_acorn
from bigtrk.formats.acorn.model_files import acorn_weights, read_model
from bigtrk.formats.heptrkx import read_heptrkx
from bigtrk.formats.pyg import read_pyg
from bigtrk.models.interaction_gnn import InteractionGNN
from bigtrk.models.settings import InteractionGNNConfig
from tests.formats.acorn.events import columns
from tests.formats.acorn.events import write as write_acorn
from tests.hostile.reader import EVENT
from tests.hostile.stored_files import a_graph


def heptrkx_arrays() -> dict[str, Any]:
    return {
        "X": np.array([[0.03, 0.9, 0.1], [0.07, -0.9, 0.2], [1.0, -0.5, -1.0]], np.float32),
        "y": np.array([1, 0, 1], np.float32),
        "Ri_rows": np.array([2, 1, 2]),
        "Ri_cols": np.array([1, 0, 2]),
        "Ro_rows": np.array([0, 1, 0]),
        "Ro_cols": np.array([0, 1, 2]),
    }


def heptrkx_seeds() -> list[bytes]:
    plain, packed = io.BytesIO(), io.BytesIO()
    np.savez(plain, **heptrkx_arrays())
    np.savez_compressed(packed, **heptrkx_arrays())
    columns = b"".join(_npy(array) for array in heptrkx_arrays().values())
    return [b"\0" + plain.getvalue(), b"\0" + packed.getvalue(), b"\1" + columns]


def _npy(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def read_npz(folder: Path, content: bytes) -> object:
    """First byte 1: the arrays' files one after another, zipped here, so that checksums agree."""
    path = folder / "graph.npz"
    if content[:1] == b"\1":
        magic = b"\x93NUMPY"
        pieces = [magic + piece for piece in content[1:].split(magic)[1:]]
        with zipfile.ZipFile(path, "w") as archive:
            for key, piece in zip(heptrkx_arrays(), pieces, strict=False):
                archive.writestr(f"{key}.npy", piece)
    else:
        path.write_bytes(content[1:])
    return read_heptrkx(path)


def pyg_seeds() -> list[bytes]:
    graph = a_graph().to_pyg()
    stream = io.BytesIO()
    torch.save(graph, stream)
    return [bytes([kind]) + stream.getvalue() for kind in range(2)]


def read_data(folder: Path, content: bytes) -> object:
    """First byte odd: the archive's checksums agree, as an attacker would write it."""
    path, agrees = folder / "graph.pt", content[:1]
    path.write_bytes(content[1:])
    if agrees and agrees[0] % 2:
        with_true_checksums(path)
    return read_pyg(path)


@cache
def acorn_seeds() -> list[bytes]:
    found = []
    with TemporaryDirectory() as folder:
        for batch in (False, True):
            path = write_acorn(Path(folder) / "a.pyg", columns(), batch)
            found += [bytes([kind]) + path.read_bytes() for kind in range(2)]
    return found


def read_acorn_file(folder: Path, content: bytes) -> object:
    """First byte odd: the archive's checksums agree, as an attacker would write it."""
    path, agrees = folder / f"{EVENT}.pyg", content[:1]
    path.write_bytes(content[1:])
    if agrees and agrees[0] % 2:
        with_true_checksums(path)
    return read_acorn(path, EVENT)


@cache
def checkpoint_file() -> bytes:
    config = InteractionGNNConfig(hidden=2, layers=2)
    settings = of_model(config, ["dr", "dz"])
    model = InteractionGNN(config, len(settings.node_features), len(settings.edge_features))
    made = AcornCheckpoint(settings.content(), acorn_weights(model.state_dict(), config))
    with TemporaryDirectory() as folder:
        write_checkpoint(Path(folder) / "a.ckpt", made)
        return (Path(folder) / "a.ckpt").read_bytes()


def read_acorn_model(folder: Path, content: bytes) -> object:
    """First byte as in `read_data`."""
    path, agrees = folder / "a.ckpt", content[:1]
    path.write_bytes(content[1:])
    if agrees and agrees[0] % 2:
        with_true_checksums(path)
    stored = read_model(path)
    return [stored.model.state_dict(), stored.configuration, stored.measured]


def with_true_checksums(path: Path) -> None:
    """Writes a zip archive again, each member as it can be read."""
    content = io.BytesIO(path.read_bytes())
    try:
        with zipfile.ZipFile(content) as archive, zipfile.ZipFile(path, "w") as written:
            for member in archive.infolist():
                member.CRC, stream = None, archive.open(member)  # type: ignore[assignment]
                written.writestr(member.filename, stream.read())
    except Exception:  # no archive can be made of it
        path.write_bytes(content.getvalue())
