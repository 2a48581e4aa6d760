"""Events scored in sectors and stitched: the scores and tracks of the whole graph."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.graphs.builders.builder import WindowBuilder, build_with_record
from bigtrk.graphs.builders.windows import builtin_windows
from bigtrk.graphs.storage.event_folder import GraphFolder, write_manifest
from bigtrk.graphs.storage.graph_folder import write_graph
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.world import make_world
from bigtrk.records.evaluation import EvaluationRecord
from bigtrk.tracks.evaluation import TrackOptions
from bigtrk.training.data.batch import BatchMaker
from bigtrk.training.data.event_source import open_events
from bigtrk.training.evaluation.evaluate import evaluate_run
from bigtrk.training.evaluation.scoring import score_events
from bigtrk.training.model_files import build_model, describe
from bigtrk.training.run_folder import save_model
from bigtrk.training.settings import Configuration
from bigtrk.training.steps import scoring_router
from partition.cutting import CutSettings, cut_event
from partition.partitioners import Method
from tests.distributed.graphs import write_graphs
from tests.distributed.ranks import Done, run_all

MODEL = {"hidden": 8, "layers": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two simulated events as `graphs`, cut in 3 as `sectors` and in 2 as `halves`; one with
    each edge in both directions, as `both` and `both halves`; and a model that was not trained.
    """
    folder = tmp_path_factory.mktemp("inference")
    names = []
    for event_id in range(2):
        event = simulate_event(300, seed=3, event_id=event_id)
        graph, record = build_with_record(event, WindowBuilder(builtin_windows()))
        write_graph(folder / "graphs", graph, record)
        names.append(graph.name)
    write_manifest(folder / "graphs", "graphs", {}, names)
    assert graph.y is not None
    doubled = replace(
        graph,
        edge_index=torch.cat([graph.edge_index, graph.edge_index.flip(0)], dim=1),
        edge_features=torch.cat([graph.edge_features, -graph.edge_features]),
        y=graph.y.repeat(2),
    )
    write_graphs(folder / "both", [doubled])
    cuts = {"sectors": ("graphs", 3), "halves": ("graphs", 2), "both halves": ("both", 2)}
    for sectors, (graphs, parts) in cuts.items():
        cut = names[1:] if graphs == "both" else names
        for name in cut:
            cutting = CutSettings(parts, None, Method.METIS, 0)
            cut_event(folder / graphs, folder / sectors, name, cutting)
        write_manifest(folder / sectors, "sectors", {}, cut)
    configuration = Configuration.model_validate({"model": MODEL})
    torch.manual_seed(1)
    weights = build_model(configuration).state_dict()
    # Spread the untrained scores around the cut, so that some edges are kept and some are not.
    weights["decoder.output_weight"] *= 50
    weights["decoder.output_bias"] -= 20.3
    (folder / "run").mkdir()
    save_model(folder / "run", weights, describe(configuration, []))
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


@pytest.fixture(scope="module")
def done(folder: Path) -> Done:
    """Each number of ranks starts once. Of four ranks two share the one event and two the other."""
    whole = folder / "graphs"
    works: dict[int, dict[str, Any]] = {
        1: {
            "scores": (scores, (whole,)),
            "evaluated": (evaluated, (folder, "graphs")),
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
    once = GraphFolder(done.folder / "graphs").read("event000000001")
    assert once.y is not None
    [whole] = done.of[1]["both"]
    for result in (whole, *done.of[2]["both"]):
        assert (result.edges, result.edge_metrics.n_target) == (once.n_edges, int(once.y.sum()))
        assert result.edge_metrics.auc == pytest.approx(whole.edge_metrics.auc, rel=1e-5)
        assert result.edge_bins == whole.edge_bins
        assert result.scores == whole.scores
