"""The script that checks what is exchanged counts what passed, failed and was skipped."""

import json
from pathlib import Path

import pytest

from scripts.physics import interop_parity
from scripts.physics.interop.check import Check, Found, Material


def passes(_: Material) -> Found:
    return {"onnx": 2e-6, "read_s": 0.5}


def lacks_a_package(_: Material) -> Found:
    raise ModuleNotFoundError("No module named 'onnxruntime'")


def reads(material: Material) -> Found:
    assert material.testdata is not None
    return {"onnx": 3e-6, "acorn": 0.0}


CHECKS = (
    Check("passes", passes),
    Check("lacks", lacks_a_package),
    Check("reads", reads, real=True),
)


@pytest.mark.parametrize("with_data", [True, False])
def test_what_became_of_each_check(
    with_data: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("BIGTRK_TESTDATA", str(tmp_path if with_data else tmp_path / "nowhere"))
    monkeypatch.setattr(interop_parity, "CHECKS", CHECKS)
    output = tmp_path / "interop.json"
    monkeypatch.setattr("sys.argv", ["interop_parity.py", "--output", str(output)])
    with pytest.raises(SystemExit) as ended:
        interop_parity.main()
    assert ended.value.code == 1
    counts = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert counts == {
        "checks": 3,
        "skipped": int(not with_data),
        "failed": 1,
        "onnx_worst": 3e-6 if with_data else 2e-6,
        "torchscript_worst": None,
        "colliderml_worst": None,
        "acorn_worst": 0.0 if with_data else None,
    }
    content = json.loads(output.read_text())
    assert content["summary"] == counts
    assert [one["name"] for one in content["outcomes"]] == ["passes", "lacks", "reads"]
    assert "onnxruntime" in content["outcomes"][1]["failed"]


def test_it_ends_well_where_all_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interop_parity, "CHECKS", CHECKS[:1])
    monkeypatch.setattr("sys.argv", ["interop_parity.py", "--output", str(tmp_path / "one.json")])
    with pytest.raises(SystemExit) as ended:
        interop_parity.main()
    assert ended.value.code == 0
