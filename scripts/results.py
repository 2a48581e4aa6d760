"""Result files: the findings of a script, with their commit, machine and software.

A script that measures adds `--output FILE` and `--publish` by `add_options`, opens its `Results`
before it measures, and gives them what it found. `--publish` writes `docs/results/NAME.json`, from
which the tables of the documentation are made (scripts/docs/results_tables.py); without it nothing
that git tracks is written.
"""

import argparse
import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from bigtrk.console import say
from bigtrk.disk.files import write_json
from bigtrk.errors import InputError
from bigtrk.machine import machine, software

CHECKOUT = Path(__file__).resolve().parents[1]
RESULTS = Path("docs/results")
# Git ignores files in this folder: those that could not be published.
UNPUBLISHED = Path("runs/unpublished")

# A result file is judged by these: plain numbers, None where they could not be measured.
Summary = Mapping[str, Any]  # numbers, None, and mappings of them


@dataclass(frozen=True)
class Tree:
    """The commit that a checkout is at, 40 hexadecimal digits, and whether nothing in it differs
    from that commit; both None where there is no git.
    """

    commit: str | None
    clean: bool | None


def read_tree(checkout: Path) -> Tree:
    """Reads the state of a checkout. Files that git ignores do not count, untracked ones do."""
    head = _git(checkout, "rev-parse", "HEAD", "--show-toplevel")
    # An unpacked archive may lie in somebody's own repository, whose commits say nothing of it.
    commit, top = head.split("\n", 1) if head else ("", "")
    if not commit or Path(top).resolve() != checkout.resolve():
        return Tree(None, None)
    return Tree(commit, _git(checkout, "status", "--porcelain", "--untracked-files=normal") == "")


def _git(checkout: Path, *arguments: str) -> str | None:
    """Returns what git prints, without the last line break; None where it fails or is missing."""
    command = ["git", "-C", str(checkout), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return None if done.returncode else done.stdout.rstrip("\n")


def add_options(parser: argparse.ArgumentParser, quick: str | None = None) -> None:
    """Lets a script be told where its result file goes; quick: what its --quick does, which is too
    little to be published.
    """
    parser.add_argument("--output", type=Path, metavar="FILE", help="write a result file")
    extent = parser.add_mutually_exclusive_group()
    if quick:
        extent.add_argument("--quick", action="store_true", help=quick)
    extent.add_argument(
        "--publish",
        action="store_true",
        help=f"write the result file of the documentation, in {RESULTS}; from a clean tree only",
    )


class Results:
    """The result file of a script, which is to be opened before anything is measured."""

    def __init__(self, name: str, arguments: argparse.Namespace) -> None:
        """Checks that what was found can be published as `name`, if `arguments` ask for it; raises
        InputError if there is no git, or the tree differs from its commit.
        """
        self._name, self._publish = name, bool(arguments.publish)
        self._output: Path | None = arguments.output
        self._tree = read_tree(CHECKOUT)
        if self._publish and not self._tree.clean:
            raise InputError(f"--publish: {_refusal(self._tree)}")

    def write(self, summary: Summary, **found: Any) -> None:
        """Writes the result file where it was asked for, and prints `summary` as the last line.

        Raises:
            InputError: the tree is not what it was at the start; what was to be published lies
                where the message says.
        """
        unpublished = self._publish and read_tree(CHECKOUT) != self._tree
        content = {
            "commit": self._tree.commit,
            "clean": self._tree.clean and not unpublished,
            "summary": summary,
            "machine": machine(),
            "software": software(),
            **found,
        }
        places = self._places(unpublished)
        for path in places:
            write_json(path, content)
            say(f"written to {path}")
        print(json.dumps(summary), flush=True)
        if unpublished:
            raise InputError(
                "the code changed during the measurement, so its result is not published, but kept "
                f"in {places[0]}"
            )

    def _places(self, unpublished: bool) -> list[Path]:
        places = [self._output] if self._output else []
        if self._publish and not unpublished:
            places.append(CHECKOUT / RESULTS / f"{self._name}.json")
        if unpublished and not places:
            moment = datetime.now().strftime("%Y%m%d-%H%M%S")
            places.append(CHECKOUT / UNPUBLISHED / f"{self._name}-{moment}.json")
        return places


def _refusal(tree: Tree) -> str:
    if tree.commit is None:
        return f"{CHECKOUT} is no git checkout, so no commit can be named; use --output FILE"
    return (
        f"{CHECKOUT} holds changes or files that are not committed (git status names them); commit "
        f"or remove them, or use --output FILE"
    )
