"""Commands of the `bigtrk` program that plan runs or start series; demo and doctor."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from bigtrk.commands.options import Arguments, AsJson
from bigtrk.console import console, print_result
from bigtrk.errors import InputError
from bigtrk.machine import open_cores
from bigtrk.user_code import Code, allow_code

_MOST = 2**31 - 1  # ids of a sector have 32 bits


def plan(
    arguments: Arguments = None,
    nodes: Annotated[int | None, typer.Option(min=1, max=_MOST, help="hits of an event")] = None,
    edges: Annotated[int | None, typer.Option(min=1, max=_MOST, help="edges of an event")] = None,
    ranks: Annotated[str, typer.Option(help="number of ranks, at most 4096")] = "32",
    ranks_per_node: Annotated[int, typer.Option(min=1, help="ranks per host")] = 4,
    memory: Annotated[float | None, typer.Option(min=0.1, max=1e6, help="GiB per rank")] = None,
    machine: Annotated[
        str | None, typer.Option(help="cpu, A100, H100 or H200; default: this machine")
    ] = None,
    measured: Annotated[
        Path | None, typer.Option(help="folder of a run, whose measured steps give the seconds")
    ] = None,
    choose: Annotated[
        bool, typer.Option("--choose", help="choose settings that fit --ranks and --memory")
    ] = False,
    try_: Annotated[
        bool, typer.Option("--try", help="with --choose: train a few steps, and take the fastest")
    ] = False,
    code: Code = None,
    as_json: AsJson = False,
) -> None:
    """Count the memory and the sectors that a training needs.

    Seconds are a rough estimate (a roofline), or follow the measured step of --measured RUN.
    --choose finds settings that fit, keeps those you give, and prints the commands that cut the
    events and train. With --try it trains a few steps with some of these settings on this host, and
    takes the fastest.
    """
    from bigtrk.planning import tables
    from bigtrk.planning.command import Command
    from bigtrk.planning.plan import make_plan
    from bigtrk.shipped import DEFAULT
    from bigtrk.studies.trials import try_out

    if try_ and not choose:
        raise InputError("--try needs --choose; add it")
    if measured and choose:
        raise InputError("--choose compares memory, not seconds; leave out --measured")
    allow_code(code or ())
    options = (ranks, ranks_per_node, memory, machine, measured)
    asked = Command(arguments or [], DEFAULT, nodes, edges, *options)
    if choose:
        chosen = asked.choice(try_out if try_ else None)
        print_result(chosen, as_json, lambda: tables.show_choice(chosen, console))
    else:
        answer = make_plan(asked.question())
        print_result(answer, as_json, lambda: tables.show_plan(answer, console))


def scale(
    kind: Annotated[
        Literal["weak", "strong"],
        typer.Argument(help="weak: a fixed number of events per rank; strong: in all"),
    ],
    arguments: Arguments = None,
    out: Annotated[Path, typer.Option(help="folder; a series there is continued")] = Path(
        "scaling"
    ),
    ranks: Annotated[str, typer.Option(help="numbers of ranks")] = "1,2,4",
    events: Annotated[
        int, typer.Option(min=1, help="events to train on: per rank (weak), in all (strong)")
    ] = 100,
    validation: Annotated[int, typer.Option(min=0, help="events to validate on")] = 20,
    repeats: Annotated[int, typer.Option(min=1, max=1000, help="runs per number of ranks")] = 3,
    slurm: Annotated[
        bool, typer.Option("--slurm", help="only print a script that submits job arrays")
    ] = False,
    ranks_per_node: Annotated[
        int | None, typer.Option(min=1, help="with --slurm: 4 by default")
    ] = None,
) -> None:
    """Train on several numbers of ranks and report scaling.

    Repeat it to continue a series. `bigtrk report FOLDER...` shows series again, or side by side.
    """
    from bigtrk.shipped import DEFAULT
    from bigtrk.studies.scaling.run_series import plan_series, run_series, slurm_script

    if ranks_per_node and not slurm:
        raise InputError("without --slurm all ranks share this host; leave out --ranks-per-node")
    per_node, cores = ((ranks_per_node or 4), None) if slurm else (None, open_cores())
    counts = (ranks, events, validation, repeats)
    series = plan_series(kind, arguments or [], DEFAULT, *counts, out, per_node, cores)
    if slurm:
        print(slurm_script(series), end="")
    else:
        run_series(series)


def search(
    space: Annotated[
        Path, typer.Argument(metavar="SPACE.yaml", help="the metric, and the settings to search")
    ],
    arguments: Arguments = None,
    trials: Annotated[int, typer.Option(min=1, help="trials in all")] = 20,
    out: Annotated[Path, typer.Option(help="folder; a search in it is continued")] = Path("search"),
    at_once: Annotated[int, typer.Option(min=1, help="trials at the same time")] = 1,
    ranks: Annotated[int, typer.Option(min=1, help="ranks of each trial, on one host")] = 1,
    launcher: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND", help='instead of torchrun, such as "srun --ntasks 8 python"'
        ),
    ] = None,
) -> None:
    """Search for the settings that make a metric best.

    Trials are chosen by TPE, and bad ones end early. Each is a run, such as OUT/trial0007.
    The same command continues a search; a larger --trials adds to it.
    """
    from bigtrk.shipped import DEFAULT
    from bigtrk.studies.search.plan import plan_search
    from bigtrk.studies.search.search import run_search

    planned = plan_search(space, arguments or [], DEFAULT, out, trials)
    run_search(planned, trials, at_once, ranks, launcher)


def doctor(as_json: AsJson = False) -> None:
    """Show what is installed, and how to get what is missing."""
    from bigtrk.doctor import examine, show

    findings = examine()
    print_result(findings, as_json, lambda: show(findings))
    raise typer.Exit(0 if findings["ready"] else 1)


def demo(
    out: Annotated[Path, typer.Argument(help="new folder for its files")],
    particles: Annotated[
        int, typer.Option(min=1, help="particles per event; fewer are faster, and find less")
    ] = 3000,
    seed: Annotated[int, typer.Option(min=0, help="seed of events and weights")] = 0,
) -> None:
    """Run the main job on simulated events, in minutes.

    That is simulate, build, partition, train, evaluate and report. Then a small pipeline is
    trained, makes tracks of hits without truth, and is judged.
    """
    from bigtrk.demo import run_demo

    run_demo(out, particles, seed)
