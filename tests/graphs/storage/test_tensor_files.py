"""Sections of tensors: exact, checked, atomic."""

import gc
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from bigtrk.errors import InputError
from bigtrk.graphs.event_graph import Section
from bigtrk.graphs.storage.event_folder import SectionFile, digest, write_sections

SECTIONS: dict[str, Section] = {
    "graph": {
        "ids": torch.tensor([2**62 + 1, -1]),
        "x": torch.arange(12.0).reshape(3, 4).T,
        "flags": torch.tensor([True, False]),
        "none": torch.empty(0, 3),
    },
    "graph2": {"x": torch.tensor([1.5], dtype=torch.float64)},
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "event.safetensors"
    write_sections(path, SECTIONS, {"b": [1, None], "a": "é"})
    return path


def test_round_trip(path: Path) -> None:
    opened = SectionFile(path)
    assert opened.record == {"b": [1, None], "a": "é"}
    for name, section in SECTIONS.items():
        found = opened.read(name)
        assert found.keys() == section.keys()
        for key, tensor in section.items():
            assert found[key].dtype == tensor.dtype
            assert torch.equal(found[key], tensor)


def test_reading_leaves_nothing_in_memory(path: Path) -> None:
    def read(times: int) -> int:
        for _ in range(times):
            SectionFile(path).read("graph")
        gc.collect()
        return sys.getallocatedblocks()

    before = read(300)  # caches fill
    assert read(1000) - before < 1000


def test_tensors_stay_in_the_file(tmp_path: Path) -> None:
    """Reading takes no memory of the process's own, and what is written stays in it."""
    path, zeros = tmp_path / "large", torch.zeros(1 << 22, dtype=torch.int64)
    write_sections(path, {"graph": {"ids": zeros}}, {})
    before = own_memory()
    found = SectionFile(path).read("graph")["ids"]
    assert own_memory() - before < zeros.nbytes / 4
    found[0] = 7
    assert SectionFile(path).read("graph")["ids"][0] == 0


def own_memory() -> int:
    """Bytes of this process that no file holds."""
    status = Path("/proc/self/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("RssAnon:")]
    return int(line.split()[1]) * 1024


def test_what_was_read_outlives_its_replacement(path: Path) -> None:
    found = SectionFile(path).read("graph2")["x"]
    write_sections(path, {"graph2": {"x": torch.tensor([2.5])}}, {})
    assert found.item() == 1.5
    assert SectionFile(path).read("graph2")["x"].item() == 2.5


def test_the_digest_sees_names_types_shapes_and_values() -> None:
    x = torch.tensor([1.0, 2.0])
    others: list[Section] = [{"x": x + 1}, {"y": x}, {"x": x[None]}, {"x": x.view(torch.int32)}, {}]
    assert len({digest(section) for section in ({"x": x}, *others)}) == 6


def test_damage_in_one_section_leaves_the_others_readable(path: Path) -> None:
    content = bytearray(path.read_bytes())
    at = bytes(content).index(torch.tensor([2**62 + 1]).numpy().tobytes())
    content[at] ^= 4
    path.write_bytes(content)
    opened = SectionFile(path)
    assert opened.read("graph2")["x"].item() == 1.5
    with pytest.raises(InputError, match=r"event\.safetensors.*damaged in section 'graph'"):
        opened.read("graph")
    path.write_bytes(path.read_bytes().replace(b"[1, null]", b"[3, null]"))
    with pytest.raises(InputError, match=r"event\.safetensors.*header does not match"):
        SectionFile(path)


def test_other_files_are_named(path: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        SectionFile(tmp_path / "none")
    foreign = tmp_path / "foreign"
    save_file({"x": torch.ones(1)}, foreign)
    with pytest.raises(InputError, match="not a bigtrk file"):
        SectionFile(foreign)
    save_file({"x": torch.ones(1)}, foreign, metadata={"bigtrk": "{", "digests": "{}"})
    with pytest.raises(InputError, match="not a bigtrk file"):
        SectionFile(foreign)
    with pytest.raises(InputError, match="lacks its section 'particles'"):
        SectionFile(path).read("particles")


def test_a_record_with_nan_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_sections(tmp_path / "new", SECTIONS, {"loss": float("nan")})
    assert list(tmp_path.iterdir()) == []
