"""Train a track-finding network: the same under deepspeed, torchrun, srun and python."""

import argparse
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from bigtrk.console import exit_on_bad_input, given_path, warn_once
from bigtrk.disk.files import STDIN, is_own_pipe
from bigtrk.errors import InputError
from bigtrk.machine import slow_cards
from bigtrk.parallel.collectives import attempted, together
from bigtrk.parallel.process_group import process_group
from bigtrk.parallel.ranks import Ranks, configure_process, discover
from bigtrk.process import share_heap
from bigtrk.shipped import DEFAULT, shipped
from bigtrk.training import trainer
from bigtrk.training.checkpoint.folder import resumed_configuration
from bigtrk.training.guards import SIGNALS
from bigtrk.training.run import after_restart, open_run, prepare
from bigtrk.training.settings import Configuration, RunSettings, code_named, users_configuration
from bigtrk.user_code import CODE_HELP, allow_code

PROGRAM = "bigtrk/train.py"


class _Parser(argparse.ArgumentParser):
    """Raises InputError for a bad command line, as the other programs do."""

    def error(self, message: str) -> NoReturn:
        form = "; a setting is key.sub=value, without --" if message.startswith("unrec") else ""
        raise InputError(f"{message}{form} ({self.prog} --help tells more)")


def argument_parser(program: str) -> argparse.ArgumentParser:
    """Returns the parser of CONFIG.yaml, overrides and --resume, in any order."""
    example = "Example: bigtrk train data.train=graphs training.epochs=5"
    parser = _Parser(prog=program, description=__doc__.splitlines()[0], epilog=example)
    parser.add_argument(
        "arguments",
        nargs="*",
        metavar="CONFIG.yaml | key.sub=value",
        help=f"a file of settings (default: bigtrk.yaml, or {shipped('configs/default.yaml')}), "
        "and single settings; `make docs` in the checkout makes a site with a page of all settings",
    )
    parser.add_argument("--resume", type=Path, metavar="RUN", help="folder of a run to continue")
    named = f"with --resume: {CODE_HELP}"
    parser.add_argument("--code", action="append", default=[], metavar="MODULE", help=named)
    # The deepspeed launcher passes it; the environment says the same.
    parser.add_argument("--local_rank", help=argparse.SUPPRESS)
    return parser


def _files(arguments: argparse.Namespace) -> list[Path]:
    """Lists the configuration files of a command line; `-` is standard input."""
    named = [one for one in arguments.arguments if "=" not in one]
    return [STDIN if one == "-" else given_path(one) for one in named]


def configure(arguments: argparse.Namespace) -> Configuration:
    """Returns the configuration of a file, or of the run to resume, with overrides applied."""
    overrides = [argument for argument in arguments.arguments if "=" in argument]
    files = _files(arguments)
    for path in files:
        if path.suffix not in (".yaml", ".yml") and not path.exists():
            raise InputError(
                f"{path}: no such configuration file; a setting is key.sub=value, without spaces"
            )
        if path.is_dir():
            raise InputError(
                f"{path}: is a folder; write data.train={path} to train on it, or --resume {path} "
                "to continue its run"
            )
    if len(files) > 1:
        raise InputError(f"{files[1]}: is a second configuration file; give only one")
    allow_code(arguments.code)
    if files and arguments.resume:
        raise InputError(f"{files[0]}: --resume takes the run's own settings; leave out this file")
    if arguments.resume:
        return resumed_configuration(arguments.resume, overrides)
    local = Path("bigtrk.yaml")
    path = files[0] if files else local if local.exists() else DEFAULT
    return users_configuration(path, overrides)


def run(ranks: Ranks, arguments: argparse.Namespace) -> None:
    """Trains as a command line asks, on this rank."""
    arguments.resume = arguments.resume and given_path(arguments.resume)
    for path in _files(arguments):
        if ranks.world_size > 1 and is_own_pipe(path):
            raise InputError(f"{path}: is a pipe, which one rank alone can read; write a file")
    restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0" and not arguments.resume
    run_configured(ranks, lambda: configure(arguments), arguments.resume, restarted)


def run_configured(
    ranks: Ranks,
    configured_by: Callable[[], Configuration],
    resume: Path | None,
    is_restart: bool = False,
) -> Path:
    """Trains on all ranks, and writes the model's card; returns the run folder. After torchrun has
    restarted the ranks (`is_restart`), they continue their run.
    """
    configure_process(ranks)
    if slow := slow_cards():
        warn_once("capability", slow)
    # Configure before the ranks meet, since it sets how long they wait; raise errors after.
    configured = attempted(configured_by)
    if not configured.exception() and configured.result().sampling.method == "none":
        share_heap()
    settings = RunSettings() if configured.exception() else configured.result().run
    with process_group(ranks, settings.patience):
        configuration = together(configured.result)
        if is_restart:
            configuration, resume = after_restart(configuration)
        with open_run(prepare(configuration, ranks, resume)) as opened:  # collective
            trainer.train(opened)
    if ranks.is_first:
        # Reports are imported only here, so that ranks start faster.
        from bigtrk.reports.model_card import refresh_card

        refresh_card(opened.folder)
    return opened.folder


def train(configuration: Configuration) -> Path:
    """Trains in this process without a launcher, as `bigtrk train` does. Returns the run folder,
    for `load_model`. Environment and signal handlers are restored at the end.

    An interrupt (Ctrl-C, or a notebook's) makes it finish its step, save, and raise StoppedError;
    `bigtrk resume` continues the run. A second interrupt ends the process.
    """
    if not isinstance(configuration, Configuration):
        raise InputError(f"{configuration!r}: is not a Configuration; make one with configure(...)")
    if threading.current_thread() is not threading.main_thread():
        raise InputError("train() handles signals, so call it in the main thread of Python")
    allow_code(code_named(configuration))  # the caller has named it
    with _process_restored():
        return run_configured(discover(), lambda: configuration, None)


@contextmanager
def _process_restored() -> Iterator[None]:
    """Restores environment and signal handlers at the end of the block."""
    environment = dict(os.environ)
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        for number, handler in handlers.items():
            if handler is not None:  # one that Python did not install, and cannot
                signal.signal(number, handler)


def main(program: str = PROGRAM, arguments: Sequence[str] | None = None) -> None:
    """Runs training. program: its name as typed; arguments: None for those of the process."""
    ranks = exit_on_bad_input(program, discover)
    parse = argument_parser(program).parse_intermixed_args
    exit_on_bad_input(program, lambda: run(ranks, parse(arguments)), rank=ranks.rank)
