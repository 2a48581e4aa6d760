"""Norms by part of the model: table, summary, plot."""

from pathlib import Path

from bigtrk.records.metrics import MetricsRecord, NormsRecord, StepRecord
from bigtrk.reports import read_run, summarise, write_html
from bigtrk.reports.norms import norms_tables, total
from tests.reports.run_folders import epoch_record, run_writer, step_record


def with_norms(step: int, encoder: float | None, decoder: float) -> StepRecord:
    gradient = {"node_encoder": encoder, "decoder": decoder}
    weight = {"node_encoder": 2.0 + step, "decoder": 1.0}
    return step_record(step, norms=NormsRecord(gradient=gradient, weight=weight))


def test_norms_of_a_run(tmp_path: Path) -> None:
    # Steps between those that record norms have none; one gradient was not finite.
    lines: list[MetricsRecord] = [
        with_norms(0, 0.5, 3.0),
        step_record(1, norms=None),
        with_norms(2, None, 4.0),
    ]
    lines += [with_norms(4, 12.5, 5.0), with_norms(6, 0.25, 0.0), epoch_record(0)]
    run = read_run(run_writer(tmp_path)("normed", lines=lines))
    (table,) = norms_tables([run])
    assert table.rows == (
        ("normed", "node_encoder", "0.5", "12.5", "4", "2", "8"),
        ("normed", "decoder", "3.5", "5", "4", "1", "1"),
    )
    summary = summarise([run])["runs"][0]["norms"]
    assert list(summary["decoder"].values()) == [3.5, 5.0, 4, 1.0, 1.0]
    write_html([run], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert 'aria-label="Norm of the gradient"' in page
    assert ">Norms</h2>" in page


def test_a_run_without_norms_has_no_table(tmp_path: Path) -> None:
    run = read_run(run_writer(tmp_path)())
    assert norms_tables([run]) == []
    assert summarise([run])["runs"][0]["norms"] == {}


def test_the_total_is_of_all_groups_or_unknown() -> None:
    assert total({"a": 3.0, "b": 4.0}) == 5.0
    assert total({"a": 0.0}) == 0.0
    assert total({"a": 3.0, "b": None}) is None
    assert total({}) is None
