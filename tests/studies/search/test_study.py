"""The study of a search, in each storage: what is drawn, pruned, and what survives a kill."""

import json
import multiprocessing
from pathlib import Path
from typing import Any, get_args

import pytest

from bigtrk.errors import InputError
from bigtrk.records.search import Storage
from bigtrk.studies.search.journal import cut_half_line
from bigtrk.studies.search.space import Choices, Pruning, Range, Space
from bigtrk.studies.search.study import FILES, NAME, SharedStudy

optuna = pytest.importorskip("optuna")

STORAGES: tuple[Storage, ...] = get_args(Storage)
FEATURES = Choices((["r", "z"], ["r", "phi", "z"]))
SETTINGS: dict[str, Range | Choices] = {
    "optimizer.lr": Range(low=1e-4, high=0.1, log=True),
    "model.hidden": Range(low=8, high=64, step=8),
    "data.node_features": FEATURES,
}
SPACE = Space("train_loss", SETTINGS, "tpe", Pruning(first=1, factor=2), seed=3)


@pytest.fixture(params=STORAGES)
def storage(request: pytest.FixtureRequest) -> Any:
    return request.param


def raw_study(folder: Path, storage: Storage) -> Any:
    """The study as Optuna itself reads it."""
    place: Any = f"sqlite:///{folder / FILES[storage]}"
    if storage == "journal":
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        place = JournalStorage(JournalFileBackend(str(folder / FILES[storage])))
    return optuna.load_study(study_name=NAME, storage=place)


def test_draws_are_of_the_space_and_of_the_seed(tmp_path: Path, storage: Storage) -> None:
    def drawn(folder: str, again: bool) -> list[dict[str, Any]]:
        (tmp_path / folder).mkdir()
        study = SharedStudy(tmp_path / folder, SPACE, storage)
        for number in range(11):  # beyond those that the sampler draws at random
            if again:  # as after a kill
                study = SharedStudy(tmp_path / folder, SPACE, storage)
            assert study.draw(11) == number
            study.finish(number, float(number % 5))
        assert study.draw(11) is None
        assert study.draw(12) == 11
        return [outcome.settings for outcome in study.outcomes()]

    one = drawn("one", again=False)
    assert len({json.dumps(settings) for settings in one}) == 12
    for settings in one:
        assert 1e-4 <= settings["optimizer.lr"] <= 0.1
        assert settings["model.hidden"] in range(8, 65, 8)
        assert settings["data.node_features"] in FEATURES.values
    assert drawn("two", again=True) == one, "whether one process drew them or many"


def draw_some(folder: Path, storage: Storage, told: Any) -> None:
    study = SharedStudy(folder, SPACE, storage)
    while (number := study.draw(12)) is not None:
        told.put((number, json.dumps(study.settings(number))))


def test_processes_that_draw_together_draw_each_set_once(tmp_path: Path, storage: Storage) -> None:
    context = multiprocessing.get_context("forkserver")
    told = context.SimpleQueue()
    three = [context.Process(target=draw_some, args=(tmp_path, storage, told)) for _ in range(3)]
    for process in three:
        process.start()
    for process in three:
        process.join()
    assert [process.exitcode for process in three] == [0, 0, 0]
    found = sorted(told.get() for _ in range(12))
    assert [number for number, _ in found] == list(range(12))
    assert len({settings for _, settings in found}) == 12


def test_a_draw_that_was_killed_is_drawn_to_its_end(tmp_path: Path, storage: Storage) -> None:
    study = SharedStudy(tmp_path, SPACE, storage)
    half = raw_study(tmp_path, storage).ask()
    rate = half.suggest_float("optimizer.lr", 1e-4, 0.1, log=True)
    assert study.running() == [0]
    settings = study.settings(0)
    assert settings["optimizer.lr"] == rate
    assert list(settings) == list(SETTINGS)
    assert study.settings(0) == settings
    assert study.draw(2) == 1


def by_hand(values: list[list[float]], factor: int) -> list[int]:
    """The epochs after which each trial ends, one trial after another, by ASHA's rule: it goes on
    beyond a rung if it is among the best 1/factor of those that came there, or the best of few.
    """
    rungs: dict[int, list[float]] = {}
    ends = []
    for trial in values:
        for epoch, value in enumerate(trial, start=1):
            if epoch not in (factor**i for i in range(10)):
                continue
            rung = rungs.setdefault(epoch, [])
            rung.append(value)
            if value > sorted(rung)[max(1, len(rung) // factor) - 1]:
                break
        ends.append(epoch)
    return ends


def test_trials_are_pruned_by_successive_halving(tmp_path: Path, storage: Storage) -> None:
    study = SharedStudy(tmp_path, SPACE, storage)
    starts = (5.0, 7.0, 3.0, 6.0, 4.0, 2.0)
    values = [[start / epoch for epoch in range(1, 6)] for start in starts]
    ends = []
    for number, trial in enumerate(values):
        assert study.draw(len(values)) == number
        for epoch, value in enumerate(trial, start=1):
            if study.report(number, epoch, value):
                # Trained before it had stopped: it stays pruned, and is no measure for others.
                assert study.report(number, epoch + 1, 0.0)
                break
        ends.append(epoch)
        pruned = epoch < len(trial)
        study.finish(number, None if pruned else trial[-1])
    assert ends == by_hand(values, 2)
    assert len(set(ends)) > 1
    states = [outcome.state for outcome in study.outcomes()]
    assert states == ["pruned" if end < 5 else "complete" for end in ends]
    assert [outcome.epochs for outcome in study.outcomes()] == [
        end + (state == "pruned") for end, state in zip(ends, states, strict=True)
    ]
    assert [outcome.value for outcome in study.outcomes() if outcome.state == "pruned"] == [0.0] * (
        states.count("pruned")
    )


def test_the_first_value_of_an_epoch_stands(tmp_path: Path, storage: Storage) -> None:
    study = SharedStudy(tmp_path, SPACE, storage)
    study.draw(1)
    assert not study.report(0, 1, 0.5)
    assert not study.report(0, 1, 0.7)
    assert raw_study(tmp_path, storage).trials[0].intermediate_values == {1: 0.5}


def test_how_a_trial_ended_stands(tmp_path: Path, storage: Storage) -> None:
    study = SharedStudy(tmp_path, SPACE, storage)
    study.draw(2)
    study.draw(2)
    study.finish(0, 0.25)
    study.finish(0, None)
    study.finish(1, None, "out of memory")
    one, two = study.outcomes()
    assert (one.state, one.value, two.state, two.reason) == (
        "complete", 0.25, "failed", "out of memory",
    )  # fmt: skip
    assert study.running() == []


def test_a_journal_whose_writer_was_killed_is_read_and_goes_on(tmp_path: Path) -> None:
    study = SharedStudy(tmp_path, SPACE, "journal")
    study.draw(2)
    settings = study.settings(0)
    path = tmp_path / FILES["journal"]
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"op_code":5,"worker_id":"x","tri')
    again = SharedStudy(tmp_path, SPACE, "journal")
    assert again.settings(0) == settings
    assert again.draw(2) == 1
    assert path.read_bytes().startswith(whole + b'{"op_code"')
    for line in path.read_bytes().splitlines():
        json.loads(line)
    assert SharedStudy(tmp_path, SPACE, "journal").running() == [0, 1]


@pytest.mark.parametrize("kept", [b"", b"a\n", b"a\n" + b"b" * 70_000 + b"\n"])
@pytest.mark.parametrize("half", [b"", b"half", b"x" * 200_000])
def test_half_a_line_is_cut_off(tmp_path: Path, kept: bytes, half: bytes) -> None:
    path = tmp_path / "lines"
    path.write_bytes(kept + half)
    cut_half_line(path)
    assert path.read_bytes() == kept


def test_a_damaged_file_is_named(tmp_path: Path, storage: Storage) -> None:
    (tmp_path / FILES[storage]).write_bytes(b"no study\n")
    with pytest.raises(InputError, match=rf"{FILES[storage]}: cannot be read as a study"):
        SharedStudy(tmp_path, SPACE, storage)


def test_optunas_dashboard_reads_it(tmp_path: Path, storage: Storage) -> None:
    urls = pytest.importorskip("optuna_dashboard._storage_url")
    study = SharedStudy(tmp_path, SPACE, storage)
    study.draw(1)
    study.finish(0, 0.5)
    path = tmp_path / FILES[storage]
    found = urls.get_storage(str(path) if storage == "journal" else f"sqlite:///{path}")
    (trial,) = found.get_all_trials(found.get_study_id_from_name(NAME))
    assert trial.value == 0.5
