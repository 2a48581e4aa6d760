"""`bigtrk plan`: turns its arguments into a `Question` or a choice."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bigtrk.console import given_path
from bigtrk.cost.event_size import EventSize
from bigtrk.cost.machines import find_machine
from bigtrk.errors import InputError
from bigtrk.planning.choice import Given, TryOut, make_choice
from bigtrk.planning.plan import Question
from bigtrk.planning.scaling import as_measured
from bigtrk.proof.prove import check_model
from bigtrk.records.run_folder import read_run
from bigtrk.training.data.event_source import open_events
from bigtrk.training.model_files import build_model
from bigtrk.training.settings import Configuration, users_configuration


@dataclass(frozen=True)
class Command:
    """A command line: CONFIG.yaml, key.sub=value and data folders in any order, and its options."""

    arguments: Sequence[str]
    default: Path
    nodes: int | None
    edges: int | None
    ranks: str
    ranks_per_node: int
    memory_gib: float | None
    machine: str | None
    measured: Path | None = None

    def question(self) -> Question:
        """Makes the question of a plan. Raises InputError if an argument is bad."""
        path, overrides, folders = split_arguments(self.arguments, self.default)
        return self._question(users_configuration(path, overrides), folders)

    def choice(self, try_out: TryOut | None = None) -> dict[str, Any]:
        """Chooses settings for the given events, by default the configured training events.

        try_out: trains some options for a few steps. Raises InputError if the memory of ranks is
        not given, an argument is bad, or no option fits.
        """
        world = self._one_number()
        if self.memory_gib is None:
            raise InputError("--choose needs the memory per rank; add --memory GIB")
        if world > self.ranks_per_node and world % self.ranks_per_node:
            raise InputError(
                f"--ranks {world}: is not a multiple of the {self.ranks_per_node} ranks per host; "
                f"give a multiple of {self.ranks_per_node}, or another --ranks-per-node"
            )
        path, overrides, folders = split_arguments(self.arguments, self.default)
        configuration = users_configuration(path, overrides)
        if not folders and self.nodes is None and self.edges is None:
            folders = configuration.data.train
        named = any("=" not in one and given_path(one) == path for one in self.arguments)
        given = Given([path] if named else [], overrides, folders)
        return make_choice(self._question(configuration, folders), given, try_out)

    def _question(self, configuration: Configuration, folders: Sequence[Path]) -> Question:
        if (method := configuration.sampling.method) != "none":
            raise InputError(
                f"sampling.method={method}: bigtrk plan counts whole events; set it to none, and "
                "give the size of one mini-batch with --nodes and --edges"
            )
        if configuration.model.is_users:  # checked as before a training; our models pass
            counts, kind = configuration.data.feature_counts, configuration.model.kind
            check_model(build_model(configuration), *counts, kind)
        machine = find_machine(self.machine)
        if self.measured:
            machine = as_measured(machine, read_run(given_path(self.measured)))
        return Question(
            configuration=configuration,
            sizes=self._sizes(folders),
            ranks=self._one_number(),
            ranks_per_node=self.ranks_per_node,
            budget=None if self.memory_gib is None else self.memory_gib * 2**30,
            machine=machine,
            measured=None if self.measured is None else str(self.measured),
        )

    def _sizes(self, folders: Sequence[Path]) -> list[EventSize]:
        if self.nodes is not None and self.edges is not None and not folders:
            return [EventSize(self.nodes, self.edges)]
        if not folders or self.nodes is not None or self.edges is not None:
            given = "both folders and sizes of events are given" if folders else ""
            raise InputError(
                f"{given or 'there are no events to plan for'}; name folders of graphs or sectors, "
                "or give --nodes with --edges"
            )
        return [source.size for source in open_events(folders)]

    def _one_number(self) -> int:
        world, *more = read_ranks(self.ranks)
        if more:
            raise InputError(f"--ranks {self.ranks}: must be one number, such as 4")
        return world


def split_arguments(arguments: Sequence[str], default: Path) -> tuple[Path, list[str], list[Path]]:
    """Splits a command line into the configuration file (without one, bigtrk.yaml in this folder,
    else `default`), overrides and data folders. Raises InputError if there is a second
    configuration file, or it is standard input.
    """
    if "-" in arguments:
        raise InputError("-: only bigtrk train reads standard input; name a file")
    overrides = [a for a in arguments if "=" in a]
    others = [given_path(a) for a in arguments if "=" not in a]
    files = [path for path in others if path.suffix in (".yaml", ".yml")]
    if len(files) > 1:
        raise InputError(f"{files[1]}: is a second configuration file; give only one")
    local = Path("bigtrk.yaml")
    path = files[0] if files else local if local.exists() else default
    return path, overrides, [path for path in others if path not in files]


def read_ranks(text: str) -> list[int]:
    """Returns the world sizes in a text such as "1,2,4", ascending. Raises InputError if `text` is
    something else, or a size is not from 1 to 4096.
    """
    try:
        ranks = sorted({int(word) for word in text.split(",")})
    except ValueError:
        raise InputError(f"--ranks {text!r}: write numbers, such as 1,2,4,8") from None
    if not 1 <= ranks[0] <= ranks[-1] <= 4096:
        raise InputError(f"--ranks {text!r}: each number must be from 1 to 4096")
    return ranks
