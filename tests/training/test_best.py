"""The best epoch by a metric: a list of values, searched by hand, is the oracle."""

import random
from typing import Any

import pytest

from bigtrk.errors import InputError
from bigtrk.records.metrics import (
    AverageRecord,
    EmbeddingMetrics,
    EpochRecord,
    MeanEdgeMetrics,
    metric_of,
)
from bigtrk.training.schedule import Best, check_recorded
from bigtrk.training.settings import Configuration, Metric
from tests.present import present
from tests.reports.run_folders import epoch_record


def record(epoch: int, **metrics: Any) -> EpochRecord:
    return epoch_record(epoch, validation=MeanEdgeMetrics(**metrics))


def after(metric: Metric, values: list[float | None]) -> Best:
    search = Best(metric)
    for epoch, value in enumerate(values):
        search = search.after(record(epoch, **{metric: value}), step=10 * (epoch + 1))
    return search


@pytest.mark.parametrize(("metric", "best"), [("loss", min), ("log_pt_error", min), ("auc", max)])
def test_the_first_of_the_best_values_counts(metric: Metric, best: Any) -> None:
    drawn = random.Random(3)
    for _ in range(50):
        values = [drawn.choice((0.1, 0.2, 0.3, 0.4)) for _ in range(8)]
        search, at = after(metric, list(values)), values.index(best(values))
        found = present(search.best)
        assert (found.value, found.epoch) == (values[at], at)
        assert search.waited == 7 - at
        assert present(search.record).checkpoint == f"step-{10 * (at + 1):08d}"


def test_values_that_are_not_known_are_no_better() -> None:
    search = after("loss", [None, float("nan")])
    assert (search.record, search.waited, search.kept(20)) == (None, 2, [])
    search = after("loss", [None, 0.5, None, float("nan")])
    assert (present(search.best).epoch, search.waited) == (1, 2)


def test_who_falls_back_on_the_checkpoint_before_finds_its_best() -> None:
    assert after("auc", [0.5, 0.4, 0.6]).kept(step=30) == ["step-00000030", "step-00000010"]
    assert after("auc", [0.5, 0.4, 0.6]).kept(step=35) == ["step-00000030"]
    assert after("auc", [0.5, 0.4, 0.6, 0.2]).kept(step=40) == ["step-00000030"]


def test_metrics_are_those_of_the_record() -> None:
    edges = record(0, loss=0.25, auc=0.75)
    assert [metric_of(name, edges) for name in ("loss", "auc", "purity")] == [0.25, 0.75, None]
    assert metric_of("train_loss", edges) == 0.6
    hits = epoch_record(0, validation=None, embedding=EmbeddingMetrics(loss=0.125))
    assert [metric_of(name, hits) for name in ("loss", "train_loss")] == [0.125, 0.6]
    assert metric_of("loss", epoch_record(0, validation=None)) is None
    average = AverageRecord(validation=MeanEdgeMetrics(loss=0.0625))
    averaged = epoch_record(0, validation=MeanEdgeMetrics(loss=0.25), average=average)
    assert [metric_of(name, averaged) for name in ("loss", "train_loss")] == [0.0625, 0.6]


def configuration(metric: str, **sections: Any) -> Configuration:
    training = {"best": {"metric": metric}, **sections.pop("training", {})}
    return Configuration.model_validate({"training": training, **sections})


@pytest.mark.parametrize(
    ("metric", "n_validation", "sections", "complaint"),
    [
        ("auc", 0, {}, "needs a validation event; set data.validation"),
        ("auc", 1, {"model": {"name": "embedding"}}, "embeds hits, so choose loss or train_loss"),
        ("log_pt_error", 1, {}, "pT is trained, too; set training.pt_weight"),
    ],
)
def test_a_metric_that_no_epoch_records_is_refused(
    metric: str, n_validation: int, sections: dict[str, Any], complaint: str
) -> None:
    made = configuration(metric, **sections)
    with pytest.raises(InputError, match=rf"^training\.best\.metric={metric}: .*{complaint}"):
        check_recorded(made, n_validation)
    check_recorded(configuration("train_loss"), 0)
    check_recorded(configuration("loss", model={"name": "embedding"}), 1)
    check_recorded(configuration("log_pt_error", training={"pt_weight": 0.1}), 1)
