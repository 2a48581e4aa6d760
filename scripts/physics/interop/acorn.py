"""Checks of acorn's graphs and checkpoints, in and out."""

from itertools import product
from pathlib import Path

import torch
from torch import Tensor

import bigtrk
from bigtrk.api import Graphs
from bigtrk.formats.acorn.export_graphs import export_acorn_folder
from bigtrk.formats.acorn.import_graphs import import_acorn_folder, read_acorn
from bigtrk.formats.acorn.model_files import export_model, import_model, read_model
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.pipeline.models import load_scorer
from bigtrk.training.model_files import load_model
from scripts.physics.interop.check import Check, Found, Material
from tests.formats.acorn.acorn_model import AcornModel, checkpoint, hits, our_scores, settings
from tests.formats.acorn.events import columns, in_older_names, load, write
from tests.formats.acorn.golden import golden_checkpoint, golden_graph, read_golden
from tests.hostile.reader import same

ACORN = "acorn"
MADE_ANEW = ("edge_dr", "dr", "num_nodes", "batch", "ptr")


def come_back(material: Material) -> Found:
    """Compares acorn's graphs that are imported and exported with what they were, bit for bit: both
    naming schemes, both suffixes, Data and DataBatch.
    """
    forms = product((False, True), (".pyg", ".pyg.gz"), (False, True))
    for number, (older, suffix, batch) in enumerate(forms):
        place = material.folder / "acorn" / str(number)
        content = in_older_names(columns(number)) if older else columns(number)
        write(place / "stage" / f"event{number:09d}{suffix}", content, batch)
        import_acorn_folder(place / "stage", place / "graphs")
        [path] = export_acorn_folder(place / "graphs", place / "back")
        found = load(path)
        expected = {name: one for name, one in content.items() if name not in MADE_ANEW}
        if batch:
            expected["config"] = [content["config"]]
        for name, one in expected.items():
            assert same(found[name], one), f"{name} of {path} is another"
    return {}


def given_to_acorn(graphs: Graphs, out: Path) -> Found:
    """Compares graphs from here with themselves, exported to acorn and read back."""
    worst = 0.0
    paths = export_acorn_folder(graphs.folder.path, out)
    for path, graph in zip(paths, graphs, strict=True):
        back = read_acorn(path, graph.name)[0]
        assert torch.equal(back.edge_index.sort(0)[0], graph.edge_index.sort(0)[0])
        assert graph.y is not None
        assert back.y is not None
        assert torch.equal(back.y, graph.y)
        worst = max(worst, _feature_difference(graph, back))
    return {ACORN: worst}


def _feature_difference(graph: EventGraph, back: EventGraph) -> float:
    shared = [name for name in graph.node_feature_names if name in back.node_feature_names]
    assert {"r", "phi", "z", "eta"} <= set(shared)
    ours, theirs = (
        torch.stack([one.node_features[:, one.node_feature_names.index(name)] for name in shared])
        for one in (graph, back)
    )
    return _relative(theirs.double(), ours.double())


def _relative(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max().clamp(min=1.0))


def scores_on_acorns_edges(material: Material) -> Found:
    """Compares the scores in exported files with those of the model, edge by edge."""
    graphs, out = material.graphs, material.folder / "acorn_scored"
    model = bigtrk.load_model(material.classifier)
    paths = export_acorn_folder(graphs.folder.path, out, load_scorer(material.classifier))
    worst = 0.0
    for path, graph in zip(paths, graphs, strict=True):
        found = load(path)
        assert torch.equal(found["edge_index"], graph.edge_index)
        worst = max(worst, _relative(found["edge_scores"].double(), model.score(graph)))
    return {ACORN: worst}


def golden(material: Material) -> Found:
    """Compares the logits of a model that acorn made, imported, with acorn's own."""
    assert material.testdata is not None
    run, tensors = material.folder / "golden", read_golden(material.testdata)
    import_model(golden_checkpoint(material.testdata, run.with_suffix(".ckpt")), run)
    found = bigtrk.load_model(run).score(golden_graph(tensors))
    return {ACORN: _relative(found.logit(), tensors["out.logits"].double())}


def models(material: Material) -> Found:
    """Compares imported models of every shape with acorn's scores, and with themselves after they
    were exported and imported again.
    """
    worst = 0.0
    shapes = product((False, True), (False, True), (False, True), (1, 3))
    for seed, (recurrent, concat, in_out, layers) in enumerate(shapes):
        content = settings(
            concat=concat,
            in_out_diff_agg=in_out,
            node_net_recurrent=recurrent,
            edge_net_recurrent=recurrent,
            n_graph_iters=layers,
        )
        acorn, graph = AcornModel.drawn(seed, content), hits(seed)
        place = material.folder / f"acorn_model{seed}"
        import_model(checkpoint(place.with_suffix(".in"), content, acorn.state_dict()), place)
        export_model(place, place.with_suffix(".out"))
        expected = acorn.scores(graph)
        for stored in (load_model(place), read_model(place.with_suffix(".out"))):
            worst = max(worst, _relative(our_scores(stored, graph), expected))
    return {ACORN: worst}


CHECKS = (
    Check("acorn's graphs come back bit for bit", come_back),
    Check(
        "simulated graphs to acorn and back",
        lambda m: given_to_acorn(m.graphs, m.folder / "to_acorn"),
    ),
    Check(
        "event 1000 to acorn and back",
        lambda m: given_to_acorn(m.real_graphs, m.folder / "event1000_to_acorn"),
        real=True,
    ),
    Check("scores lie on acorn's edges", scores_on_acorns_edges),
    Check("acorn's golden model gives its logits", golden, real=True),
    Check("models of acorn in and out", models),
)
