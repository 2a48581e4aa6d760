"""`training.auto=true` on ranks: one choice for all, recorded, and kept when the run is resumed."""

from pathlib import Path
from typing import Any

import pytest

from bigtrk.config import parse
from bigtrk.cost.machines import find_machine
from bigtrk.errors import InputError
from bigtrk.parallel.ranks import Ranks
from bigtrk.records.run_folder import read_run_record
from bigtrk.training.automatic import settle
from bigtrk.training.data.event_source import Events, open_events, split_validation
from bigtrk.training.fitting import make_cost
from bigtrk.training.settings import Configuration
from tests.distributed.ranks import run_all, run_ranks
from tests.distributed.runs import fit, losses, train

WORLD = 2


def settings(graphs: Path, run: Path, **sections: dict[str, Any]) -> Configuration:
    training = {"auto": True, "epochs": 2, "events_per_step": 2, **sections.pop("training", {})}
    model = {"hidden": 8, "layers": 2, **sections.pop("model", {})}
    content = {
        "data": {"train": [graphs / "graphs", graphs / "sectors"], "validation": 1},
        "model": model,
        "training": training,
        "run": {"folder": run},
        **sections,
    }
    return Configuration.model_validate(content)


def chosen(ranks: Ranks, configuration: Configuration) -> str:
    """Returns what a rank trains with, or why it does not."""
    sources = open_events(configuration.data.train)
    try:
        return settle(configuration, ranks, sources).model_dump_json()
    except InputError as error:
        return str(error)


def fit_recorded(ranks: Ranks, run: Path, again: Path) -> None:
    """Trains what a run has recorded, in another folder, with nothing left to choose."""
    content = read_run_record(run).config
    content["training"]["auto"], content["run"]["folder"] = False, str(again)
    configuration = parse(Configuration, content, str(run))
    fit(configuration, ranks, Events(*split_validation(configuration.data.train, 1)), None)


def test_a_choice_is_recorded_and_trained_and_kept(
    graphs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run, again = tmp_path / "run", tmp_path / "again"
    run_ranks(WORLD, train, settings(graphs, run))
    lines = [line for line in capfd.readouterr().out.splitlines() if "training.auto: " in line]
    assert len(lines) == 1
    recorded = read_run_record(run).config
    assert recorded["training"]["auto"] is True
    assert f"model.recompute={recorded['model']['recompute']}" in lines[0]
    assert f"engine.name={recorded['engine']['name']}" in lines[0]
    assert recorded["training"]["memory_gib"] > 0
    run_ranks(WORLD, fit_recorded, run, again)
    assert losses(again) == pytest.approx(losses(run), rel=1e-6)
    run_ranks(1, train, settings(graphs, run), run, "training.routing=stored")
    assert "training.auto: " not in capfd.readouterr().out
    resumed = read_run_record(run).config
    assert len(losses(run)) == len(losses(again)) * 3 // 2
    for section in ("model", "engine"):
        assert resumed[section] == recorded[section]
    assert resumed["training"]["memory_gib"] == recorded["training"]["memory_gib"]


def test_all_ranks_have_one_choice_and_what_is_configured_stays(
    graphs: Path, tmp_path: Path
) -> None:
    kept = settings(
        graphs,
        tmp_path,
        model={"recompute": "layer", "precision": "bf16"},
        engine={"name": "fsdp2"},
        training={"memory_gib": 3.25},
    )
    works = {"free": (chosen, (settings(graphs, tmp_path),)), "kept": (chosen, (kept,))}
    made = run_all(WORLD, works)
    assert made["free"][0] == made["free"][1]
    found = Configuration.model_validate_json(made["kept"][1])
    assert (found.model.recompute, found.model.precision) == ("layer", "bf16")
    assert (found.engine.name, found.training.memory_gib) == ("fsdp2", 3.25)
    assert found == kept


def test_too_little_memory_is_one_line_on_all_ranks(graphs: Path, tmp_path: Path) -> None:
    configuration = settings(graphs, tmp_path, training={"memory_gib": 0.1})
    one, other = run_ranks(WORLD, chosen, configuration)
    assert one == other
    assert "training.auto: no choice of settings fits all events" in one
    assert "\n" not in one
    enough = float(one.split("; at least ")[1].split()[0])
    roomy = settings(graphs, tmp_path, training={"memory_gib": enough})
    found = Configuration.model_validate_json(run_ranks(WORLD, chosen, roomy)[0])
    cost = make_cost(found, WORLD, WORLD, find_machine(None))
    sources = open_events(found.data.train)
    assert all(
        min(cost.memory(source.size, k, k).total for k in (1, source.parts)) <= enough * 2**30
        for source in sources
    )
