"""Predicted steps: products that are compiled for new shapes, and those that are kept."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bigtrk.config import load_settings
from bigtrk.cost.event_size import EventSize
from bigtrk.cost.machine_constants import CPU
from bigtrk.cost.model import KEPT_PRODUCTS
from bigtrk.parallel.routing import WHOLE, Cut
from bigtrk.planning.prediction import Predicted, Task, predict_run, predict_steps
from bigtrk.training.costs import make_cost
from bigtrk.training.settings import Configuration
from tests.distributed.runs import write_events

SMALL = {"name": "attention", "hidden": 16, "layers": 2}


def compiled(steps: Sequence[Sequence[Task]], world: int = 1, precision: str = "bf16") -> float:
    """The products by which the median step is prolonged."""
    model = {**SMALL, "precision": precision}
    configuration = Configuration.model_validate({"model": model})
    seconds = [
        predict_steps(
            make_cost(configuration, world, world, CPU.model_copy(update={"compiling": each})),
            steps,
        ).step_seconds
        for each in (1.0, 0.0)
    ]
    return seconds[0] - seconds[1]


def of_a_sector(parts: int = 1) -> int:
    configuration = Configuration.model_validate({"model": {**SMALL, "precision": "bf16"}})
    return make_cost(configuration, 1, 1, CPU).compiled_products(parts)


def events(number: int, cut: Cut = WHOLE) -> list[list[Task]]:
    return [[(EventSize(1000 + i, 5000, stored=cut.parts), cut)] for i in range(number)]


def test_new_events_have_their_products_compiled() -> None:
    assert compiled(events(3)) == pytest.approx(of_a_sector())
    assert compiled(events(3), precision="fp32") == pytest.approx(0, abs=1e-3)
    both = [
        [*first, *second] for first, second in zip(events(4)[::2], events(4)[1::2], strict=True)
    ]
    assert compiled(both) == pytest.approx(2 * of_a_sector())
    assert compiled(both, world=2) == pytest.approx(of_a_sector())  # each rank has one of the two


def test_events_that_come_again_have_theirs_kept() -> None:
    assert compiled(3 * events(3)) == pytest.approx(0, abs=1e-3)
    assert compiled(3 * events(3, Cut(4, 2)), world=2) == pytest.approx(0, abs=1e-3)
    # Of more events than are kept, each has been forgotten when it comes again.
    too_many = KEPT_PRODUCTS // of_a_sector() + 1
    assert compiled(2 * events(too_many)) == pytest.approx(of_a_sector())
    assert compiled(3 * events(too_many - 1)) == pytest.approx(0, abs=1e-3)


def test_a_rank_compiles_for_each_of_its_sectors() -> None:
    assert compiled(events(3, Cut(4, 2)), world=2) == pytest.approx(2 * of_a_sector(4))


def test_inputs_on_their_way_to_files_are_gone_when_memory_has_the_edges_that_it_keeps() -> None:
    """Events are laid out with memory for both; what is predicted to be reached is less."""
    cost = make_cost(
        Configuration.model_validate({"model": {"hidden": 16, "layers": 4, "precision": "bf16"}}),
        1,
        1,
        CPU,
    )
    size = EventSize(20_000, 600_000)
    all_kept = replace(cost, spills_beyond=math.inf)
    expected = predict_steps(all_kept, [[(size, WHOLE)]])
    compiled = cost.compiled_bytes(1, 1)
    assert expected.peak_bytes == all_kept.memory(size, 1, 1).total + compiled
    nothing_kept = replace(cost, spills_beyond=0.0)
    least, on_the_way = nothing_kept.memory(size, 1, 1), nothing_kept.edge_input_bytes(size, 1)
    assert 0 < on_the_way < least.saved + least.working
    tensor = 2 * 16 * size.edges
    assert tensor < on_the_way < 2 * tensor
    # With one tensor kept the beginning of a pass is its peak, with two what is kept.
    for tensors, peak in ((0, 0), (1, 0), (2, 2 * tensor - on_the_way)):
        some_kept = replace(cost, spills_beyond=least.total + tensors * tensor + 2)
        found = predict_steps(some_kept, [[(size, WHOLE)]]).peak_bytes
        assert found == pytest.approx(least.total + peak + compiled), tensors
    # Without a next step its inputs are not there.
    last = replace(nothing_kept, reads_ahead=False)
    expected_last = last.memory(size, 1, 1).total - on_the_way + compiled
    assert predict_steps(last, [[(size, WHOLE)]]).peak_bytes == pytest.approx(expected_last)


def test_a_run_that_fits_without_files_is_predicted_so(tmp_path: Path) -> None:
    """The blocks in which edges travel to files would be counted beside all that is kept."""
    write_events(tmp_path, n=3)

    def predicted(*settings: str) -> Predicted:
        data = [f"data.train=[{tmp_path / 'graphs'}]", "data.validation=0", "model.layers=2"]
        return predict_run(load_settings(Configuration, None, [*data, *settings]), 1, 1, CPU)

    spill = f"training.spill={tmp_path}"
    assert predicted(spill, "training.memory_gib=6") == predicted(spill) == predicted()
    assert predicted(spill, "training.memory_gib=0.1").peak_bytes > predicted().peak_bytes
