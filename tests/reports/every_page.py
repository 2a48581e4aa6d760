"""A page of each kind, with names that are hostile or long."""

from pathlib import Path

from bigtrk.records.evaluation import CutRecord, EdgeScores, EvaluationRecord
from bigtrk.records.pipeline import read_pipeline
from bigtrk.records.run_folder import read_run
from bigtrk.records.studies import read_search
from bigtrk.reports.display import display_report
from bigtrk.reports.evaluation import evaluation_report
from bigtrk.reports.page import write_page
from bigtrk.reports.pipeline import pipelines_report
from bigtrk.reports.runs import runs_report
from bigtrk.reports.search import search_report
from bigtrk.studies.scaling.report import series_report
from tests.reports.events import straight_event
from tests.reports.pipeline_folders import pipeline_evaluation, pipeline_folder
from tests.reports.run_folders import (
    binned_evaluation_record,
    matching_record,
    run_record,
    run_writer,
)
from tests.reports.search_folders import SPACE, small_population, small_search
from tests.studies.scaling.test_report import series_folder

PAGES = (
    *("run", "runs", "evaluation", "pipeline", "scaling", "search", "population"),
    *("display", "large display"),
)
# What the script of a page is asked for by a test.
DRAW_ALL = "Promise.all(plots.map(plot => { watch.unobserve(plot); return draw(plot); }))"
PAINTED = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def write_pages(folder: Path) -> None:
    """Writes the pages of PAGES, `folder / "run.html"` and so on; what they are made of is in
    `folder / "made"`.
    """
    make = run_writer(folder / "made")
    evaluation = _evaluation()
    one = read_run(make("</script><b>one</b>", evaluation=evaluation))
    others = [make(f"a-run-with-a-rather-long-name-{n}", run_record(n)) for n in (1, 2, 4)]
    write_page(runs_report([one]), folder / "run.html")
    write_page(runs_report([one, *map(read_run, others)]), folder / "runs.html")
    write_page(evaluation_report(evaluation, one), folder / "evaluation.html")
    pipeline = pipeline_folder(folder / "made" / "pipeline", pipeline_evaluation())
    write_page(pipelines_report([read_pipeline(pipeline)]), folder / "pipeline.html")
    series, _ = series_report([series_folder(folder / "made" / "weak")])
    write_page(series, folder / "scaling.html")
    hostile = {**SPACE, "<b>model.dropout</b>": [0.0, "</script><b>"]}
    search = small_search(folder / "made" / "<b>search</b>", space=hostile)
    write_page(search_report(read_search(search)), folder / "search.html")
    population = small_population(folder / "made" / "population")
    write_page(search_report(read_search(population)), folder / "population.html")
    write_page(display_report("event1", straight_event(100), {}, one), folder / "display.html")
    write_page(display_report("event2", straight_event(10_000), {}), folder / "large display.html")


def _evaluation() -> EvaluationRecord:
    """Makes an evaluation with bins, the scores of edges, and tracks by three cuts."""
    rates = {0.1: (0.95, 0.5), 0.5: (0.9, 0.1), 0.9: (0.3, 0.01)}
    scan = tuple(
        CutRecord(
            score_cut=cut,
            **matching_record(mode="strict", efficiency=found, fake_rate=fakes).model_dump(),
        )
        for cut, (found, fakes) in rates.items()
    )
    binned = binned_evaluation_record()
    assert binned.tracks is not None
    counts = {"target": (10, 20, 970), "other": (50, 30, 20), "false": (7000, 500, 100)}
    return binned.model_copy(
        update={
            "tracks": binned.tracks.model_copy(update={"scan": scan}),
            "scores": EdgeScores.model_validate({"limits": (0.0, 0.1, 0.5, 1.0), **counts}),
        }
    )
