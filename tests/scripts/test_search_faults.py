"""The accounts of scripts/faults/search_faults.py: what is lost, what is done twice."""

import json
import random
from pathlib import Path

import pytest

from bigtrk.records.search import Storage
from bigtrk.studies.search.space import Range, Space
from bigtrk.studies.search.study import SharedStudy
from scripts.docs.tables.fault_tables import search_faults
from scripts.faults.search_faults import VICTIMS, lost, trained_sets, twice, victims

SETTINGS: dict[str, Range] = {
    "optimizer.lr": Range(low=1e-4, high=0.1, log=True),
    "model.hidden": Range(low=4, high=12),
}


@pytest.mark.parametrize("kills", [0, 2, 3, 5, 9])
def test_each_kind_is_killed(kills: int) -> None:
    drawn = victims(kills, random.Random(1))
    assert len(drawn) == kills
    assert set(drawn) == set(VICTIMS) or kills < len(VICTIMS)
    assert drawn == victims(kills, random.Random(1))


@pytest.mark.parametrize("storage", ["sqlite", "journal"])
def test_what_is_lost_and_what_is_done_twice(tmp_path: Path, storage: Storage) -> None:
    pytest.importorskip("optuna")
    folder = tmp_path / "search"
    folder.mkdir()
    study = SharedStudy(folder, Space("loss", SETTINGS, "random", None, 0), storage)
    for number in range(4):
        assert study.draw(4) == number
        values = study.settings(number)
        write(folder / f"trial{number:04d}", values["optimizer.lr"], values["model.hidden"])
    assert lost(tmp_path, 4, storage) == 4
    study.finish(0, 0.5)
    study.finish(1, None)
    study.finish(2, None, "it failed")
    assert lost(tmp_path, 4, storage) == 2, "one failed, one trains"
    assert lost(tmp_path, 5, storage) == 3, "one was not drawn"
    assert [name for name, _ in trained_sets(tmp_path)] == [f"trial000{i}" for i in range(4)]
    assert twice(tmp_path) == []
    first = study.settings(0)
    write(folder / "trial0009", first["optimizer.lr"], first["model.hidden"])
    path = folder / "trial0001" / "metrics.jsonl"
    path.write_text(path.read_text() + epoch(1))
    found = twice(tmp_path)
    assert len(found) == 2
    assert found[0].endswith("in 2 folders")
    assert found[1] == "epoch 1 2 times in trial0001"


def write(run: Path, rate: float, hidden: int) -> None:
    run.mkdir()
    config = {"optimizer": {"lr": rate}, "model": {"hidden": hidden}}
    (run / "run.json").write_text(json.dumps({"config": config}))
    step = json.dumps({"kind": "step", "epoch": 1, "step": 3}) + "\n"
    (run / "metrics.jsonl").write_text(epoch(0) + step + epoch(1))


def epoch(number: int) -> str:
    return json.dumps({"kind": "epoch", "epoch": number}) + "\n"


def test_the_table_has_a_row_for_each_kill() -> None:
    kill = {"victim": "rank", "seconds": 12.3, "trial": "trial0003"}
    trials = [{"state": "complete"}, {"state": "pruned"}, {"state": "pruned"}]
    table = search_faults({"kills": [kill], "trials": trials, "seconds": 99.6})
    assert table.rows == [
        ["12 s", "kill -9 of a rank", "trial0003"],
        ["100 s", "the end: 1 complete, 2 pruned", ""],
    ]
