"""The command of the `bigtrk` program that plans runs."""

from typing import Annotated

import typer

from bigtrk.commands.options import AsJson
from bigtrk.console import console, given_path, print_result
from bigtrk.errors import InputError
from bigtrk.user_code import Code, allow_code

Arguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[CONFIG.yaml | key.sub=value | DATA]...",
        help="configuration as bigtrk/train.py takes it; folders of graphs or sectors. With "
        "--check: run folders",
    ),
]
_MOST = 2**31 - 1  # ids of a sector have 32 bits
Nodes = Annotated[int | None, typer.Option(min=1, max=_MOST, help="of an event, with --edges")]
Edges = Annotated[int | None, typer.Option(min=1, max=_MOST, help="of an event, with --nodes")]
Paper = Annotated[str | None, typer.Option(help="event sizes of the papers: ex3, ctd, event1000")]
WorldSizes = Annotated[str, typer.Option(help="world sizes, to 4096")]
RanksPerNode = Annotated[
    int | None, typer.Option(min=1, help="ranks per host; 4, with --check all on one")
]
Memory = Annotated[float | None, typer.Option(min=0.1, max=1e6, help="GiB of each rank")]
Machine = Annotated[
    str | None,
    typer.Option(
        help="a calibration file, or a default: cpu, A100, H100 or H200; else this machine"
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="of the event sizes drawn")]
Calibrate = Annotated[
    bool,
    typer.Option("--calibrate", help="measure this machine first: half an hour, a GPU minutes"),
]
Check = Annotated[bool, typer.Option("--check", help="compare with what run folders recorded")]
Choose = Annotated[
    bool, typer.Option("--choose", help="choose a run's settings for --ranks and --memory")
]
Try = Annotated[
    bool, typer.Option("--try", help="with --choose: train a few steps of the fastest, and compare")
]
AllowBf16 = Annotated[bool, typer.Option("--allow-bf16", help="with --choose: the precision, too")]


def plan(
    arguments: Arguments = None,
    nodes: Nodes = None,
    edges: Edges = None,
    events: Paper = None,
    ranks: WorldSizes = "1,2,4,8,16,32",
    ranks_per_node: RanksPerNode = None,
    memory: Memory = None,
    machine: Machine = None,
    seed: Seed = 0,
    calibrate: Calibrate = False,
    check: Check = False,
    choose: Choose = False,
    allow_bf16: AllowBf16 = False,
    try_: Try = False,
    code: Code = None,
    as_json: AsJson = False,
) -> None:
    """Predict memory, the number of sectors that fits, step time and scaling, without training.

    --calibrate writes to bigtrk/calibration.json in the user's cache (XDG_CACHE_HOME, else
    ~/.cache), or to the file of --machine. Under torchrun it also measures the network between the
    ranks; the first of them writes. --choose leaves what is configured as it is, and prints the
    commands that cut the events and train; without events, those of the configuration. With --try
    it trains what is predicted to be fast for a few steps on this host, and chooses by that.
    """
    from bigtrk.planning import choice_table
    from bigtrk.planning import command as planning
    from bigtrk.planning import plan as plans
    from bigtrk.planning import tables as plan_tables
    from bigtrk.studies.trials import try_out
    from bigtrk.train import DEFAULT

    _check_one_task(
        calibrate=calibrate, check=check, choose=choose, allow_bf16=allow_bf16, try_=try_
    )
    allow_code(code or ())
    sizes = planning.Sizes(nodes, edges, events)
    per_node = ranks_per_node or 4
    asked = (arguments or [], DEFAULT, sizes, ranks, per_node, memory, machine)
    if calibrate:
        _calibrate(machine, as_json)
    elif check:
        checks = planning.compare_runs(arguments or [], machine, ranks_per_node)
        print_result(checks, as_json, lambda: plan_tables.show_checks(checks, console))
    elif choose:
        chosen = planning.ask_choice(*asked, allow_bf16, try_out if try_ else None)
        print_result(chosen, as_json, lambda: choice_table.show_choice(chosen, console))
    else:
        answer = plans.make_plan(planning.ask(*asked, seed))
        print_result(answer, as_json, lambda: plan_tables.show_plan(answer, console))


def _check_one_task(
    *, calibrate: bool, check: bool, choose: bool, allow_bf16: bool, try_: bool
) -> None:
    """Refuses options that another one would silently win over.

    Raises:
        InputError: several tasks are asked for at once, or bf16 or trials without a choice.
    """
    if calibrate + check + choose > 1:
        raise InputError(
            "bigtrk plan: --calibrate, --check and --choose are tasks of their own; give one after "
            "the other"
        )
    if allow_bf16 and not choose:
        raise InputError(
            "bigtrk plan: --allow-bf16 is for --choose; add that, or set model.precision=bf16"
        )
    if try_ and not choose:
        raise InputError("bigtrk plan: --try is for --choose; add that")


def _calibrate(machine: str | None, as_json: bool) -> None:
    """Measures this machine, into the file `machine` or the user's cache."""
    from bigtrk.disk.cache import make_private
    from bigtrk.planning import tables as plan_tables
    from bigtrk.planning.calibration import calibrate
    from bigtrk.training import costs

    path = given_path(machine) if machine else costs.calibration_path()
    if not machine:
        make_private(path.parent)  # before what takes minutes
    constants = calibrate.calibrate_launched(path)
    if constants is not None:
        found = constants.model_dump(mode="json")
        print_result(found, as_json, lambda: plan_tables.show_constants(found, str(path), console))
