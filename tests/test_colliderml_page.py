"""The commands and the script of docs/colliderml.md, in their order, on smaller events."""

import re
import shutil
from pathlib import Path

import pytest

from bigtrk.graphs.storage.graph_folder import GraphFolder
from tests.programs import CHECKOUT, run_here

PAGE = (CHECKOUT / "docs" / "colliderml.md").read_text()
READING = PAGE.partition("## Submission")[0]
CACHE = "CERN__ColliderML-Release-1"


def lay_like_the_cache(sample: Path, folder: Path) -> None:
    """Copies a sample to where the package colliderml downloads one of 200 pile-up."""
    for table in ("tracker_hits", "particles"):
        name = f"ttbar_pu200_{table}"
        shutil.copytree(sample / table, folder / CACHE / name / "data" / name)


def test_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```sh\n(.*?)```", READING, flags=re.DOTALL)
    for command in "".join(blocks).splitlines():
        if CACHE in command:
            lay_like_the_cache(tmp_path / "sample", tmp_path)
        small = re.sub(r"--particles \d+", "--particles 60", command).split()
        status, _, error = run_here(small, monkeypatch, capsys)
        assert status == 0, error
    (script,) = re.findall(r"```python\n(.*?)```", READING, flags=re.DOTALL)
    variables: dict[str, object] = {}
    exec(script, variables)
    assert re.search(r"\d+ hits of 60 particles", capsys.readouterr().out)
    graphs = {name: GraphFolder(tmp_path / name) for name in ("graphs", "others", "released")}
    assert {name: len(folder.events) for name, folder in graphs.items()} == {
        "graphs": 8,
        "others": 4,
        "released": 12,
    }
    for folder in graphs.values():
        assert folder.manifest["parameters"]["from"] == "colliderml"
        efficiency = folder.record(folder.events[0])["target_efficiency"]
        assert efficiency is None or efficiency > 0.8


def test_the_package_downloads_as_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    """Its program has these options; nothing is fetched here."""
    cli = pytest.importorskip("colliderml.cli")
    (command,) = re.findall(r"`colliderml (download [^`]*)`", READING)
    found = cli.build_parser().parse_args(command.split())
    assert (found.channels, found.pileup, found.max_events) == ("ttbar", "pu200", 100)
    assert found.objects == "tracker_hits,particles"
    assert capsys.readouterr().out == ""
