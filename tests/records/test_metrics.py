"""Tests what a record says in words."""

from bigtrk.records.metrics import MeanEdgeMetrics


def undefined(skipped: float | None, without_auc: float | None) -> str:
    return MeanEdgeMetrics(events_skipped=skipped, events_without_auc=without_auc).undefined


def test_undefined_metrics_in_words() -> None:
    assert undefined(None, None) == undefined(0.0, 0.0) == ""
    assert undefined(1.0, 0.0) == "1 event lacks a metric"
    assert undefined(3.0, 2.0).startswith("3 events lack a metric, 2 AUC: undefined unless")
