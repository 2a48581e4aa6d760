"""The command of the `bigtrk` program that plans runs."""

from pathlib import Path
from typing import Annotated

import typer

from bigtrk.commands.options import AsJson
from bigtrk.console import console, print_result
from bigtrk.errors import InputError
from bigtrk.user_code import Code, allow_code

Arguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[CONFIG.yaml | key.sub=value | DATA]...",
        help="configuration as bigtrk/train.py takes it; folders of graphs or sectors",
    ),
]
_MOST = 2**31 - 1  # ids of a sector have 32 bits
Nodes = Annotated[int | None, typer.Option(min=1, max=_MOST, help="of an event, with --edges")]
Edges = Annotated[int | None, typer.Option(min=1, max=_MOST, help="of an event, with --nodes")]
Paper = Annotated[str | None, typer.Option(help="event sizes of the papers: ex3, ctd, event1000")]
Ranks = Annotated[str, typer.Option(help="number of ranks, to 4096")]
RanksPerNode = Annotated[int, typer.Option(min=1, help="ranks per host")]
Memory = Annotated[float | None, typer.Option(min=0.1, max=1e6, help="GiB of each rank")]
Machine = Annotated[
    str | None, typer.Option(help="cpu, A100, H100 or H200; else that of this machine")
]
Measured = Annotated[
    Path | None, typer.Option(help="a run folder: its step slows the roofline down to what it took")
]
Choose = Annotated[
    bool, typer.Option("--choose", help="choose a run's settings for --ranks and --memory")
]
Try = Annotated[
    bool, typer.Option("--try", help="with --choose: train a few steps of those that fit")
]


def plan(
    arguments: Arguments = None,
    nodes: Nodes = None,
    edges: Edges = None,
    events: Paper = None,
    ranks: Ranks = "32",
    ranks_per_node: RanksPerNode = 4,
    memory: Memory = None,
    machine: Machine = None,
    measured: Measured = None,
    choose: Choose = False,
    try_: Try = False,
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
    from bigtrk.planning.sizes import Sizes
    from bigtrk.shipped import DEFAULT
    from bigtrk.studies.trials import try_out

    if try_ and not choose:
        raise InputError("bigtrk plan: --try is for --choose; add that")
    if measured and choose:
        raise InputError("bigtrk plan: --choose compares no seconds; leave --measured out")
    allow_code(code or ())
    sizes, options = Sizes(nodes, edges, events), (ranks, ranks_per_node, memory, machine)
    asked = Command(arguments or [], DEFAULT, sizes, *options, measured)
    if choose:
        chosen = asked.choice(try_out if try_ else None)
        print_result(chosen, as_json, lambda: tables.show_choice(chosen, console))
    else:
        answer = make_plan(asked.question())
        print_result(answer, as_json, lambda: tables.show_plan(answer, console))
