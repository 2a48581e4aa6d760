"""Reading acorn's files: what they hold comes out, and nothing that they say is run."""

import builtins
import gzip
import io
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data, HeteroData

from bigtrk.errors import InputError
from bigtrk.formats.acorn.columns import read_columns
from bigtrk.formats.acorn.restricted import Described, Held
from tests.formats.acorn.events import columns, in_older_names, write
from tests.hostile.reader import same


@pytest.mark.parametrize("name", ["event1.pyg", "event1.pyg.gz"])
@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("older", [False, True])
def test_columns_come_out_as_they_were(name: str, batch: bool, older: bool, tmp_path: Path) -> None:
    content = in_older_names(columns()) if older else columns()
    found = read_columns(write(tmp_path / name, content, batch))
    tensors = {key: one for key, one in content.items() if isinstance(one, torch.Tensor)}
    assert same({key: found[key] for key in tensors}, tensors)
    config = found["config"][0] if batch else found["config"]
    assert config == content["config"]


def test_tensors_that_share_their_values(tmp_path: Path) -> None:
    table = torch.arange(12.0).reshape(3, 4)
    whole = {"a": table, "b": table[1], "c": table.T, "d": table[:0], "e": torch.tensor(3)}
    assert same(
        read_columns(write(tmp_path / "a.pyg", {"hit_id": torch.arange(3), **whole}))["c"], table.T
    )
    torch.save(Data.from_dict(whole), tmp_path / "b.pyg")
    found = read_columns(tmp_path / "b.pyg")
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
    made = f"__import__('os').mkdir({str(trace)!r})"
    return {
        "system": Call(os.system, f"mkdir {trace}"),
        "mkdir": Call(os.mkdir, str(trace)),
        "eval": Call(builtins.eval, made),
        "exec": Call(builtins.exec, made),
        "getattr": Call(Call(getattr, Call(__import__, "os"), "mkdir"), str(trace)),
        "getter": Call(attrgetter("mkdir"), Call(__import__, "os")),
        "torch function": Call(torch.ones, 3),
        "torch.load": Call(torch.load, str(trace)),
        "hub": Call(torch.hub.load, str(trace)),
        "as a type": Call(type, "Made", (object,), {}),
        "pickle in a pickle": Call(pickle.loads, pickle.dumps(Call(os.mkdir, str(trace)))),
        "another rebuild": Call(torch._utils._rebuild_parameter, torch.ones(1), False, {}),
    }


@pytest.mark.parametrize("way", hostile(Path("x")))
@pytest.mark.parametrize("packed", ["a.pyg", "a.pyg.gz"])
def test_code_is_not_run(way: str, packed: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    content = {"hit_id": torch.arange(3), "config": [{"model": hostile(trace)[way]}]}
    path = write(tmp_path / packed, content)
    with pytest.raises(
        InputError, match=r"a\.pyg.*: asks for \S+, and nothing but tensors"
    ) as said:
        read_columns(path)
    assert "\n" not in str(said.value)
    assert not trace.exists()


def test_a_plain_pickle_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.pyg"
    path.write_bytes(pickle.dumps(Call(os.mkdir, str(tmp_path / "trace"))))
    with pytest.raises(InputError, match=r"a\.pyg: is no graph that torch\.save wrote"):
        read_columns(path)
    assert not (tmp_path / "trace").exists()


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


def test_a_tensor_within_its_values(tmp_path: Path) -> None:
    archive_of(tmp_path / "a.pyg", pickled_tensor((2, 2), (2, 1)), bytes(16))
    assert torch.equal(read_columns(tmp_path / "a.pyg")["hit_r"], torch.zeros(2, 2))


@pytest.mark.parametrize("state", [(True, None, {}), (None, {"size": (4,)}), {"size": (4,)}])
def test_a_tensor_that_the_pickle_changes(state: object, tmp_path: Path) -> None:
    """A tensor of torch obeys a pickle that gives it gradients, or memory of any size."""
    archive_of(tmp_path / "a.pyg", pickled_tensor((2, 2), (2, 1), state=state), bytes(16))
    try:
        found = read_columns(tmp_path / "a.pyg")["hit_r"]
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
    with pytest.raises(InputError, match=r"a\.pyg: is no graph .*(a tensor)"):
        read_columns(tmp_path / "a.pyg")


def test_an_object_with_a_number_of_gigabytes(tmp_path: Path) -> None:
    """Python's own reader makes a table of all numbers up to the highest."""
    archive_of(tmp_path / "a.pyg", b"\x80\x02}r" + struct.pack("<I", 2**31) + b".")
    with pytest.raises(InputError, match=r"a\.pyg: is no graph .*number that is too high"):
        read_columns(tmp_path / "a.pyg")


def test_a_packed_bomb(tmp_path: Path) -> None:
    (tmp_path / "a.pyg.gz").write_bytes(gzip.compress(bytes(80 << 20)))
    with pytest.raises(InputError, match=r"a\.pyg\.gz: unpacks to more than 64 MiB"):
        read_columns(tmp_path / "a.pyg.gz")


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
        with pytest.raises(InputError, match=r"a\.pyg: is no graph"):
            read_columns(tmp_path / "a.pyg")
    assert not hasattr(Held, "state")
    assert callable(Described.tensor)


def test_values_of_numpy_are_held(tmp_path: Path) -> None:
    values = {"beam": np.int64(3), "spot": np.arange(3.0)}
    read = read_columns(write(tmp_path / "event1.pyg", {**columns(), **values}))
    assert all(isinstance(read[name], Held) for name in values)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def flipped(path: Path) -> None:
    """A wrong byte in a tensor, which the archive's checksum catches."""
    content = bytearray(path.read_bytes())
    content[content.index(torch.full((9,), 7.0).numpy().tobytes())] ^= 1
    path.write_bytes(content)


def text(path: Path) -> None:
    path.write_text("hits")


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [cut, flipped, text, empty])
def test_damaged_files_are_named(harm: Callable[[Path], None], tmp_path: Path) -> None:
    path = write(tmp_path / "bad.pyg", columns())
    harm(path)
    with pytest.raises(InputError, match=r"bad\.pyg: is no graph that torch\.save") as said:
        read_columns(path)
    assert "\n" not in str(said.value)


@pytest.mark.parametrize("harm", [cut, empty])
def test_damaged_packed_files_are_named(harm: Callable[[Path], None], tmp_path: Path) -> None:
    path = write(tmp_path / "bad.pyg.gz", columns())
    harm(path)
    with pytest.raises(InputError, match=r"bad\.pyg\.gz: is no graph that torch\.save"):
        read_columns(path)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"x": torch.ones(2)}, r"holds no Data"),
        ([Data(), Data()], r"holds no Data"),
        (HeteroData(), r"holds no Data"),
        (Batch.from_data_list([Data(num_nodes=1), Data(num_nodes=1)]), r"holds several graphs"),
    ],
)
def test_what_is_no_graph(content: Any, complaint: str, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "bad.pyg")
    with pytest.raises(InputError, match=rf"bad\.pyg: {complaint}"):
        read_columns(tmp_path / "bad.pyg")
