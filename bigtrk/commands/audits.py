"""The command of the `bigtrk` program that audits gradients."""

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from bigtrk.audit.names import Way
from bigtrk.console import console
from bigtrk.errors import InputError
from bigtrk.user_code import Code, allow_code


def audit(
    run: Annotated[Path, typer.Argument(help="run folder of bigtrk/train.py")],
    data: Annotated[Path, typer.Argument(help="folder of graphs, or of their sectors")],
    way: Annotated[
        list[Way] | None,
        typer.Option(help="a way to make gradients; may be given again; else all that DATA allow"),
    ] = None,
    draws: Annotated[int, typer.Option(min=3, max=1000, help="gradients drawn in each way")] = 32,
    events: Annotated[
        int, typer.Option(min=1, help="events whose gradients are made, the first of DATA by name")
    ] = 16,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="of what is drawn")] = 0,
    newest: Annotated[
        bool, typer.Option("--newest", help="audit the newest weights of the run alone")
    ] = False,
    code: Code = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="print the line of JSON alone, without tables")
    ] = False,
) -> None:
    """Measure bias, noise and direction of a run's mini-batch gradients against the exact one, and
    the batch size at which more stops paying, at the weights that the run started with, kept and
    ended with.

    Writes RUN/audit.json, and ends with a line of JSON.
    """
    from bigtrk.audit.audit import AuditOptions, audit_run
    from bigtrk.parallel.host import configure_process
    from bigtrk.parallel.process_group import process_group
    from bigtrk.parallel.ranks import discover
    from bigtrk.reports import audit_summary, show_audit

    ranks = discover()
    if ranks.world_size > 1:
        if not ranks.is_first:
            raise typer.Exit(2)
        raise InputError("audit takes one rank; start it without torchrun, srun and deepspeed")
    allow_code(code or ())
    configure_process(ranks)
    options = AuditOptions(tuple(dict.fromkeys(way or ())), draws, events, seed, newest)
    # What is said on the way is no part of the result.
    with redirect_stdout(sys.stderr), process_group(ranks):
        record = audit_run(run, data, options, ranks)
    if not as_json:
        show_audit(record, console)
    print(json.dumps(audit_summary(record)))
