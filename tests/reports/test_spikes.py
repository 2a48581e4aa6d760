"""Steps left out, in the report."""

from pathlib import Path

from bigtrk.records.metrics import MetricsRecord
from bigtrk.reports import read_run, summarise
from bigtrk.reports.spikes import spikes_tables
from tests.reports.run_folders import epoch_record, run_record, run_writer, step_record


def test_spikes_are_counted_and_named(tmp_path: Path) -> None:
    make_run = run_writer(tmp_path)
    record = run_record(config={"training": {"spike_guard": "roll_back"}})
    lines: list[MetricsRecord] = [step_record(0), step_record(1, loss=7.5, spike=True)]
    # After the roll-back: step 0 again, the spike not.
    lines += [
        step_record(0),
        step_record(2),
        step_record(3, loss=None, spike=True),
        epoch_record(0),
    ]
    guarded = read_run(make_run("guarded", record=record, lines=lines))
    (table,) = spikes_tables([guarded, read_run(make_run("other"))])
    assert table.rows == (("guarded", "roll_back", "4", "2"),)
    assert table.notes[1:] == ("guarded: step 1, 7.50000; step 3, not finite.",)
    assert summarise([guarded])["runs"][0]["spikes"] == [1, 3]


def test_runs_without_guard_have_no_table(tmp_path: Path) -> None:
    run = read_run(run_writer(tmp_path)())
    assert spikes_tables([run]) == []
    assert summarise([run])["runs"][0]["spikes"] == []
