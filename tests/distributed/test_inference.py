"""Events scored in sectors and stitched: the scores and tracks of the whole graph."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.graphs.builders.builder import WindowBuilder, build_with_record
from bigtrk.graphs.builders.windows import builtin_windows
from bigtrk.graphs.storage.graph_folder import GraphFolder, write_graph
from bigtrk.graphs.storage.manifest import write_manifest
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.world import make_world
from bigtrk.records.evaluation import EvaluationRecord, read_evaluations
from bigtrk.records.metrics import MeanEdgeMetrics
from bigtrk.reports.evaluation import evaluation_report
from bigtrk.reports.terminal import show
from bigtrk.tracks.evaluation import TrackOptions
from bigtrk.training.data.batch import BatchMaker
from bigtrk.training.data.event_source import open_events
from bigtrk.training.evaluation.evaluate import evaluate_run
from bigtrk.training.evaluation.scoring import score_events, validate
from bigtrk.training.model_files import build_model, describe
from bigtrk.training.run_folder import save_model
from bigtrk.training.settings import Configuration
from bigtrk.training.steps.routers import scoring_router
from partition.cutting import CutSettings, cut_event
from partition.partitioners import Method
from tests.distributed.ranks import Done, run_all

MODEL = {"hidden": 8, "layers": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two simulated events as `graphs`, cut in 3 as `sectors` and in 2 as `halves`, and a model
    that was not trained.
    """
    folder = tmp_path_factory.mktemp("inference")
    names = []
    for event_id in range(2):
        event = simulate_event(300, seed=3, event_id=event_id)
        graph, record = build_with_record(event, WindowBuilder(builtin_windows()))
        write_graph(folder / "graphs", graph, record)
        names.append(graph.name)
    write_manifest(folder / "graphs", "graphs", {}, names)
    for sectors, parts in (("sectors", 3), ("halves", 2)):
        for name in names:
            cutting = CutSettings(parts, None, Method.METIS, 0)
            cut_event(folder / "graphs", folder / sectors, name, cutting)
        write_manifest(folder / sectors, "sectors", {}, names)
    configuration = Configuration.model_validate({"model": MODEL})
    torch.manual_seed(1)
    weights = build_model(configuration).state_dict()
    # Spread the untrained scores around the cut, so that some edges are kept and some are not.
    weights["decoder.output_weight"] *= 50
    weights["decoder.output_bias"] -= 20.3
    (folder / "run").mkdir()
    save_model(folder / "run", weights, describe(configuration, []))
    return folder


@pytest.fixture(scope="module")
def without_truth(folder: Path) -> Path:
    """One of the events as it is, one of whose edges none is true, and one without edges."""
    known = open_events([folder / "graphs"])[0].folder
    assert isinstance(known, GraphFolder)
    whole = known.read(known.events[0])
    assert whole.y is not None
    fakes = replace(whole, name="fakes", y=torch.zeros_like(whole.y))
    empty = replace(
        whole,
        name="empty",
        edge_index=whole.edge_index[:, :0],
        edge_features=whole.edge_features[:0],
        y=whole.y[:0],
    )
    graphs = (whole, fakes, empty)
    for graph in graphs:
        write_graph(folder / "fakes", graph, {"nodes": graph.n_nodes, "edges": graph.n_edges})
    write_manifest(folder / "fakes", "graphs", {}, [graph.name for graph in graphs])
    return folder


def scores(ranks: Ranks, data: Path, several: bool = False) -> dict[str, torch.Tensor]:
    configuration = Configuration.model_validate({"model": MODEL})
    sources = open_events([data])
    router = scoring_router(sources, ranks.world_size, several)
    maker = BatchMaker(configuration, make_world(ranks, router.num_ranks))
    scored = score_events(build_model(configuration), maker, sources, router)
    return {sources[event.event].name: event.logits for event in scored}


def evaluated(ranks: Ranks, folder: Path, data: str) -> EvaluationRecord:
    options = TrackOptions(pt_min=0.5, scan_cuts=(0.45, 0.55))
    return evaluate_run(folder / "run", [folder / data], options, ranks)


def validated(ranks: Ranks, folder: Path, data: str) -> MeanEdgeMetrics:
    configuration = Configuration.model_validate({"model": MODEL})
    sources = open_events([folder / data])
    router = scoring_router(sources, ranks.world_size)
    maker = BatchMaker(configuration, make_world(ranks, router.num_ranks))
    return validate(build_model(configuration), maker, sources, router, configuration.training)


@pytest.fixture(scope="module")
def both_ways(without_truth: Path) -> Path:
    """One of the events with each edge in both directions, whole and in two sectors."""
    folder = without_truth
    graph = GraphFolder(folder / "graphs").read("event000000000")
    assert graph.y is not None
    doubled = replace(
        graph,
        edge_index=torch.cat([graph.edge_index, graph.edge_index.flip(0)], dim=1),
        edge_features=torch.cat([graph.edge_features, -graph.edge_features]),
        y=graph.y.repeat(2),
    )
    sizes = {"nodes": doubled.n_nodes, "edges": doubled.n_edges}
    write_graph(folder / "both", doubled, sizes)
    write_manifest(folder / "both", "graphs", {}, [graph.name])
    cutting = CutSettings(2, None, Method.METIS, 0)
    cut_event(folder / "both", folder / "both halves", graph.name, cutting)
    write_manifest(folder / "both halves", "sectors", {}, [graph.name])
    return folder


@pytest.fixture(scope="module")
def done(both_ways: Path) -> Done:
    """Each number of ranks starts once. Of four ranks two share the one event and two the other."""
    folder = both_ways
    whole = folder / "graphs"
    works: dict[int, dict[str, Any]] = {
        1: {
            "scores": (scores, (whole,)),
            "evaluated": (evaluated, (folder, "graphs")),
            "fakes": (evaluated, (folder, "fakes")),
            "validated fakes": (validated, (folder, "fakes")),
            "several": (scores, (folder / "sectors", True)),
            "sectors": (evaluated, (folder, "sectors")),
            "both": (evaluated, (folder, "both")),
        },
        2: {
            "scores": (scores, (folder / "sectors",)),
            "several": (scores, (folder / "sectors", True)),
            "evaluated": (evaluated, (folder, "sectors")),
            "both": (evaluated, (folder, "both halves")),
        },
        3: {
            "scores": (scores, (folder / "sectors",)),
            "evaluated": (evaluated, (folder, "sectors")),
        },
        4: {"evaluated": (evaluated, (folder, "halves"))},
    }
    return Done({n: run_all(n, of_n) for n, of_n in works.items()}, folder)


def test_stitched_scores_are_those_of_the_whole_graph(done: Done) -> None:
    [whole] = done.of[1]["scores"]
    for world_size, way in ((2, "scores"), (3, "scores"), (1, "several"), (2, "several")):
        parts = done.of[world_size][way]
        stitched = {name: logits for part in parts for name, logits in part.items()}
        assert stitched.keys() == whole.keys()
        for name, logits in whole.items():
            torch.testing.assert_close(stitched[name], logits, rtol=1e-5, atol=1e-6)


def test_tracks_from_sectors_are_those_of_the_whole_graph(done: Done) -> None:
    [whole] = done.of[1]["evaluated"]
    assert whole.tracks.matching[0].n_tracks > 0
    expected = whole.edge_metrics.model_dump(exclude={"log_pt_error", "cuts"})
    several = (*done.of[1]["sectors"], *done.of[2]["evaluated"])
    for result in (*several, *done.of[3]["evaluated"], *done.of[4]["evaluated"]):
        assert result.tracks == whole.tracks
        assert result.edge_metrics.log_pt_error is None, "no head"
        found = result.edge_metrics.model_dump(exclude={"log_pt_error", "cuts"})
        assert found == pytest.approx(expected, rel=1e-5)
        assert result.edge_metrics.cuts == pytest.approx(whole.edge_metrics.cuts, rel=1e-5)
        assert result.edge_bins == whole.edge_bins


def test_edges_in_both_directions_count_once(done: Done) -> None:
    once = GraphFolder(done.folder / "graphs").read("event000000000")
    assert once.y is not None
    [whole] = done.of[1]["both"]
    for result in (whole, *done.of[2]["both"]):
        assert (result.edges, result.edge_metrics.n_target) == (once.n_edges, int(once.y.sum()))
        assert result.edge_metrics.auc == pytest.approx(whole.edge_metrics.auc, rel=1e-5)
        assert result.edge_bins == whole.edge_bins
        assert result.scores == whole.scores


def test_an_event_without_true_edges_has_no_auc_and_that_is_said(done: Done) -> None:
    [known], [result] = done.of[1]["evaluated"], done.of[1]["fakes"]
    metrics = result.edge_metrics
    assert (metrics.events_skipped, metrics.events_without_auc) == (2, 2)
    assert 0 < metrics.auc < 1
    assert known.edge_metrics.events_without_auc == 0
    out = io.StringIO()
    show(evaluation_report(result), Console(file=out))
    text = " ".join(out.getvalue().split())
    assert "2 events lack a metric, 2 AUC: undefined unless target and other edges are" in text
    assert "nan" not in text.lower()
    assert result in read_evaluations(EvaluationRecord, done.folder / "run")
    # All particles of the event without edges are lost for want of these.
    wanted = result.tracks.matching[1].n_particles
    assert result.tracks.losses["no_true_edges"] >= wanted // 3 > 0

    [scores] = done.of[1]["validated fakes"]
    assert (scores.events_without_auc, scores.events_skipped) == (2, 2)
