"""The commands of the `bigtrk` program that plan runs or start series; the demo, and doctor."""

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
    nodes: Annotated[int | None, typer.Option(min=1, max=_MOST, help="of an event")] = None,
    edges: Annotated[int | None, typer.Option(min=1, max=_MOST, help="of an event")] = None,
    ranks: Annotated[str, typer.Option(help="number of ranks, to 4096")] = "32",
    ranks_per_node: Annotated[int, typer.Option(min=1, help="ranks per host")] = 4,
    memory: Annotated[float | None, typer.Option(min=0.1, max=1e6, help="GiB of each rank")] = None,
    machine: Annotated[
        str | None, typer.Option(help="cpu, A100, H100 or H200; else that of this machine")
    ] = None,
    measured: Annotated[
        Path | None, typer.Option(help="a run folder, whose step slows the roofline down")
    ] = None,
    choose: Annotated[
        bool, typer.Option("--choose", help="choose a run's settings for --ranks and --memory")
    ] = False,
    try_: Annotated[
        bool, typer.Option("--try", help="with --choose: train a few steps of those that fit")
    ] = False,
    code: Code = None,
    as_json: AsJson = False,
) -> None:
    """Count memory and the number of sectors that fits, without training.

    Seconds are a roofline; --measured RUN takes them from a run's step. --choose leaves what is
    configured as it is, takes the first settings that fit, and prints the commands that cut the
    events and train; without events, those of the configuration. With --try it trains some that fit
    for a few steps on this host, and takes the fastest.
    """
    from bigtrk.planning import tables
    from bigtrk.planning.command import Command
    from bigtrk.planning.plan import make_plan
    from bigtrk.shipped import DEFAULT
    from bigtrk.studies.trials import try_out

    if try_ and not choose:
        raise InputError("bigtrk plan: --try is for --choose; add that")
    if measured and choose:
        raise InputError("bigtrk plan: --choose compares no seconds; leave --measured out")
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
        typer.Argument(help="weak: events per rank fixed; strong: in all"),
    ],
    arguments: Arguments = None,
    out: Annotated[Path, typer.Option(help="folder of the series; one there is continued")] = Path(
        "scaling"
    ),
    ranks: Annotated[str, typer.Option(help="world sizes")] = "1,2,4",
    events: Annotated[
        int, typer.Option(min=1, help="to train on: per rank (weak), in all (strong)")
    ] = 100,
    validation: Annotated[int, typer.Option(min=0, help="to validate, likewise")] = 20,
    repeats: Annotated[int, typer.Option(min=1, max=1000, help="runs per world size")] = 3,
    slurm: Annotated[
        bool, typer.Option("--slurm", help="print a script that submits job arrays instead")
    ] = False,
    ranks_per_node: Annotated[int | None, typer.Option(min=1, help="with --slurm (4)")] = None,
) -> None:
    """Train over numbers of ranks on this host, and report; an unfinished series is taken up.

    `bigtrk report FOLDER...` reports series again, or several side by side.
    """
    from bigtrk.shipped import DEFAULT
    from bigtrk.studies.scaling.run_series import plan_series, run_series, slurm_script

    if ranks_per_node and not slurm:
        raise InputError("--ranks-per-node: belongs to --slurm; here all ranks share this host")
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
    trials: Annotated[int, typer.Option(min=1, help="in all; more continue a search")] = 20,
    out: Annotated[Path, typer.Option(help="folder of the search; one there is continued")] = Path(
        "search"
    ),
    at_once: Annotated[int, typer.Option(min=1, help="trials at a time")] = 1,
    ranks: Annotated[int, typer.Option(min=1, help="ranks of each trial, on one host")] = 1,
    launcher: Annotated[
        str | None,
        typer.Option(metavar="COMMAND", help='instead of torchrun: "srun --ntasks 8 python"'),
    ] = None,
) -> None:
    """Search for the settings that make a metric best, by TPE, and end bad trials early.

    Each trial is a run folder, OUT/trial0007. The same command goes on after whatever ended it.
    """
    from bigtrk.shipped import DEFAULT
    from bigtrk.studies.search.plan import plan_search
    from bigtrk.studies.search.search import run_search

    planned = plan_search(space, arguments or [], DEFAULT, out, trials)
    run_search(planned, trials, at_once, ranks, launcher)


def doctor(as_json: AsJson = False) -> None:
    """Show what is installed, what a run would use, what is missing and how to get it."""
    from bigtrk.doctor import examine, show

    findings = examine()
    print_result(findings, as_json, lambda: show(findings))
    raise typer.Exit(0 if findings["ready"] else 1)


def demo(
    out: Annotated[Path, typer.Argument(help="folder for all that it makes")],
    particles: Annotated[
        int, typer.Option(min=1, help="particles per event; of fewer less is learnt, and sooner")
    ] = 3000,
    seed: Annotated[int, typer.Option(min=0, help="of the events and of the weights")] = 0,
) -> None:
    """The main job on simulated events: simulate, build, partition, train, evaluate, report.

    Then the pipeline in small: from hits without truth to tracks, which are judged.
    """
    from bigtrk.demo import run_demo

    run_demo(out, particles, seed)
