"""Reports of scaling series, from folders written as `bigtrk scale` writes them."""

import io
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bigtrk.errors import InputError
from bigtrk.records.metrics import EpochRecord, MetricsRecord, PowerRecord
from bigtrk.records.record import read_record, write_record
from bigtrk.records.studies import SERIES, SeriesRecord
from bigtrk.reports.figures import wilson
from bigtrk.reports.page import write_page
from bigtrk.reports.terminal import show
from bigtrk.studies.scaling.report import Point, points, read_series, run_name, series_report
from tests.present import present
from tests.reports.pages import Page, row_of, self_contained
from tests.reports.run_folders import METRICS, epoch_record, run_record, run_writer, step_record

CONFIG = {"model": {"hidden": 16, "layers": 2}, "training": {"epochs": 3}}
COUNTS = {"n_target": 2000, "n_predicted": 2500, "n_found": 1992, "n_true_predicted": 2300}
POWER = PowerRecord(accelerator_joules=7.2e6, host_joules=3.6e6, utilisation=0.6, memory=0.25)
# Seconds of the epochs of each run, the first of which warms up.
WEAK = {1: (10.0, 11.0, 12.0), 2: (12.0, 13.0, 14.0)}


def series_folder(
    folder: Path,
    kind: str = "weak",
    seconds: Mapping[int, tuple[float, ...]] = WEAK,
    power: PowerRecord | None = None,
    price: float | None = None,
    **changes: Any,
) -> Path:
    """A series with a run for each of `seconds`, in three epochs and with `power`."""
    repeats = len(next(iter(seconds.values())))
    record = SeriesRecord.model_validate(
        {
            "kind": kind,
            "ranks": list(seconds),
            "repeats": repeats,
            "events": 6,
            "validation": 2,
            "price_per_device_hour": price,
            "configuration": CONFIG,
        }
    )
    make = run_writer(folder)
    for ranks, times in seconds.items():
        for repeat, time in enumerate(times, start=1):
            lines: list[MetricsRecord] = [
                step_record(step, routes={f"event{step % 3}": 1}) for step in range(9)
            ]
            lines += [_epoch(e, time if e else 99.0, repeat, power) for e in range(3)]
            own = run_record(ranks, config=CONFIG, **changes)
            make(run_name(ranks, repeat), own, lines)
    write_record(folder / SERIES, record)
    return folder


def _epoch(epoch: int, seconds: float, repeat: int, power: PowerRecord | None) -> EpochRecord:
    validation = METRICS.model_copy(update={**COUNTS, "auc": 0.98 + 0.001 * repeat})
    return epoch_record(epoch, seconds, power=power or PowerRecord(), validation=validation)


def measured(folder: Path) -> dict[int, Point]:
    return {point.ranks: point for point in points(read_series(folder))}


def printed(*folders: Path) -> str:
    out = io.StringIO()
    show(series_report(folders)[0], Console(file=out))
    return out.getvalue()


def test_weak_efficiency_is_t1_over_tn(tmp_path: Path) -> None:
    two = measured(series_folder(tmp_path / "weak"))[2]
    assert (two.epoch_seconds.mean, two.epoch_seconds.n) == (13.0, 3)
    assert two.epoch_seconds.error == pytest.approx(1 / math.sqrt(3))
    assert two.efficiency.mean == pytest.approx(11 / 13)
    assert two.speedup.mean == pytest.approx(2 * 11 / 13)
    relative = math.hypot(1 / math.sqrt(3) / 11, 1 / math.sqrt(3) / 13)
    assert two.speedup.error == pytest.approx(two.speedup.mean * relative)


def test_strong_efficiency_is_t1_over_n_tn(tmp_path: Path) -> None:
    """The series starts at two ranks, which then count as the first."""
    folder = series_folder(tmp_path / "s", "strong", {2: (12.0, 12.0), 4: (7.0, 9.0), 8: (6.0,)})
    found = measured(folder)
    assert [(n, p.speedup.mean, p.efficiency.mean) for n, p in found.items()] == [
        (2, 1.0, 1.0),
        (4, pytest.approx(12 / 8), pytest.approx(12 / 8 / 2)),
        (8, 2.0, 0.5),
    ]
    assert found[2].speedup.error is None
    assert found[8].speedup.error is None


def test_metrics_have_errors_over_repeats_and_edges(tmp_path: Path) -> None:
    two = measured(series_folder(tmp_path / "weak"))[2]
    auc, intervals = present(two.metrics["auc"]), two.intervals
    assert set(intervals) == {"efficiency", "target_purity", "total_purity"}
    assert intervals["target_purity"] == pytest.approx(wilson(0.87831, 2500))
    assert auc.mean == pytest.approx(0.982)
    assert auc.error == pytest.approx(0.001 / math.sqrt(3))
    text, table = printed(tmp_path / "weak"), "Validation after the last epoch"
    means = ["99.600", "87.831", "99.249", "-", "98.200", "0.00406"]
    assert row_of(text, table, "weak") == ["weak", "1", "mean over repeats", *means]
    ends = [f"{100 * end:.3f}" for end in wilson(0.996, 2000)]
    assert re.search(r"weak +2 +± standard error +0.000 +0.000 +0.000 +- +0.058 +0.00000", text)
    assert re.search(rf"weak +1 +binomial, low +{ends[0]}", text)
    assert re.search(rf"weak +1 +binomial, high +{ends[1]}", text)


def test_energy_and_cost_of_an_epoch(tmp_path: Path) -> None:
    folder = series_folder(tmp_path / "gpu", power=POWER, price=1.8)
    two = measured(folder)[2]
    assert present(two.power["kilowatt_hours"]).mean == pytest.approx(3.0)
    assert present(two.power["dollars"]).mean == pytest.approx(1.8 * 2 * 13 / 3600)
    shown = row_of(printed(folder), "Memory, energy and cost per epoch", "gpu")
    assert shown[2:] == [
        *("512 MiB", "60.0 ±0.0", "25.0 ±0.0", "7,200,000 ±0", "3,600,000 ±0", "3", "0.0055")
    ]


def test_absent_readings_and_prices_are_dashes_with_a_reason(tmp_path: Path) -> None:
    absent = {"accelerator": "there is no accelerator", "host": "no RAPL"}
    folder = series_folder(tmp_path / "cpu", power=PowerRecord(absent=absent))
    text = printed(folder)
    assert row_of(text, "Memory, energy and cost per epoch", "cpu")[3:] == ["-"] * 6
    assert "cpu: no reading of the accelerator: there is no accelerator." in text
    assert "no price; give run.price_per_device_hour" in " ".join(text.split())


def test_prediction_stands_beside_the_measurement(tmp_path: Path) -> None:
    folder = series_folder(tmp_path / "weak")
    one, two = measured(folder).values()
    assert one.predicted is not None
    assert two.predicted is not None
    assert row_of(printed(folder), "Scaling", "weak")[6] == f"{one.predicted:.2f}"
    for path in folder.glob("*/metrics.jsonl"):
        path.write_text(re.sub(r'"routes": \{[^}]*\}', '"routes": {}', path.read_text()))
    assert measured(folder)[2].predicted is None


def test_unfinished_series_says_what_is_missing(tmp_path: Path) -> None:
    folder = series_folder(tmp_path / "weak")
    path = folder / run_name(1, 2) / "metrics.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    (folder / run_name(2, 3) / "metrics.jsonl").unlink()
    (folder / run_name(2, 1) / "run.json").unlink()
    notes = " ".join(read_series(folder).notes)
    assert "ranks0001-2 has 2 of 3 epochs." in notes
    assert "ranks0002-3 has 0 of 3 epochs." in notes
    assert "Not there yet: ranks0002-1." in notes
    assert [len(runs) for runs in read_series(folder).runs.values()] == [3, 1]
    for path in folder.glob("*/metrics.jsonl"):
        path.unlink()
    with pytest.raises(InputError, match="no run has finished an epoch yet; wait until"):
        read_series(folder)


@pytest.fixture
def pair(tmp_path: Path) -> list[Path]:
    """Two engines on two machines."""
    gpu = {"host": "n2", "cpu": "c", "cores": 64, "accelerator": "NVIDIA H200"}
    zero: dict[str, Any] = {"engine_detail": "DeepSpeed ZeRO-1", "machine": gpu}
    fast = {1: (2.0, 2.2), 2: (2.5, 2.6)}
    return [
        series_folder(tmp_path / "ddp"),
        series_folder(tmp_path / "zero", seconds=fast, power=POWER, price=2.0, **zero),
    ]


def test_series_side_by_side(pair: list[Path]) -> None:
    text = printed(*pair)
    assert row_of(text, "Scaling", "ddp")[:3] == ["ddp", "1", "3"]
    assert row_of(text, "Scaling", "zero")[5] == "2.10 ±0.10"
    assert re.search(r"engine +DeepSpeed ZeRO-1\n", re.sub(" +\n", "\n", text))
    assert "NVIDIA H200" in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 100
    cores = {"cores_per_rank": 1, "host_cores": 1}
    record = read_record(SeriesRecord, pair[0] / SERIES).model_copy(update=cores)
    write_record(pair[0] / SERIES, record)
    text = " ".join(printed(*pair).split())
    assert "ddp: the host has 1 core, which more ranks than that share" in text
    assert re.search(r"Some CPU, (\d+ cores, )?1 of 1 core per rank", text)
    with pytest.raises(InputError, match="ddp: two series have this name; rename or"):
        series_report([pair[0], pair[0]])


def test_lines_hold_the_figures_of_the_tables(pair: list[Path]) -> None:
    lines = [json.loads(line) for line in series_report(pair)[1].splitlines()]
    assert [(line["series"], line["ranks"]) for line in lines] == [
        *(("ddp", 1), ("ddp", 2), ("zero", 1), ("zero", 2))
    ]
    last = lines[3]
    assert last["efficiency"]["mean"] == pytest.approx(2.1 / 2.55)
    assert last["kilowatt_hours"]["mean"] == pytest.approx(3.0)
    assert last["intervals"]["efficiency"] == pytest.approx(wilson(0.996, 2000))
    assert (last["engine"], last["machine"]["host"]) == ("DeepSpeed ZeRO-1", "n2")
    assert len(last["runs"]) == 2
    assert last["shares"]["compute"] == pytest.approx(0.85)
    assert lines[0]["power"]["dollars"] is None


def test_page_is_whole_and_needs_nothing_else(pair: list[Path], tmp_path: Path) -> None:
    write_page(series_report(pair)[0], tmp_path / "page.html")
    page = self_contained(tmp_path / "page.html")
    assert len(page.figures) == 3 + 1
    # A bar per point and series with an error: epoch seconds have it at both numbers of ranks.
    error = 1 / math.sqrt(3)
    assert bars(page, "Epoch, s", "ddp") == [
        pytest.approx((n, y - error, y + error)) for n, y in ((1, 11.0), (2, 13.0))
    ]
    assert [len(bars(page, "Speed-up", name)) for name in ("ddp", "zero")] == [1, 1]
    styles = [trace["line"]["dash"] for trace in page.figure("Speed-up").data]
    assert styles == ["solid", "solid", "dash"]
    assert page.figure("Parallel efficiency, %").trace("ideal")["y"] == [100, 100]


def bars(page: Page, title: str, name: str) -> list[tuple[float, float, float]]:
    """Returns x and the ends of the error bars of a curve."""
    trace = page.figure(title).trace(name)
    errors = trace["error_y"]
    rows = zip(trace["x"], trace["y"], errors["arrayminus"], errors["array"], strict=True)
    return [(x, y - below, y + above) for x, y, below, above in rows if above]
