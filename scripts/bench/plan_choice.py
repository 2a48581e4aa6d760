"""Measures whether `bigtrk plan --choose --try` fits the memory and is as fast as any that does.

    sudo python -m scripts.bench.plan_choice [--work FOLDER] [--draws 30] [--seed 0]
        [--output FILE] [--publish]

Each draw is of simulated events (25 k to 140 k edges), 1 to 4 ranks, a model, a number of events
per step, and a limit of memory within which at least eight rivals are predicted to fit beside the
choice. The command that is chosen trains three steps, and so does every rival: each recomputation,
and `chunk` with edges in files beyond that memory, with the events stored in 1, 2, 4 and 8 sectors.
Each rank of a run is in a control group of its own with the limit. Rivals that lay out an event
alike are run once; those that are predicted to take more than 1.5 times the limit, and what is the
choice itself, are not. The seconds of a run are those of its median step after the first. Rivals,
and what the choice tries, are forks of a process that has imported what a training needs
(forked_ranks.py), by whose memory the limit is lower for them. Where a rival was faster by more
than a tenth, it and the choice are run once more as programs of their own, and the smaller seconds
of each count, if it fits.

With --work what was measured is kept, and a script that is started again goes on from there. The
last line is one JSON object: the number of draws, how often the choice ran out of memory, and how
often it was within 10 % of the fastest. `fewest_rivals` of the file is how many fitted at least.
"""

import argparse
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bigtrk.console import exit_on_bad_input, say
from bigtrk.disk.files import read_json, write_json
from bigtrk.training.automatic.margin import GIB
from scripts.bench.choice_draw import CHOICE, Bench, Forks, draws, quietly
from scripts.bench.forked_ranks import ForkedRanks
from scripts.large_events.limited_ranks import Outcome, Start, as_programs, train_within
from scripts.large_events.memory_limit import memory_group
from scripts.results import Results, add_options

WITHIN = 1.1


def measured_draw(bench: Bench) -> dict[str, Any]:
    """Measures a draw, or reads what was measured of it."""
    known = bench.folder / "row.json"
    if not known.exists():
        bench.prepare()
        write_json(known, measure_draw(bench))
    row: dict[str, Any] = read_json(known)
    return row


def measure_draw(bench: Bench) -> dict[str, Any]:
    """Runs the choice of a draw and its rivals; returns the row of results."""
    runs = bench.runs()
    outcomes = {name: bench.run(name, settings) for name, settings in runs.items()}
    seconds = compared(bench, runs, outcomes)
    own, fastest = seconds.get(CHOICE), min(seconds, key=seconds.__getitem__, default=None)
    return {
        **asdict(bench.draw),
        "limit_gib": bench.limit_gib,
        "edges": bench.answer["events"]["largest"]["edges"],
        "choice": bench.answer["choice"],
        "trials": bench.answer["trials"],
        "commands": bench.answer["commands"],
        "runs": {name: asdict(one) for name, one in outcomes.items()},
        "fastest": fastest,
        "seconds": own,
        "ratio": own / seconds[fastest] if own is not None and fastest is not None else None,
    }


def compared(
    bench: Bench, runs: dict[str, list[str]], outcomes: dict[str, Outcome]
) -> dict[str, float]:
    """Returns the seconds of what fitted. What makes the choice seem slow, and the choice, are run
    again, and the smaller seconds count; what does not fit then is an outcome of its own.
    """
    seconds = {name: one.seconds for name, one in outcomes.items() if one.seconds is not None}
    known: set[str] = set()
    while CHOICE in seconds:
        fastest = min(seconds, key=seconds.__getitem__)
        if fastest in known or seconds[CHOICE] <= WITHIN * seconds[fastest]:
            break
        for name in [one for one in (fastest, CHOICE) if one not in known]:
            known.add(name)
            again = bench.run(name, runs[name], again=True)
            if again.seconds is None:
                outcomes[name] = again
                del seconds[name]
            else:
                seconds[name] = min(seconds[name], again.seconds)
    return seconds


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Makes the last line."""
    near = [row for row in rows if row["ratio"] is not None and row["ratio"] <= WITHIN]
    return {
        "runs": len(rows),
        "out_of_memory": sum(row["runs"][CHOICE]["out_of_memory"] for row in rows),
        "within_10_percent": len(near),
    }


def fitted(row: dict[str, Any]) -> int:
    """Counts the rivals of a draw that fitted."""
    return sum(not run["out_of_memory"] for name, run in row["runs"].items() if name != CHOICE)


def told(row: dict[str, Any]) -> str:
    """Writes a row as one line."""
    outcome = "out of memory" if row["seconds"] is None else f"{row['seconds']:.2f} s a step"
    ratio = "" if row["ratio"] is None else f", {row['ratio']:.2f} times the fastest"
    settings = " ".join(f"{key}={value}" for key, value in row["choice"]["settings"].items())
    return (
        f"draw {row['number'] + 1}: {row['edges']:,} edges, hidden {row['hidden']}, "
        f"{row['ranks']} rank(s) of {row['limit_gib']:.2f} GiB: {settings} in "
        f"{row['choice']['parts']} sectors: {outcome}{ratio}; "
        f"{fitted(row)} of {len(row['runs']) - 1} rivals fitted"
    )


def calibrated(work: Path) -> Path:
    """Calibrates this machine, once; returns the file, which is that of the cache of all runs."""
    path = work / "cache" / "bigtrk" / "calibration.json"
    os.environ["XDG_CACHE_HOME"] = str(work / "cache")
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        quietly(["bigtrk", "plan", "--calibrate", "--machine", str(path)])
    return path


def modules_bytes(ranks: ForkedRanks, work: Path) -> int:
    """Measures how much less a fork is charged for than a program of its own: what the modules take
    that it does not write to. It is the least of three.
    """
    events, graphs = work / "few" / "events", work / "few" / "graphs"
    if not graphs.exists():
        quietly(["bigtrk", "simulate", str(events), "--events", "2", "--particles", "300"])
        quietly(["bigtrk", "build", str(events), str(graphs)])
    settings = [f"data.train=[{graphs}]", "data.validation=0", "training.epochs=1"]

    def peak(start: Start) -> int:
        shutil.rmtree(work / "few" / "run", ignore_errors=True)
        return train_within(4 * GIB, 1, settings, work / "few" / "run", start).peak_bytes

    return min(peak(as_programs) - peak(ranks.train_in) for _ in range(3))


def measure(arguments: argparse.Namespace) -> None:
    results = Results("plan_choice", arguments)
    with memory_group(GIB):  # says at once where no limit can be set
        pass
    work: Path = arguments.work or Path(tempfile.mkdtemp(prefix="bigtrk-choice-"))
    work.mkdir(parents=True, exist_ok=True)
    load, calibration, rows = os.getloadavg()[0], calibrated(work), []
    with ForkedRanks() as ranks:
        forks = Forks(ranks, modules_bytes(ranks, work))
        for draw in draws(arguments.draws, arguments.seed):
            bench = Bench(draw, work / f"draw-{draw.number}", calibration, forks)
            rows.append(measured_draw(bench))
            say(told(rows[-1]))
    facts = {"seed": arguments.seed, "load": load, "modules_bytes": forks.modules}
    facts["fewest_rivals"] = min(map(fitted, rows))
    results.write(summary(rows), **facts, draws=rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--work", type=Path, help="kept; a new folder by default")
    parser.add_argument("--draws", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    add_options(parser)
    arguments = parser.parse_args()
    exit_on_bad_input("plan_choice.py", lambda: measure(arguments))


if __name__ == "__main__":
    main()
