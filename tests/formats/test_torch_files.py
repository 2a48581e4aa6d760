"""Files of torch.save: what they hold comes out, and nothing that they say is run."""

import builtins
import gzip
import io
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from bigtrk.errors import InputError
from bigtrk.formats.acorn.import_graphs import READER
from bigtrk.formats.torch_files import Described, ForeignObject
from tests.formats.acorn.events import write


def test_tensors_that_share_their_values(tmp_path: Path) -> None:
    table = torch.arange(12.0).reshape(3, 4)
    whole = {"a": table, "b": table[1], "c": table.T, "d": table[:0], "e": torch.tensor(3)}
    torch.save(Data.from_dict(whole), tmp_path / "b.pyg")
    found = READER.columns(tmp_path / "b.pyg")
    assert all(torch.equal(found[name], one) for name, one in whole.items())


class Call:
    """A pickle that calls something when it is read."""

    def __init__(self, call: Callable[..., object], *arguments: object) -> None:
        self.made_by: tuple[object, ...] = (call, arguments)

    def __reduce__(self) -> Any:
        return self.made_by

    def __call__(self) -> None:
        """Nothing: what is called may itself be made by a call."""


def hostile(trace: Path) -> dict[str, object]:
    """Pickles that would make the folder `trace`, or read a file, by several ways."""
    return {
        "mkdir": Call(os.mkdir, str(trace)),
        "eval": Call(builtins.eval, f"__import__('os').mkdir({str(trace)!r})"),
        "getattr": Call(Call(getattr, Call(__import__, "os"), "mkdir"), str(trace)),
        "torch function": Call(torch.ones, 3),
        "torch.load": Call(torch.load, str(trace)),
        "as a type": Call(type, "Made", (object,), {}),
        "pickle in a pickle": Call(pickle.loads, pickle.dumps(Call(os.mkdir, str(trace)))),
        "another rebuild": Call(torch._utils._rebuild_parameter, torch.ones(1), False, {}),
    }


@pytest.mark.parametrize("way", hostile(Path("x")))
def test_code_is_not_run(way: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    content = {"hit_id": torch.arange(3), "config": [{"model": hostile(trace)[way]}]}
    for packed in ("a.pyg", "a.pyg.gz"):
        path = write(tmp_path / packed, content)
        with pytest.raises(InputError, match=r"pyg.*: holds an object of \S+, but bigtrk") as said:
            READER.columns(path)
        assert "\n" not in str(said.value)
    path.write_bytes(pickle.dumps(hostile(trace)[way]))
    with pytest.raises(InputError, match=r"was not made by torch\.save"):
        READER.columns(path)
    assert not trace.exists()


def archive_of(path: Path, description: bytes, values: bytes = b"") -> None:
    """An archive of torch.save around any pickle."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", description)
        archive.writestr("a/data/0", values)


def pickled_tensor(
    size: tuple[int, ...], stride: tuple[int, ...], offset: int = 0, state: object = None
) -> bytes:
    """A Data of one tensor of 16 bytes, of which the pickle says any size."""

    class Storage:
        pass

    class Writer(pickle.Pickler):
        def persistent_id(self, obj: Any) -> Any:
            of_storage = isinstance(obj, Storage)
            return ("storage", torch.FloatStorage, "0", "cpu", 2**40) if of_storage else None

    rebuilt = Call(torch._utils._rebuild_tensor_v2, Storage(), offset, size, stride, False, {})
    rebuilt.made_by = (*rebuilt.made_by, state)
    data = Data()
    data["hit_r"] = rebuilt
    stream = io.BytesIO()
    Writer(stream, 2).dump(data)
    return stream.getvalue()


@pytest.mark.parametrize("state", [(True, None, {}), (None, {"size": (4,)}), {"size": (4,)}])
def test_a_tensor_that_the_pickle_changes(state: object, tmp_path: Path) -> None:
    """A tensor of torch obeys a pickle that gives it gradients, or memory of any size."""
    archive_of(tmp_path / "a.pyg", pickled_tensor((2, 2), (2, 1), state=state), bytes(16))
    try:
        found = READER.columns(tmp_path / "a.pyg")["hit_r"]
    except InputError:
        return
    assert torch.equal(found, torch.zeros(4))


@pytest.mark.parametrize(
    ("size", "stride", "offset"),
    [
        ((2**40,), (1,), 0),
        ((2**40,), (0,), 0),
        ((2**62, 2**62), (0, 0), 0),
        ((4,), (1,), 1),
        ((2, 2), (3, 1), 0),
        ((1,), (1,), 2**40),
        ((-1,), (1,), 0),
        ((2,), (-1,), 1),
        ((2, 2), (1,), 0),
    ],
)
def test_a_tensor_larger_than_the_file(
    size: tuple[int, ...], stride: tuple[int, ...], offset: int, tmp_path: Path
) -> None:
    archive_of(tmp_path / "a.pyg", pickled_tensor(size, stride, offset), bytes(16))
    with pytest.raises(InputError, match=r"a\.pyg: is damaged or .*(a tensor)"):
        READER.columns(tmp_path / "a.pyg")


def test_an_object_with_a_number_of_gigabytes(tmp_path: Path) -> None:
    """Python's own reader makes a table of all numbers up to the highest."""
    archive_of(tmp_path / "a.pyg", b"\x80\x02}r" + struct.pack("<I", 2**31) + b".")
    with pytest.raises(InputError, match=r"a\.pyg: is damaged or .*numbers an object too high"):
        READER.columns(tmp_path / "a.pyg")


def test_held_objects_stay_empty_shells(tmp_path: Path) -> None:
    """A pickle can set attributes of what it names, but of no class and no function here."""
    of_class = b"\x80\x02ctorch_geometric.data\nData\n}X\x05\x00\x00\x00stateK\x01sb."
    of_function = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}X\x04\x00\x00\x00nameK\x01sb."
    of_both = b"\x80\x02ctorch_geometric.data\nData\nN}X\x05\x00\x00\x00stateK\x01s\x86b."
    names = b"N}X\x06\x00\x00\x00tensorK\x01s\x86b."  # as a state of slots
    of_slots = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n" + names
    of_type = b"\x80\x02ccollections\nOrderedDict\n" + names
    for description in (of_class, of_function, of_both, of_slots, of_type):
        archive_of(tmp_path / "a.pyg", description)
        with pytest.raises(InputError, match=r"a\.pyg: is damaged or was not made by"):
            READER.columns(tmp_path / "a.pyg")
    assert not hasattr(ForeignObject, "state")
    assert callable(Described.tensor)


@pytest.mark.parametrize("name", ["bad.pyg", "bad.pyg.gz"])
@pytest.mark.parametrize("content", [b"hits", b""])
def test_other_files_are_named(content: bytes, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(InputError, match=rf"{name}: is damaged or was not made by") as said:
        READER.columns(tmp_path / name)
    assert "\n" not in str(said.value)


def test_the_form_before_torch_1_6_is_named(tmp_path: Path) -> None:
    torch.save(Data(), tmp_path / "old.pyg", _use_new_zipfile_serialization=False)
    with pytest.raises(InputError, match=r"old\.pyg: was saved by torch before 1\.6"):
        READER.columns(tmp_path / "old.pyg")
