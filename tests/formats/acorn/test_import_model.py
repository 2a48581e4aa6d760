"""A model of acorn's, imported, gives for our features what acorn gives for its own."""

import json
import math
from pathlib import Path

import pytest
import torch

import bigtrk
from bigtrk.errors import InputError
from bigtrk.formats.acorn.model_files import read_model
from bigtrk.graphs.features import EDGE_FEATURES
from bigtrk.reports.model_card import CARD
from bigtrk.training.checkpoint.folder import last_good
from tests.distributed.graphs import write_graphs
from tests.formats.acorn.acorn_model import (
    TWELVE,
    UNITS,
    AcornModel,
    checkpoint,
    hits,
    lightning_settings,
    our_scores,
    settings,
)
from tests.formats.acorn.golden import golden_checkpoint, golden_graph, read_golden
from tests.programs import Run, output_of

FOUR = ["r", "phi", "z", "eta"]
ROUNDED = [1000.0, 3.14, 1000.0, 1.0]
# Node features, their scales and the widest azimuth: acorn turns dphi at its scale, not at pi.
SCALES: dict[str, tuple[list[str], list[float], float]] = {
    "usual": (TWELVE, UNITS, math.pi),
    "rounded pi": (TWELVE, ROUNDED * 3, 1.5),
    "odd": (TWELVE, [250.0, 2.0, 400.0, 3.0] * 3, 1.0),
    "no clusters": (FOUR, UNITS[:4], math.pi),
    "no eta, not scaled": (["r", "phi", "z"], [1.0, 1.0, 1.0], 0.5),
    "prefixed": ([f"hit_{name}" for name in TWELVE], UNITS, math.pi),
}


# concat, in_out, recurrent, checkpointing, iterations, layers: pairwise.
OPTIONS = [
    (True, True, True, True, 3, 1),
    (True, False, False, True, 1, 3),
    (False, True, False, False, 3, 3),
    (False, False, True, False, 1, 1),
    (False, True, True, True, 1, 3),
    (True, False, True, False, 3, 3),
]


@pytest.mark.parametrize(("scales", "options"), list(zip(SCALES, OPTIONS, strict=True)))
def test_all_options_give_acorns_scores(
    scales: str, options: tuple[bool, bool, bool, bool, int, int], tmp_path: Path
) -> None:
    names, units, widest = SCALES[scales]
    edges = ["dz", "phislope", "dphi"] if scales == "odd" else list(EDGE_FEATURES)
    if scales == "prefixed":
        edges = [f"edge_{name}" for name in edges]
    concat, in_out, recurrent, checkpointing, iterations, layers = options
    content = settings(
        node_features=names,
        node_scales=units,
        edge_features=edges,
        n_graph_iters=iterations,
        **dict.fromkeys(("n_node_net_layers", "n_edge_net_layers"), layers),
        n_edge_decoder_layers=layers,
        concat=concat,
        in_out_diff_agg=in_out,
        node_net_recurrent=recurrent,
        edge_net_recurrent=recurrent,
        checkpointing=checkpointing,
    )
    acorn, graph = AcornModel.drawn(1, content), hits(1, widest)
    stored = read_model(checkpoint(tmp_path / "a.ckpt", content, acorn.state_dict()))
    expected = acorn.scores(graph)
    assert expected.std() > 1e-3, "scores that do not differ show nothing"
    torch.testing.assert_close(our_scores(stored, graph), expected, rtol=0, atol=1e-6)


def test_acorns_own_model_gives_its_own_logits(
    testdata: Path, workdir: Path, run_program: Run
) -> None:
    """The commands, as a user types them: imported, scored in Python, evaluated, reported."""
    golden = read_golden(testdata)
    file = golden_checkpoint(testdata, workdir / "golden.ckpt")
    command = ["bigtrk", "import-model", "acorn", str(file), "run"]
    assert output_of(run_program(command)) == "run: a model of 11,969 parameters\n"
    files = sorted(path.name for path in Path("run").iterdir())
    assert files == [CARD, "config.json", "model.safetensors", "run.json"]
    with pytest.raises(InputError, match=r"no checkpoint to resume from.*model\.init_from"):
        last_good(Path("run"))
    graph, logits = golden_graph(golden), golden["out.logits"]
    found = bigtrk.load_model("run").score(graph)
    torch.testing.assert_close(found, logits.sigmoid().double(), rtol=0, atol=1e-6)
    write_graphs(Path("graphs"), [graph])
    said = output_of(run_program(["bigtrk", "evaluate", "run", "graphs", "--json"]))
    found_loss = json.loads(said)["edge_metrics"]["loss"]
    assert found_loss == pytest.approx(golden["out.loss"].item(), rel=1e-5)
    card = Path("run", CARD).read_text("utf-8")
    assert "### Evaluation on 1 event of" in card
    assert "what it was trained on is not known" in card
    said = output_of(run_program(["bigtrk", "report", "run"]))
    assert "imported from acorn's golden.ckpt" in said


def test_what_lightning_writes_beside_the_weights_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its class of settings, paths and counters are named in the file, and none is loaded."""
    content = settings()
    acorn = AcornModel.drawn(0, content)
    state, graph = acorn.state_dict(), hits(0)
    kept = lightning_settings(monkeypatch, content)
    file = checkpoint(tmp_path / "a.ckpt", kept, state)
    monkeypatch.undo()
    expected = acorn.scores(graph)
    torch.testing.assert_close(our_scores(read_model(file), graph), expected, rtol=0, atol=1e-6)
