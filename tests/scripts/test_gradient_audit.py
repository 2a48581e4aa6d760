"""Checks what an audit predicts of a study, and the tables that are made of its result file."""

import json
from typing import Any

import pytest

from bigtrk.audit.names import Way
from bigtrk.records.audit import (
    AuditedWeights,
    DrawnWay,
    DrawStatistics,
    Measured,
    SameGradient,
)
from scripts.docs.tables import audit_tables
from scripts.physics.gradient_audit import (
    DRAWN,
    METHODS,
    STUDIES,
    _written,
    all_data,
    kendall,
    prediction,
    study_order,
    summary,
)


def point(weights: str, seconds: dict[str, float]) -> AuditedWeights:
    """Every way makes the same progress, in other seconds."""
    found = DrawStatistics(
        bias_squared=Measured(value=0.04, error=0.004),
        noise=Measured(value=4.0, error=0.1),
        cosine=Measured(value=0.5, error=0.1),
        cosine_of_mean=0.9,
        signal=Measured(value=0.1, error=0.2),
        noise_scale=10.0,
        progress=Measured(value=0.5, error=0.1),
    )
    drawn = tuple(
        DrawnWay(
            way=name.value,
            draws=4,
            edges=1.0,
            event_edges=2.0,
            seconds=seconds.get(name.value, 1.0),
            whole=found,
            parts={"decoder": found},
        )
        for name in DRAWN
    )
    same = SameGradient(way="bf16", reference="float64", difference=0.1, worst=0.2, cosine=0.9)
    return AuditedWeights(weights=weights, loss=0.5, norm=1.0, drawn=drawn, same=(same,))


POINTS = [point("start", {"shadow": 0.1}), point("2 epochs", {"wedges": 0.5, "shadow": 2.0})]


def test_kendall() -> None:
    order = {"a": 1.0, "b": 2.0, "c": 3.0, "only here": 9.0}
    assert kendall(order, {"a": 5.0, "b": 6.0, "c": 7.0}) == 1
    assert kendall(order, {"a": 7.0, "b": 6.0, "c": 5.0}) == -1
    assert kendall(order, {"a": 5.0, "b": 7.0, "c": 6.0}) == pytest.approx(1 / 3)
    assert kendall(order, {"a": 5.0, "b": 5.0, "c": 5.0}) == 0


def test_the_most_progress_in_a_second_is_predicted_to_win() -> None:
    real = {"full graph": 0.8, "ShaDow": 0.9, "naive sectors": 0.7}
    found = [prediction(one, real) for one in POINTS]
    assert [one["predicted"] for one in found] == ["ShaDow", "full graph"]
    assert [one["won"] for one in found] == ["ShaDow"] * 2
    assert found[0]["scores"]["ShaDow"] == pytest.approx(5)
    assert [one["tau"] for one in found] == pytest.approx([2 / 3, -2 / 3])


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_names_the_ways_that_are_audited(study: str) -> None:
    order = study_order(study)
    assert order.keys() <= METHODS.keys()
    assert all(0.5 < auc < 1 for auc in order.values())


def test_tables_are_made_of_the_file_that_the_script_writes(tmp_path: Any) -> None:
    points = dict.fromkeys(all_data(tmp_path, tmp_path, quick=True), POINTS)
    studies = {
        study: [prediction(one, study_order(study)) for one in points[name]]
        for study, name in STUDIES.items()
    }
    found = json.loads(
        json.dumps(
            {
                "summary": summary(points, studies),
                "points": {name: _written(one) for name, one in points.items()},
                "studies": studies,
            }
        )
    )
    assert found["summary"]["bias heptrkx wedges"] == {"start": 0.2, "2 epochs": 0.2}
    assert found["summary"]["noise_scale ex3 events"]["start"] == 5
    assert found["summary"]["bf16 event1000"] == {"start": 0.2, "2 epochs": 0.2}
    ways = audit_tables.gradient_ways(found)
    assert len(ways.rows) == 3 * 2 * len(METHODS)
    assert list(ways.rows[1])[:4] == ["HEPTrkX graphs", "start", "ShaDow", "20.0 % ± 1.0 %"]
    assert [list(row) for row in audit_tables.gradient_noise(found).rows][:1] == [
        ["HEPTrkX graphs", "start", "0.5000", "10", "3.33", "not bounded"]
    ]
    same = audit_tables.gradient_same(found)
    assert list(same.columns) == ["", "", "at the start", "after piece 1"]
    assert list(same.rows[0]) == ["HEPTrkX graphs", "bf16", "2.0e-01", "2.0e-01"]
    predicted = audit_tables.gradient_prediction(found)
    assert [row[0] for row in predicted.rows] == [f"`{one}`" for one in STUDIES for _ in POINTS]
    for table in (ways, same, predicted):
        assert {len(row) for row in table.rows} == {len(table.columns)}


def test_the_ways_of_the_data() -> None:
    assert {Way.PRECISION, Way.EXCHANGE}.isdisjoint(DRAWN)
    assert set(METHODS.values()) == set(DRAWN)
