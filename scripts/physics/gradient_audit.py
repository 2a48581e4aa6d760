"""Audits gradients at several points of short trainings, and compares with `bigtrk study`.

    python scripts/physics/gradient_audit.py HEPTRKX_NPZ EVENT1000 [--work FOLDER]
        [--quick] [--output FILE] [--publish]

Trains on HEPTrkX graphs, on simulated events of Ex3's size and on event 1000 in sectors, in pieces,
and runs `bigtrk audit` on the start and after each piece: bias, noise and cosine of ShaDow
mini-batches, sectors with and without halo and wedges, the noise scale of whole events, bf16, and
sectors that exchange halos. A way's progress per second predicts which way wins at equal time; the
files of `bigtrk study` in docs/results tell which did. The last line is one JSON object of numbers
by point: noise scales in events, biases, and for each study Kendall's tau of both orders.
"""

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from bigtrk.audit.audit import AUDIT
from bigtrk.audit.names import Way
from bigtrk.console import exit_on_bad_input, say
from bigtrk.disk.files import read_json
from bigtrk.records.audit import AuditedWeights, AuditRecord
from bigtrk.records.record import read_record
from bigtrk.reports.audit import bias
from scripts.results import CHECKOUT, RESULTS, Results, Summary, add_options
from scripts.scaling.study_results import bigtrk

PARTS = 8
MODEL = ("model.hidden=32", "model.layers=4", "optimizer.lr=0.002", "data.validation=0")
HARD = ("target.pt_min=1", "target.hits_min=3")  # the particles that a full event is searched for
DRAWN = tuple(way for way in Way if way not in (Way.PRECISION, Way.EXCHANGE))
# A way's name in a study.
METHODS = {
    "full graph": Way.EVENTS,
    "ShaDow": Way.SHADOW,
    "naive sectors": Way.NAIVE,
    "sectors with halo": Way.HALO,
    "wedges": Way.WEDGES,
}
# The data that a study is compared with: those of its size.
STUDIES = {"study_ex3": "ex3", "study_event1000": "event1000", "study_pipeline": "event1000"}


@dataclass(frozen=True)
class Data:
    """Events and a training on them: `simulated` ones, or built from `source` by `build`.

    epochs: after which the weights are audited. ways: those audited.
    """

    source: Path | None
    build: tuple[str, ...]
    settings: tuple[str, ...]
    epochs: tuple[int, ...]
    ways: tuple[Way, ...] = tuple(Way)
    simulated: tuple[str, ...] = ()


@dataclass(frozen=True)
class Extent:
    """The number of draws in each way, and of events."""

    draws: int
    events: int


def all_data(heptrkx: Path, event1000: Path, quick: bool) -> dict[str, Data]:
    """Lists the data by name; `quick`: with fewer and smaller events, and fewer epochs."""
    sectors = (*MODEL, *HARD, "sampling.method=sectors")  # one whole event makes too few steps
    events = ("--events", "2" if quick else "12")
    particles = ("--particles", "200" if quick else "1300", "--seed", "1")
    return {
        "heptrkx": Data(heptrkx, ("--from", "heptrkx"), MODEL, (1, 2) if quick else (1, 3, 10)),
        "ex3": Data(None, (), MODEL, (1, 2) if quick else (1, 4, 16), DRAWN, (*events, *particles)),
        "event1000": Data(event1000, (), sectors, (1, 2) if quick else (1, 4, 16)),
    }


def audited(work: Path, name: str, data: Data, extent: Extent) -> list[AuditedWeights]:
    """Builds, cuts, trains in pieces and audits each; the points are named by their epochs."""
    folder = work / name
    sectors, run = folder / "sectors", folder / "run"
    source = data.source or folder / "events"
    if data.simulated:
        bigtrk("simulate", str(source), *data.simulated)
    bigtrk("build", str(source), str(folder / "graphs"), *data.build)
    bigtrk("partition", str(folder / "graphs"), str(sectors), f"--parts={PARTS}")
    settings = (*data.settings, "training.class_balance=equal", f"run.folder={run}")
    points: list[AuditedWeights] = []
    for epochs in data.epochs:
        say(f"{name}: {epochs} epochs")
        until = f"training.epochs={epochs}"
        if points:
            bigtrk("resume", str(run), until)
        else:
            bigtrk("train", f"data.train=[{sectors}]", "training.routing=stored", until, *settings)
        begin = [] if points else [_audit(run, sectors, data, extent)[0]]
        points += [*begin, _named(_audit(run, sectors, data, extent, newest=True)[-1], epochs)]
    return points


def _audit(
    run: Path, sectors: Path, data: Data, extent: Extent, newest: bool = False
) -> tuple[AuditedWeights, ...]:
    ways = [f"--way={way.value}" for way in data.ways]
    sizes = [f"--draws={extent.draws}", f"--events={extent.events}"]
    last = ["--newest"] if newest else []
    bigtrk("audit", str(run), str(sectors), *ways, *sizes, *last, "--json")
    return read_record(AuditRecord, run / AUDIT).points


def _named(point: AuditedWeights, epochs: int) -> AuditedWeights:
    return point.model_copy(update={"weights": f"{epochs} epoch{'s' * (epochs > 1)}"})


def scores(point: AuditedWeights) -> dict[str, float]:
    """Gives the progress per second of each way, by its name in a study."""
    of_way = {way.way: way for way in point.drawn}
    found = {}
    for method, name in METHODS.items():
        way = of_way[name.value]
        if way.whole.progress and way.seconds:
            found[method] = way.whole.progress.value / way.seconds
    return found


def kendall(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """Computes Kendall's tau of two orders of the names that both have, at least two."""
    names = sorted(one.keys() & other.keys())
    pairs = list(combinations(names, 2))
    agreements = [(one[a] - one[b]) * (other[a] - other[b]) for a, b in pairs]
    return sum((x > 0) - (x < 0) for x in agreements) / len(pairs)


def prediction(point: AuditedWeights, real: Mapping[str, float]) -> dict[str, Any]:
    """Compares the order that a point predicts with that of a study's AUC at equal time."""
    predicted = {name: score for name, score in scores(point).items() if name in real}
    return {
        "weights": point.weights,
        "scores": predicted,
        "predicted": max(predicted, key=lambda name: predicted[name]),
        "won": max(real, key=lambda name: real[name]),
        "tau": kendall(predicted, real),
    }


def study_order(study: str) -> dict[str, float]:
    """Reads the AUC at equal time of each method of a study."""
    found = read_json(CHECKOUT / RESULTS / f"{study}.json")
    return {name: method["at_equal_time"]["auc"] for name, method in found["methods"].items()}


def summary(
    points: Mapping[str, Sequence[AuditedWeights]], studies: Mapping[str, Sequence[Any]]
) -> Summary:
    """Makes the last line: noise scales in events and biases by point, tau by study and point."""
    found: dict[str, Mapping[str, float | None]] = {}
    for name, of_data in points.items():
        for way in DRAWN:
            found[f"noise_scale {name} {way.value}"] = {
                point.weights: _drawn(point, way).noise_scale_in_events for point in of_data
            }
            found[f"bias {name} {way.value}"] = {
                point.weights: (bias(_drawn(point, way).whole.bias_squared) or (None,))[0]
                for point in of_data
            }
        for same in of_data[0].same:
            found[f"{same.way} {name}"] = {
                point.weights: one.worst
                for point in of_data
                for one in point.same
                if one.way == same.way
            }
    taus = {
        f"tau {study}": {one["weights"]: one["tau"] for one in compared}
        for study, compared in studies.items()
    }
    return {**found, **taus}


def _drawn(point: AuditedWeights, name: Way) -> Any:
    return next(way for way in point.drawn if way.way == name.value)


def _written(of_data: Sequence[AuditedWeights]) -> list[dict[str, Any]]:
    """Gives points as JSON, those before the last without the parts of the model."""
    points = [point.model_dump(mode="json") for point in of_data]
    for point in points[:-1]:
        for way in (*point["drawn"], *point["same"]):
            del way["parts"]
    return points


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("heptrkx", type=Path, help="folder of HEPTrkX graphs (npz)")
    parser.add_argument("event1000", type=Path, help="folder of a full event with truth")
    parser.add_argument("--work", type=Path, help="new folder, kept; a temporary one by default")
    add_options(parser, quick="few small events, epochs and draws: a trial of the script")
    arguments = parser.parse_args()
    results = Results("gradient_audit", arguments)
    work: Path = arguments.work or Path(tempfile.mkdtemp(prefix="bigtrk-audit-"))
    data = all_data(arguments.heptrkx, arguments.event1000, arguments.quick)
    extent = Extent(draws=4, events=2) if arguments.quick else Extent(draws=32, events=24)
    points = {name: audited(work, name, one, extent) for name, one in data.items()}
    studies = {
        study: [prediction(point, study_order(study)) for point in points[name]]
        for study, name in STUDIES.items()
    }
    results.write(
        summary(points, studies),
        draws=extent.draws,
        points={name: _written(of_data) for name, of_data in points.items()},
        studies=studies,
    )


if __name__ == "__main__":
    exit_on_bad_input("gradient_audit.py", main)
