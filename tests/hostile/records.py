"""The records of runs, of series and of evaluations, as JSON has them."""

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from bigtrk.records.metrics import AverageRecord, MeanEdgeMetrics, NormsRecord, PowerRecord
from bigtrk.records.run import BestRecord, DataRecord, Resumption, StallRecord
from bigtrk.records.studies import ResultRecord, SeriesRecord
from bigtrk.training.settings import Configuration
from tests.reports.pipeline_folders import PIPELINE_RECORD, pipeline_evaluation
from tests.reports.run_folders import (
    binned_evaluation_record,
    epoch_record,
    run_record,
    step_record,
    validation_record,
)
from tests.reports.search_folders import round_record, search_record, trial_record

CONFIGURATION = Configuration.model_validate({"model": {"hidden": 4, "layers": 2}})


SCORES = {"limits": [0.0, 0.5, 1.0], "target": [1, 9], "other": [2, 2], "false": [30, 6]}


def _run() -> dict[str, Any]:
    config = CONFIGURATION.model_dump(mode="json")
    data = DataRecord(
        train_events=6,
        validation_events=2,
        nodes=1200,
        edges=5100,
        sources=("trackml",),
        edge_efficiency=0.98,
        target_efficiency=0.99,
    )
    end: dict[str, Any] = {"ended": "patience", "finished": datetime(2026, 11, 22, 6, tzinfo=UTC)}
    record = run_record(2, config=config, data=data, resumed=(Resumption(step=1),), **end)
    return record.model_dump(mode="json")


def _lines() -> list[dict[str, Any]]:
    norms = NormsRecord(
        gradient={"encoder": 0.1, "layer": None}, weight={"encoder": 1.0, "layer": 2.0}
    )
    routes, counted = {"event0": 1, "event1": 2}, MeanEdgeMetrics(**COUNTED)
    power, absent = PowerRecord(host_joules=3.0), PowerRecord(absent={"accelerator": "none"})
    average = AverageRecord(validation=counted)
    lines = [
        step_record(0, norms=norms, routes=routes, pt_loss=0.1, spike=False),
        step_record(1, norms=norms, routes=routes, spike=True),
        validation_record(1, 1.5, **COUNTED),
        epoch_record(0, 4.0, validation=counted, power=power, planned_steps=3),
        epoch_record(1, 2.0, validation=counted, power=absent, average=average),
    ]
    return [line.model_dump(mode="json") for line in lines]


COUNTED: dict[str, Any] = {
    "n_target": 90,
    "n_predicted": 80,
    "n_found": 60,
    "n_true_predicted": 70,
    "efficiency": 0.7,
    "target_purity": 0.8,
    "total_purity": 0.9,
    "purity": 0.85,
    "loss": 0.1,
    "auc": 0.9,
    "events_skipped": 1.0,
}


def _with_scores(record: BaseModel) -> dict[str, Any]:
    return {**record.model_dump(mode="json"), "scores": SCORES}


def _result() -> ResultRecord:
    trials = (trial_record(0, 0.9), trial_record(1, None, state="failed", reason="it is full"))
    copied = round_record(1, 1, 0.9, source=0, source_round=0)
    rounds = (round_record(0, 0, 0.8), round_record(0, 1, None), round_record(1, 0, 0.9), copied)
    return ResultRecord(metric="auc", trials=trials, rounds=rounds)


RUN_JSON, METRIC_LINES = _run(), _lines()
SERIES = SeriesRecord(
    kind="strong",
    ranks=(1, 2),
    repeats=2,
    events=6,
    validation=2,
    cores_per_rank=1,
    host_cores=2,
    price_per_device_hour=1.0,
    configuration={"training": {"epochs": 3}},
)
BEST = BestRecord(metric="auc", value=0.9, epoch=1, step=2, checkpoint="step-00000002")
STALL = StallRecord(ranks=(1,), text="rank 1 says nothing", ends=True)
# What each file of a record holds, except metrics.jsonl.
CONTENT: dict[str, dict[str, Any]] = {
    "run.json": RUN_JSON,
    "evaluation.json": _with_scores(binned_evaluation_record()),
    "pipeline evaluation.json": _with_scores(pipeline_evaluation()),
    "pipeline.json": PIPELINE_RECORD.model_dump(mode="json"),
    "series.json": SERIES.model_dump(mode="json"),
    "best.json": BEST.model_dump(mode="json"),
    "stall.json": STALL.model_dump(mode="json"),
    "search.json": search_record(population={"every": 1, "lag": 0, "trials": 2}).model_dump(
        mode="json"
    ),
    "result.json": _result().model_dump(mode="json"),
}
