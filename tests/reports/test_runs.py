"""The report on a terminal, elsewhere, and as JSON."""

import dataclasses
import json

import pytest

from bigtrk.records.evaluation import write_evaluation
from bigtrk.records.metrics import AverageRecord, MeanEdgeMetrics, MetricsRecord
from bigtrk.records.record import write_record
from bigtrk.records.run import BEST, BestRecord, RunRecord
from bigtrk.records.run_folder import Run, read_run
from bigtrk.reports.facts import facts, time_run
from bigtrk.reports.runs import runs_report, summarise
from tests.reports.pages import printed, row_of
from tests.reports.run_folders import (
    MakeRun,
    epoch_record,
    evaluation_record,
    run_record,
    step_record,
)


def told(runs: list[Run]) -> str:
    return printed(runs_report(runs))


@pytest.fixture
def pair(make_run: MakeRun) -> list[Run]:
    """One rank with an evaluation, and two ranks at nearly twice the speed."""
    second = run_record(2, engine_detail="DeepSpeed ZeRO-1", launcher="deepspeed")
    lines = [
        step_record(0, micro_steps=None, imbalance=None),
        epoch_record(0, 9.0),
        epoch_record(1, 1.0),
    ]
    return [
        read_run(make_run("one", evaluation=evaluation_record())),
        read_run(make_run("two", record=second, lines=lines)),
    ]


def test_tables(pair: list[Run]) -> None:
    text = told(pair)
    one = ["one", "DDP", "1", "6", "51.0 K", "38.2 K", "1.50", "0.50", "512 MiB"]
    assert row_of(text, "Speed", "one") == one
    assert row_of(text, "Speed", "two")[1] == "DeepSpeed ZeRO-1"
    shares = row_of(text, "Where the time goes", "one")
    assert shares == ["one", "1", "85.0", "5.0", "6.0", "4.0", "1.02"]
    routes = ["12.0 K", "51.0 K", "4", "2", "2.00", "1.10", "1.20"]
    assert row_of(text, "Routes", "one")[1:] == routes
    assert row_of(text, "Routes", "two")[-1] == "-"
    metrics = ["99.600", "87.831", "99.249", "-", "98.577", "0.00406"]
    last = row_of(text, "Validation after the last epoch", "two")
    assert last == ["two", "2", "2", "0.60000", *metrics, "1.00", "0.33"]
    assert row_of(text, "Epochs of one", "3") == ["3", "0.60000", *metrics, "1.00", "0.33"]
    edges = row_of(text, "Evaluation: edges", "one")
    assert edges[1:6] == ["graphs", "2", "34.0 K", "93.000", "-"]
    tracks = row_of(text, "Evaluation: tracks", "one")
    expected = ["ATLAS", "acorn", "90.00", "10.00", "1.00", "120", "110", "130", "121"]
    assert tracks[1:] == expected
    assert "TrackML score 0.7125" in text


def test_header_says_what_runs_share_and_where_they_differ(pair: list[Run]) -> None:
    text = told(pair)
    assert text.count("hidden 64, layers 8, recompute True") == 1
    assert "trained on    6 events (12.0 K nodes, 51.0 K edges)" in text
    assert "engine: DeepSpeed ZeRO-1 on 2 ranks, started by deepspeed" in text
    model = {"init_from": "runs/0001", "hidden": 8}
    taken = dataclasses.replace(pair[0], record=run_record(config={"model": model}))
    assert facts(taken)["model"] == "123 K parameters: hidden 8; started from runs/0001"
    assert "progress: 2 of 3 epochs, 1 step" in text
    assert "\x1b" not in text
    alone = told(pair[:1])
    assert "Validation after the last epoch" not in alone


def test_the_best_epoch_and_what_ended_the_run_are_told(make_run: MakeRun) -> None:
    folder = make_run("one", record=run_record(ended="patience"))
    ended = "3 of 3 epochs, 9 steps since 2026-11-20T19:00:00Z"
    without = "no better epoch came, which ended it"
    assert f"{ended}; {without}" in " ".join(told([read_run(folder)]).split())
    best = BestRecord(metric="auc", value=0.98577, epoch=1, step=6, checkpoint="step-00000006")
    write_record(folder / BEST, best)
    run = read_run(folder)
    text = " ".join(told([run]).split())
    assert f"{ended}; best in auc (0.98577): epoch 2; {without}" in text
    assert summarise([run])["runs"][0]["best"] == best.model_dump(mode="json")
    write_record(folder / BEST, None)
    assert read_run(folder).best is None


def test_averaged_weights_have_a_row_and_a_diverged_loss_is_null_in_json(make_run: MakeRun) -> None:
    average = AverageRecord(validation=MeanEdgeMetrics(loss=0.00123, auc=0.987))
    folder = make_run(lines=[epoch_record(0, train_loss=0.123), epoch_record(1, average=average)])
    metrics = folder / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace("0.123", "NaN"))
    run = read_run(folder)
    text = told([run])
    assert row_of(text, "Epochs of 0001", "1")[1] == "nan"
    row = row_of(text, "Epochs of 0001", "2 averaged")
    assert row == ["2 averaged", "-", "-", "-", "-", "-", "98.700", "0.00123", "-", "-"]
    assert summarise([run])["runs"][0]["epochs"][0]["train_loss"] is None


def test_runs_without_an_epoch_or_with_a_cold_one_say_so(make_run: MakeRun) -> None:
    young = read_run(make_run("young", lines=[step_record(0)]))
    text = told([young])
    assert "0 of 3 epochs, 1 step" in text
    assert "No epoch has finished yet; steps recorded: 1." in text
    assert row_of(text, "Speed", "young")[5:] == ["-", "-", "-", "-"]
    cold = read_run(make_run("cold", lines=[epoch_record(0, 4.0)]))
    assert time_run(cold).epoch_seconds == 4.0
    first, second = summarise([cold, young])["notes"]
    assert "include the warm-up" in first
    assert "young has no finished epoch" in second
    bare = read_run(make_run("bare", record=RunRecord(world_size=3, engine="ddp"), lines=[]))
    assert "ddp on 3 ranks" in told([bare])
    json.dumps(summarise([bare]), allow_nan=False)


def test_medians_leave_out_the_first_epoch(make_run: MakeRun) -> None:
    lines = [epoch_record(0, 90.0, peak_memory_bytes=7), epoch_record(1, 1.0), epoch_record(2, 2.0)]
    lines += [epoch_record(3, 30.0), epoch_record(4, 3.0, peak_memory_bytes=9 * 2**30)]
    timing = time_run(read_run(make_run(lines=lines)))
    assert (timing.epochs, timing.epoch_seconds) == (4, 2.5)
    assert timing.edges_per_second == pytest.approx((51000 / 2 + 51000 / 3) / 2)
    assert timing.peak_memory_bytes == 9 * 2**30


def test_summary_is_json_with_the_figures_of_the_tables(pair: list[Run]) -> None:
    content = json.loads(json.dumps(summarise(pair), allow_nan=False))
    one, two = content["runs"]
    assert one["timing"]["shares"]["compute"] == pytest.approx(0.85)
    assert sorted(one["routes"].values()) == [1, 1, 1, 1, 2, 2]
    assert len(one["epochs"]) == 3
    assert [record["tracks"]["trackml_score"] for record in one["evaluations"]] == [0.7125]
    assert two["evaluations"] == []
    assert content["rules"]


def test_evaluations_are_told_apart_by_data_folder_and_step(make_run: MakeRun) -> None:
    folder = make_run("one", evaluation=evaluation_record())
    write_evaluation(folder, evaluation_record(data="/data/others", events=7, step=6))
    run = read_run(folder)
    text = told([run])
    assert row_of(text, "Evaluation: edges", "one on graphs")[1:3] == ["graphs", "2"]
    assert row_of(text, "Evaluation: edges", "one on others")[1:3] == ["others", "7"]
    assert row_of(text, "Evaluation: tracks", "one on others")[1:3] == ["ATLAS", "acorn"]
    assert "one on others: the weights are those of step 6." in text
    assert "Evaluated after step 6, but the run is at step 9: evaluate again." in text
    assert text.count("the weights are those of step") == 1
    (entry,) = summarise([run])["runs"]
    found = [(record["data"], record["step"]) for record in entry["evaluations"]]
    assert found == [("/data/graphs", None), ("/data/others", 6)]
    assert [record["made"] for record in entry["evaluations"]] == ["2026-11-22T06:41:05Z"] * 2


def test_spikes_are_counted_and_named(make_run: MakeRun) -> None:
    lines: list[MetricsRecord] = [step_record(0), step_record(1, loss=7.5, spike=True)]
    lines += [step_record(2), step_record(3, loss=None, spike=True), epoch_record(0)]
    guarded = read_run(make_run("guarded", lines=lines))
    text = " ".join(told([guarded]).split())
    assert "Left out as spikes: step 1, 7.50000; step 3, not finite." in text
    assert summarise([guarded])["runs"][0]["spikes"] == [1, 3]
    assert "spikes" not in told([read_run(make_run("other"))])
