"""Train track-finding graph networks: from events to graphs, models, tracks and reports."""

import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

import bigtrk
from bigtrk.commands import data, judge, plan, tracks, training
from bigtrk.console import exit_on_bad_input, run_commands
from bigtrk.errors import InputError

# Each command imports what it needs: torch alone takes seconds that `--help` should not.
app = typer.Typer(
    help=__doc__,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
# What to use instead of commands and options that are gone.
_GONE = {
    "audit": "use python -m scripts.studies.gradient_audit in a checkout",
    "study": "use python -m scripts.studies.sampling_study in a checkout",
    "search --executor": "use --launcher COMMAND",
    "search --cpus": "use --launcher COMMAND, which may ask for them",
    "search --gpus": "use --launcher COMMAND, which may ask for them",
    "search --storage": "leave it out: a search is kept in a file, which needs no storage",
    "report --code": "leave it out: reports show no predicted seconds of models of your own",
    "report --pdf": "use bigtrk report RUN --html PAGE, then print it",
    **{
        f"{command} --spill-to-network": "leave it out: --spill takes network file systems, too"
        for command in ("evaluate", "infer", "reconstruct", "submit")
    },
    "watch --serve": "watch in the terminal, or train with run.loggers=[tensorboard] for a page",
    "watch --port": "watch in the terminal, or train with run.loggers=[tensorboard] for a page",
    "plan --events": "use --nodes and --edges, such as 330700 and 6900000 of CTD's events",
    "plan --seed": "leave it out: plan draws no events any more",
    "plan --calibrate": "use bigtrk plan --choose --try, which measures steps, or --measured RUN",
    "plan --check": "use bigtrk plan --measured RUN, which predicts seconds from a run's steps",
    "plan --allow-bf16": "set model.precision=bf16",
    "build --module-map-windows": "leave it out: a module map's windows hold all that it has seen",
    "filter --cut": "use --score-cut",
    **{
        f"{command} --min-hits": "use --hits-min"
        for command in ("evaluate", "score", "infer", "reconstruct", "display")
    },
}


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"bigtrk {bigtrk.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="print the version"),
    ] = False,
) -> None:
    """Declares the options that stand before a command."""


# The commands of each panel of `--help`, in the order in which a newcomer meets them.
_HAND_OVER = "Make tracks and exchange files"
_PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Data": (data.simulate, data.build, data.partition, data.filter_graphs),
    "Train": (training.train, training.resume, judge.watch, plan.search),
    "Judge": (judge.evaluate, judge.score, judge.report, judge.display),
    _HAND_OVER: (tracks.reconstruct, tracks.infer, tracks.baseline, tracks.fit, tracks.submit),
    "Plan and try": (plan.demo, plan.doctor, plan.plan, training.check_model, plan.scale),
}
# The last line of a command's help; each works after those before it.
_EXAMPLES = {
    "simulate": "bigtrk simulate events --events 8 --particles 1000",
    "build": "bigtrk build events graphs",
    "evaluate": "bigtrk evaluate runs/0001 graphs --tracks",
    "report": "bigtrk report runs/0001 --html report.html",
    "reconstruct": "bigtrk reconstruct pipeline events tracks",
    "score": "bigtrk score tracks events",
}
for _panel, _commands in _PANELS.items():
    for _command in _commands:
        _name = _command.__name__.removesuffix("_graphs").replace("_", "-")
        # Two are programs of their own, which read what follows their names, `--help` too.
        _passed_on = _name in ("partition", "train")
        app.command(
            _name,
            context_settings={"ignore_unknown_options": True, "allow_extra_args": True}
            if _passed_on
            else {},
            add_help_option=not _passed_on,
            epilog=f"Example: `{_EXAMPLES[_name]}`" if _name in _EXAMPLES else None,
            rich_help_panel=_panel,
        )(_command)
app.command("import-model", no_args_is_help=True, rich_help_panel=_HAND_OVER)(training.import_model)
app.add_typer(training.export, name="export", rich_help_panel=_HAND_OVER)
app.add_typer(tracks.pipeline, name="pipeline", rich_help_panel="Train")


def _refuse_what_is_gone(arguments: Sequence[str]) -> None:
    """Raises InputError if the command line has a removed command or option; says what to use."""
    words = " ".join(arguments).replace("=", " ").split()
    for gone, instead in _GONE.items():
        command, _, option = gone.partition(" ")
        is_there = not option or f" {option} " in f" {' '.join(words[1:])} "
        if words[:1] == [command] and is_there:
            raise InputError(f"'bigtrk {gone}' was removed; {instead}")


def main() -> None:
    """Runs the `bigtrk` program; the entry point of the console script."""
    exit_on_bad_input("bigtrk", lambda: _refuse_what_is_gone(sys.argv[1:]))
    run_commands("bigtrk", app)
