"""The manifest of a folder says what lies in it."""

from pathlib import Path

import pytest
import torch

import bigtrk
from bigtrk.errors import InputError
from bigtrk.graphs.storage.event_folder import (
    MANIFEST,
    SectionFile,
    file_of,
    read_manifest,
    write_manifest,
    write_sections,
)


def test_assembled_from_the_files(tmp_path: Path) -> None:
    for number, name in enumerate(("b", "a", "left out")):
        write_sections(
            file_of(tmp_path, name), {"graph": {"x": torch.tensor([number])}}, {"edges": number}
        )
    written = write_manifest(tmp_path, "graphs", {"cut": 1}, iter(["b", "a"]))
    kind, manifest = read_manifest(tmp_path)
    assert kind == "graphs"
    assert manifest == written
    assert manifest["parameters"] == {"cut": 1}
    assert manifest["software"]["bigtrk"] == bigtrk.__version__
    assert list(manifest["events"]) == ["a", "b"]
    for name, edges in (("a", 1), ("b", 0)):
        path = file_of(tmp_path, name)
        assert manifest["events"][name] == {
            "file": path.name,
            "bytes": path.stat().st_size,
            "digests": SectionFile(path).digests,
            "edges": edges,
        }


def test_folders_without_one_are_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name, said in (
        ("", r"holds no .*bigtrk build"),
        ("file", "file: is a file; name the folder of graphs or sectors"),
        ("none", r"no such folder; .*bigtrk build"),
    ):
        with pytest.raises(InputError, match=said):
            read_manifest(tmp_path / name)
    (tmp_path / "event1-hits.csv.gz").touch()
    with pytest.raises(
        InputError, match="holds events, not graphs; make graphs with 'bigtrk build"
    ):
        read_manifest(tmp_path)
    for content in ("[]", "{}", "{", '{"format": "bigtrk graphs", "events": {}}'):
        (tmp_path / MANIFEST).write_text(content)
        with pytest.raises(InputError, match=rf"{MANIFEST}: .*older version, .*has no checksum"):
            read_manifest(tmp_path)
