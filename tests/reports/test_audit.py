"""How estimates of an audit are written: with errors, as bounds, or not at all."""

import json
import re
from datetime import UTC, datetime
from io import StringIO

import pytest

from bigtrk.console import Screen
from bigtrk.records.audit import (
    AuditedWeights,
    AuditRecord,
    DrawnWay,
    DrawStatistics,
    Measured,
    SameGradient,
)
from bigtrk.reports import audit_summary, show_audit

SHADOW = DrawStatistics(
    bias_squared=Measured(value=0.04, error=0.004),
    variance=Measured(value=2.0, error=0.1),
    noise=Measured(value=2.25, error=0.1),
    cosine=Measured(value=0.5, error=0.01),
    cosine_of_mean=0.98,
    signal=Measured(value=0.1, error=0.05),
    noise_scale=10.0,
    progress=Measured(value=0.345, error=0.02),
)
# Neither a bias nor a signal above their errors.
NOISY = DrawStatistics(
    bias_squared=Measured(value=-0.01, error=0.05),
    noise=Measured(value=100.0, error=1.0),
    cosine=Measured(value=0.1),
    cosine_of_mean=0.2,
    signal=Measured(value=-0.01, error=0.03),
)


def way(name: str, found: DrawStatistics) -> DrawnWay:
    parts = {"decoder": found}
    return DrawnWay(
        way=name, draws=8, edges=50.0, event_edges=200.0, seconds=0.012, whole=found, parts=parts
    )


def record() -> AuditRecord:
    same = [
        SameGradient(way=name, reference="float64", difference=x, worst=x, cosine=1.0, limit=1e-12)
        for name, x in (("exchange in float64", 3e-15), ("exchange in fp32", 1e-3))
    ]
    rounded = SameGradient(way="bf16", reference="float64", difference=0.1, worst=0.2, cosine=0.9)
    ways = (way("shadow", SHADOW), way("wedges", NOISY), way("events", DrawStatistics()))
    point = AuditedWeights(
        weights="end", step=12, loss=0.5, norm=0.1, drawn=ways, same=(rounded, *same)
    )
    return AuditRecord(data="d", made=datetime.now(UTC), events=3, draws=8, seed=0, points=(point,))


def printed() -> list[str]:
    out = StringIO()
    show_audit(record(), Screen(file=out))
    return out.getvalue().splitlines()


@pytest.mark.parametrize(
    ("begins", "cells"),
    [
        (
            "shadow ",
            ["20 ±1", "1.5", "0.500 ±0.010", "0.980", "10 (6.7 to 20)", "2.5", "34.5", "12"],
        ),
        ("wedges ", ["< 32", "10", "0.100", "0.200", "> 50", "-", "-", "12"]),
        ("events ", ["-", "-", "-", "-", "-", "-", "-", "12"]),
        ("bf16 ", ["float64", "1.0e-01", "2.0e-01", "0.900000"]),
        ("exchange in float64", ["float64", "3.0e-15", "3.0e-15", "1.000000", "exact"]),
        ("exchange in fp32", ["float64", "1.0e-03", "1.0e-03", "1.000000"]),
    ],
)
def test_a_row(begins: str, cells: list[str]) -> None:
    row = next(line for line in printed() if line.startswith(begins))
    assert re.split("  +", row.strip())[1 : 1 + len(cells)] == cells


def test_what_is_not_exact_is_said() -> None:
    text = " ".join("\n".join(printed()).split())
    assert "1.000000 exact exchange" in text
    assert "1.000000 not exact: see bigtrk check-model" in text


def test_no_row_need_have_a_remark() -> None:
    """Whole events exchange nothing, and have no row with one."""
    whole, out = record(), StringIO()
    [point] = whole.points
    rounded = whole.model_copy(
        update={"points": (point.model_copy(update={"same": point.same[:1]}),)}
    )
    show_audit(rounded, Screen(file=out))
    assert "bf16" in out.getvalue()
    assert "exact" not in out.getvalue().split("The same gradient")[1]


def test_all_tables_fit_where_there_is_no_terminal() -> None:
    assert max(map(len, printed())) <= 100


def test_the_line_of_json() -> None:
    found = json.loads(json.dumps(audit_summary(record())))["points"]["end"]
    assert found["shadow"]["bias"] == pytest.approx(0.2)
    assert found["shadow"]["bias_error"] == pytest.approx(0.01)
    assert found["shadow"]["noise_scale_events"] == 2.5
    assert (found["wedges"]["bias"], found["wedges"]["noise_scale_events"]) == (0.0, None)
    exact = {"bias": 3e-15, "cosine": 1.0, "worst": 3e-15, "exact": True}
    assert found["exchange in float64"] == exact
    assert found["bf16"] == {"bias": 0.1, "cosine": 0.9, "worst": 0.2, "exact": None}
