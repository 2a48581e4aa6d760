"""The measurement of exported models takes every form of them, and ours."""

from pathlib import Path

from bigtrk.formats.acts.export import export_stages
from scripts.bench.bench_acts import measured
from scripts.physics.as_acts import OPEN
from tests.formats.acts.stages import MODELS, hits_and_edges, stage


def test_every_form_is_measured(tmp_path: Path) -> None:
    made = stage(MODELS["mlp"], "filter")
    files = set(export_stages([made], tmp_path / "models")) - {"README.md"}
    opened = {name: OPEN[name.rpartition(".")[2]](tmp_path / "models" / name) for name in files}
    found = measured(hits_and_edges(120, 1000), made, opened)
    assert sorted(found) == ["onnx", "onnx_edge_attr", "ours", "pt", "pt_edge_attr"]
    assert min(found.values()) > 0
