"""The limits of a model: where it was not tested, and what it cannot find."""

import os
from collections.abc import Iterator, Sequence

from bigtrk.records.evaluation import Binned, EvaluationRecord
from bigtrk.records.run import DataRecord
from bigtrk.records.run_folder import Run
from bigtrk.reports.elements import figures
from bigtrk.reports.evaluation.headlines import evaluation_verdict

QUANTITIES = {"pt": "pT [GeV]", "eta": "eta", "vertex": "vertex radius [mm]", "hits": "hits"}
OTHERS = (
    "Other detectors, conditions of the beam, sizes of events and ways to build graphs than those "
    "of the events above are not tested, as far as this folder tells."
)


def limits(run: Run, evaluations: Sequence[EvaluationRecord]) -> Iterator[str]:
    """Says what the graphs lack, and what was tested, by the run and evaluations of its model."""
    yield _recall(run.record.data)
    if not evaluations:
        yield _not_evaluated(run)
    for record in evaluations:
        for each in (*evaluation_verdict(record), *_chosen_by(run, record), *_tested(record)):
            yield f"On {record.data}: {each}"
    yield OTHERS


def _recall(data: DataRecord) -> str:
    shares = {
        "of the true edges": data.edge_efficiency,
        "of those of particles above 1 GeV with at least 3 hits": data.target_efficiency,
    }
    known = [
        f"{figures.percent(share, 2)} % {which}"
        for which, share in shares.items()
        if share is not None
    ]
    if not known:
        return (
            "An edge that a graph lacks is never found. What share of the true edges the graphs "
            "that it was trained on hold is not known."
        )
    return (
        f"An edge that a graph lacks is never found: the graphs that it was trained on hold "
        f"{' and '.join(known)} (means over events)."
    )


def _not_evaluated(run: Run) -> str:
    if not run.record.data.validation_events:
        return "It was neither validated nor evaluated: how good it is, nobody knows."
    return (
        "It was not evaluated: all that is known is its validation during the training, on events "
        "by which settings may have been chosen."
    )


def _chosen_by(run: Run, record: EvaluationRecord) -> Iterator[str]:
    """Says of the folder that validation events were taken from that they are among its events."""
    section = run.record.config.get("data")
    train = section.get("train") if isinstance(section, dict) else None
    named = train if isinstance(train, list) else []
    folders = [os.path.realpath(one) for one in named if isinstance(one, str) and "\0" not in one]
    if run.record.data.validation_events and record.data in folders:
        yield "Its validation events are among these: settings may have been chosen by them."


def _tested(record: EvaluationRecord) -> Iterator[str]:
    """Says which particles the tracks were judged by, as far as bins tell."""
    tracks = record.tracks
    if tracks is None:
        return
    if tracks.pt_min is not None and tracks.min_hits is not None:
        yield (
            f"Only particles of at least {tracks.pt_min:g} GeV and {tracks.min_hits} hits were to "
            f"be found."
        )
    bins = tracks.bins("strict")
    for axis, name in QUANTITIES.items():
        if binned := getattr(bins, f"efficiency_by_{axis}"):
            yield f"Tested in {name}: {_covered(binned) or 'nowhere'}."


def _covered(binned: Binned) -> str:
    """Lists the ranges of neighbouring bins that hold particles, and how many these are."""
    ranges: list[tuple[float, float, int]] = []
    limits = zip(binned.edges, binned.edges[1:], binned.whole, strict=False)
    for low, high, whole in limits:
        if not whole:
            continue
        if ranges and ranges[-1][1] == low:
            first, _, before = ranges.pop()
            ranges.append((first, high, before + whole))
        else:
            ranges.append((low, high, whole))
    told = [f"{low:g} to {high:g} ({figures.count(whole)})" for low, high, whole in ranges]
    outside = f"beyond that ({figures.count(binned.outside[1])})" if binned.outside[1] else ""
    return ", ".join(filter(None, (*told, outside)))
