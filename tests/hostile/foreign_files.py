"""Files of other software: valid ones, and a reader of each."""

import io
import zipfile
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from bigtrk.formats.acorn import model_files
from bigtrk.formats.acorn.import_graphs import read_acorn
from bigtrk.formats.heptrkx import read_heptrkx
from bigtrk.formats.pyg import read_pyg
from bigtrk.models.interaction_gnn import InteractionGNN
from bigtrk.models.settings import InteractionGNNConfig
from tests.formats.acorn.events import columns
from tests.formats.acorn.events import write as write_acorn
from tests.hostile.reader import EVENT, Reader, of_file
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


def pyg_file() -> bytes:
    stream = io.BytesIO()
    torch.save(a_graph().to_pyg(), stream)
    return stream.getvalue()


def acorn_graphs() -> list[bytes]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.pyg"
        return [write_acorn(path, columns(), batch).read_bytes() for batch in (False, True)]


def acorn_checkpoint() -> bytes:
    config = InteractionGNNConfig(hidden=2, layers=2)
    settings = model_files.of_model(config, ["dr", "dz"])
    model = InteractionGNN(config, len(settings.node_features), len(settings.edge_features))
    weights = model_files.acorn_weights(model.state_dict(), config)
    with TemporaryDirectory() as folder:
        model_files.write_checkpoint(Path(folder) / "a.ckpt", settings, weights)
        return (Path(folder) / "a.ckpt").read_bytes()


def read_acorn_model(path: Path) -> object:
    stored = model_files.read_model(path)
    return [stored.model.state_dict(), stored.configuration, stored.measured]


def with_true_checksums(content: bytes) -> bytes:
    """Writes a zip archive again, each member as it can be read."""
    packed = io.BytesIO()
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive, zipfile.ZipFile(packed, "w") as out:
            for member in archive.infolist():
                member.CRC, stream = None, archive.open(member)  # type: ignore[assignment]
                out.writestr(member.filename, stream.read())
    except Exception:  # no archive can be made of it
        return content
    return packed.getvalue()


FOREIGN_READERS = {
    "heptrkx": Reader(heptrkx_seeds, read_npz),
    "pyg": of_file(cache(lambda: [pyg_file()]), "graph.pt", read_pyg, with_true_checksums),
    "acorn": of_file(
        cache(acorn_graphs),
        f"{EVENT}.pyg",
        lambda path: read_acorn(path, EVENT),
        with_true_checksums,
    ),
    "acorn model": of_file(
        cache(lambda: [acorn_checkpoint()]), "a.ckpt", read_acorn_model, with_true_checksums
    ),
}
