"""The `bigtrk` program: from events to graphs, sectors, trained models, tracks and reports."""

import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

import bigtrk
from bigtrk.commands import data, judge, plan, tracks, training
from bigtrk.console import exit_on_bad_input, run_commands
from bigtrk.errors import InputError

# Each command imports what it needs: torch alone takes seconds that `--help` should not.
app = typer.Typer(help=__doc__, no_args_is_help=True, pretty_exceptions_enable=False)
# What to use instead of commands and options that are gone.
_GONE = {
    "audit": "use python -m scripts.studies.gradient_audit in a checkout",
    "study": "use python -m scripts.studies.sampling_study in a checkout",
    "search --executor": "use --launcher COMMAND",
    "search --cpus": "use --launcher COMMAND, which may ask for them",
    "search --gpus": "use --launcher COMMAND, which may ask for them",
    "search --storage": "the study is a file that any disk can hold; leave it out",
    "report --code": "models of your own have a dash for predicted seconds; leave it out",
    "report --pdf": "use bigtrk report RUN --html PAGE, then print it",
    **{
        f"{command} --spill-to-network": "a folder on a network file system is used, and noticed"
        for command in ("evaluate", "infer", "reconstruct", "submit")
    },
    "watch --serve": "it shows runs in the terminal; for a page set run.loggers=[tensorboard]",
    "watch --port": "it shows runs in the terminal; for a page set run.loggers=[tensorboard]",
    "plan --events": "use --nodes and --edges, such as 330700 and 6900000 of CTD's events",
    "plan --seed": "it draws no events any more; bigtrk scale measures more ranks",
    "plan --calibrate": "use bigtrk plan --choose --try, which measures steps, or --measured RUN",
    "plan --check": "use bigtrk plan --measured RUN, which takes the seconds of a run",
    "plan --allow-bf16": "set model.precision=bf16",
    "build --module-map-windows": "windows are around all that a module map has seen",
}


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"bigtrk {bigtrk.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="print it and end"),
    ] = False,
) -> None:
    """Takes the options that stand before a command."""


_COMMANDS: list[tuple[str, Callable[..., None]]] = [
    ("simulate", data.simulate),
    ("build", data.build),
    ("partition", data.partition),
    ("train", training.train),
    ("resume", training.resume),
    ("evaluate", judge.evaluate),
    ("score", judge.score),
    ("report", judge.report),
    ("plan", plan.plan),
    ("check-model", training.check_model),
    ("filter", data.filter_graphs),
    ("import-model", training.import_model),
    ("reconstruct", tracks.reconstruct),
    ("baseline", tracks.baseline),
    ("fit", tracks.fit),
    ("infer", tracks.infer),
    ("submit", tracks.submit),
    ("display", judge.display),
    ("scale", plan.scale),
    ("search", plan.search),
    ("watch", judge.watch),
    ("doctor", plan.doctor),
    ("demo", plan.demo),
]
for _name, _command in _COMMANDS:
    # Two are programs of their own, which read what follows their names, `--help` too.
    _passed_on = _name in ("partition", "train")
    app.command(
        _name,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True}
        if _passed_on
        else {},
        add_help_option=not _passed_on,
        no_args_is_help=_name == "import-model",
    )(_command)
app.add_typer(tracks.pipeline, name="pipeline")
app.add_typer(training.export, name="export")


def _refuse_what_is_gone(arguments: Sequence[str]) -> None:
    """Raises InputError where the command line has a command or an option that is gone."""
    words = " ".join(arguments).replace("=", " ").split()
    for gone, instead in _GONE.items():
        command, _, option = gone.partition(" ")
        is_there = not option or f" {option} " in f" {' '.join(words[1:])} "
        if words[:1] == [command] and is_there:
            raise InputError(f"{gone} is gone; {instead}")


def main() -> None:
    """Runs the program; the entry point of the console script."""
    exit_on_bad_input("bigtrk", lambda: _refuse_what_is_gone(sys.argv[1:]))
    run_commands("bigtrk", app)
