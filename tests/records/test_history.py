"""What a watch keeps of a run, whose memory does not grow with the run."""

import math

from bigtrk.records.live import MOST_LOSSES, History
from tests.reports.run_folders import epoch_record, step_record


def filled(values: list[tuple[int, float]]) -> History:
    history = History()
    for step, loss in values:
        history.add(step_record(step, loss=loss))
    return history


def test_losses_of_short_runs_are_what_was_added() -> None:
    values = [(3, 0.5), (4, 0.25), (9, 2.0)]
    assert filled(values).losses == values
    assert filled([*values, (10, math.nan)]).losses == values


def test_losses_of_long_runs_become_means_of_neighbours() -> None:
    found = filled([(step, float(step % 2)) for step in range(3 * MOST_LOSSES)]).losses
    assert MOST_LOSSES / 2 <= len(found) <= MOST_LOSSES
    assert found[0] == (0, 0.5)
    assert [step for step, _ in found] == sorted(step for step, _ in found)


def test_what_is_trained_again_replaces_what_came_after_it() -> None:
    history = filled([(0, 1.0), (1, 2.0), (2, 3.0), (1, 5.0)])
    assert history.losses == [(0, 1.0), (1, 5.0)]


def test_a_history_has_the_newest_values() -> None:
    history = History(first=2)
    for step in range(3):
        history.add(step_record(step, seconds=0.5, edges=100 * (step + 1)))
    history.add(epoch_record(0, train_loss=0.25))
    assert (history.step, history.epoch, history.trained) == (2, 0, 0.5)
    assert history.newest["step/loss"] == 0.7 / 3
    assert history.newest["epoch/shares/compute"] == 0.85
    assert history.losses == [(0, 0.7), (1, 0.35), (2, 0.7 / 3)]
