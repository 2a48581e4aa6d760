"""The examples of the pages "Add a ..." run, and do what the pages say."""

import re
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
import torch

from bigtrk import user_code
from bigtrk.cost.footprint import footprint
from bigtrk.errors import InputError
from bigtrk.events.reader import READERS, find_events, format_of, read_event
from bigtrk.formats.registry import GRAPH_READERS, Format
from bigtrk.graphs.event_graph import whole_sector
from bigtrk.graphs.storage.event_folder import GraphFolder
from bigtrk.models.protocol import no_exchange
from bigtrk.models.settings import PyGConfig, UserModelConfig, make_model
from bigtrk.parallel.engines import ddp
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.settings import EngineSettings
from bigtrk.proof.prove import check_model, prove
from bigtrk.records.metrics import StepRecord
from bigtrk.records.run_folder import read_run
from bigtrk.tracks.builders.registry import BUILDERS
from bigtrk.tracks.names import BuilderName
from bigtrk.training.data.batch import load_features
from bigtrk.training.loss import check_loss
from bigtrk.training.monitoring.loggers import LOGGERS, check_loggers, open_logger
from bigtrk.training.settings import DataSettings
from bigtrk.user_code import allow_code
from partition.cutting import CutSettings, divide
from partition.partitioners import PARTITIONERS, Method
from partition.sectors import cut
from tests.distributed.graphs import random_graph, sources
from tests.distributed.parity import Oracle, worst
from tests.distributed.ranks import run_ranks
from tests.distributed.test_engines import configuration, first_steps, updated_weights
from tests.models.graphs import Cut, F, G, gradients, make_graph
from tests.programs import CHECKOUT, Run, output_of, run_in_one
from tests.tracks.builders import test_every_builder as every_builder
from tests.tracks.builders.graphs import on_a_line

PAGES = CHECKOUT / "docs" / "adding"


def example(page: str) -> ModuleType:
    """The module that the page's block of Python makes."""
    (block,) = blocks(page, "python")
    return _module(f"adding_{Path(page).stem}", block)


def blocks(page: str, language: str) -> list[str]:
    """The texts of the page's blocks in a language."""
    text = (PAGES / page).read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def _module(name: str, source: str) -> ModuleType:
    module = sys.modules[name] = ModuleType(name)
    exec(compile(source, name, "exec"), module.__dict__)
    return module


def test_the_model_trains_in_sectors_as_in_the_whole_graph() -> None:
    """Each gradient is the same in float64, too, from sectors of one process, one of them empty."""
    model = example("model.md").SumsConfig(hidden=5, layers=3).build(F, G, False).double()
    graph = make_graph()
    sectors, expected = Cut(graph), model(*graph, len(graph[0]), no_exchange)
    wanted = gradients(model, expected)
    made = sectors.merged(model.forward_all(sectors.sectors, sectors.exchange))
    torch.testing.assert_close(made, expected, rtol=1e-12, atol=1e-12)
    found = gradients(model, made)
    assert found.keys() == {name for name, _ in model.named_parameters()}
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-11, atol=1e-11, msg=name)


def test_a_model_of_ones_own_is_named_by_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_code, "_allowed", set())
    own = example("own_model.md").__name__
    allow_code([own])
    config = UserModelConfig(name=f"{own}:Sums", options={"hidden": 8})
    model = config.build(4, 6, pt_head=False)
    assert check_model(model, 4, 6) == [8, 8]
    assert prove(model, 4, 6).exact
    assert footprint(config, 4, 6, cut=True).exchanged == (32, 32)
    assert not footprint(config, 4, 6, cut=True).measured


def test_the_network_of_pyg_is_trained_without_a_word_about_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(user_code, "_allowed", set())
    net = example("pyg.md").Net
    allow_code([net.__module__])
    options = {"module": f"{net.__module__}:Net", "width": 5}
    model = make_model(PyGConfig.model_validate({"options": options}), F, G)
    assert check_model(model, F, G) == [5, 5]
    assert prove(model, F, G).exact


def test_the_reader_reads_as_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(READERS, "text", f"{example('reader.md').__name__}:find_text")
    (tmp_path / "event7.txt").write_text("30 0 1 8 2 1\n70 0 2 8 4 1\n")
    assert find_events(tmp_path) == ["event7"]
    assert read_event(tmp_path).hits["layer_id"].tolist() == [2, 4]
    assert format_of(tmp_path) == "text"
    (tmp_path / "event7.txt").write_text("30 0 1\n")
    with pytest.raises(InputError, match=r"event7\.txt: cannot be read \(.*\); write it again"):
        read_event(tmp_path)
    (tmp_path / "event7.txt").write_text("30 0 1 8 2 1\n70 nan 2 8 4 1\n")
    with pytest.raises(InputError, match="event7: y of hit 1 is not a finite number"):
        read_event(tmp_path)


def test_the_format_is_imported_as_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    form = Format(f"{example('format.md').__name__}:import_text")
    monkeypatch.setitem(GRAPH_READERS, "text", form)
    (tmp_path / "event7.hits").write_text("30 0.1 1\n70 0.1 2\n")
    (tmp_path / "event7.edges").write_text("0\n1\n")
    GRAPH_READERS["text"](tmp_path, tmp_path / "graphs", prefix="a-")
    assert GraphFolder(tmp_path / "graphs").read("a-event7").n_edges == 1


def test_the_partitioner_cuts_as_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    slabs = example("partitioner.md").slabs
    monkeypatch.setitem(PARTITIONERS, Method.WEDGES, slabs)
    graph = random_graph(3, 200, 1600)
    part, parts, _ = divide(graph, CutSettings(8, None, Method.WEDGES, 0))
    z = graph.node_features[:, 2].numpy()
    order = z.argsort()
    assert (part[order] == sorted(part)).all()
    assert set(part) == set(range(parts)) == set(range(8))
    assert (part * 2 // 8 == divide(graph, CutSettings(2, None, Method.WEDGES, 0))[0]).all()
    sectors = cut(graph, torch.from_numpy(part), parts)
    assert sum(int(sector.owns_edge.sum()) for sector in sectors) == graph.n_edges
    edges = [sector.n_edges for sector in sectors]
    assert max(edges) < 1.3 * sum(edges) / parts


def first_steps_of_the_engine(ranks: Ranks) -> list[dict[str, Any]]:
    with mock.patch.object(ddp, "SPEC", example("engine.md").SPEC):
        return first_steps(ranks, [configuration(EngineSettings())])


def test_the_engine_trains_like_one_process() -> None:
    for found in run_ranks(2, first_steps_of_the_engine):
        (step,) = found
        assert step["name"] == "one by one"
        settings = configuration(EngineSettings())
        oracle = Oracle(settings, [event.graph for event in sources()])
        assert abs(step["loss"] - oracle.loss()) < 1e-14
        expected = oracle.gradients()
        assert worst(step["gradients"], expected) < 1e-13
        assert worst(step["weights"], updated_weights(settings, expected)) < 1e-9


def test_the_logger_logs_the_records_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LOGGERS, "csv", example("logger.md").open_csv)
    check_loggers(["csv"])
    with open_logger("csv", tmp_path) as log:
        log(StepRecord(epoch=0, step=7, loss=0.5, events=1, edges=30, seconds=2.0))
    rows = [line.split(",") for line in (tmp_path / "scalars.csv").read_text().splitlines()]
    assert ["step/loss", "7", "0.5"] in rows
    assert ["step/edges", "7", "30.0"] in rows


def test_the_track_builder_makes_tracks_as_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    hysteresis = example("track_builder.md").Hysteresis
    graph = on_a_line([(0, 2, 0.6), (2, 4, 0.95), (1, 3, 0.6), (3, 5, 0.9), (4, 5, 0.5)], 6)
    assert hysteresis()(graph, 3).tolist() == [0, -1, 0, -1, 0, -1]
    assert hysteresis(sure=0.8)(graph, 3).tolist() == [0, 1, 0, 1, 0, 1]
    monkeypatch.setitem(BUILDERS, BuilderName.COMPONENTS, hysteresis)
    every_builder.test_the_order_of_edges_is_nothing_to_it(BuilderName.COMPONENTS)
    every_builder.test_the_score_cut_is_given_or_its_own(BuilderName.COMPONENTS)


def test_features_and_a_loss_train_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_program: Run
) -> None:
    """Other commands take the module as trusted."""
    (module,), (command,) = (blocks("features_and_losses.md", kind) for kind in ("python", "shell"))
    (tmp_path / "mine.py").write_text(module)
    program, *settings = shlex.split(command.removeprefix("bigtrk "))
    assert program == "train"
    small = "model.hidden=8 model.layers=1 training.epochs=1"
    trains = [
        "bigtrk simulate events --events 3 --particles 30 --seed 3",
        "bigtrk build events graphs",
        f"bigtrk/train.py {' '.join(settings)} {small}",
    ]
    run_in_one(trains, tmp_path)
    reads = [
        "bigtrk evaluate runs/0001 graphs --code mine",
        "bigtrk infer runs/0001 graphs tracks --code mine",
        "bigtrk filter runs/0001 graphs thinned --score-cut 0.1 --code mine",
        "bigtrk resume runs/0001 training.epochs=2 --code mine",
    ]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for command in reads:
        monkeypatch.setattr(user_code, "_allowed", set())
        output_of(run_program(command.split()))
    del sys.modules["mine"]
    run = read_run(tmp_path / "runs" / "0001")
    assert len(run.epochs) == 2
    measured = run.record.measured
    assert (*measured.nodes, *measured.edges) == ("mine:radius", "mine:curvature")
    assert {*run.record.code} == {"mine:radius", "mine:curvature", "mine:margin"}
    (evaluation,) = run.evaluations
    assert run.epochs[0].validation is not None
    expected = run.epochs[0].validation.loss
    assert evaluation.edge_metrics.loss == pytest.approx(expected, rel=1e-5)


def test_the_features_and_the_loss_keep_their_promises() -> None:
    example("features_and_losses.md")
    own = "adding_features_and_losses"
    allow_code([own])
    check_loss(f"{own}:margin", torch.device("cpu"))
    data = DataSettings(
        node_features=["r", f"{own}:radius"], edge_features=["dz", f"{own}:curvature"]
    )
    load_features(data).computed.check_by_row(whole_sector(random_graph(3, 200, 1600)))
