"""`bigtrk plan` from its arguments to its tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bigtrk.console import given_path
from bigtrk.cost.machines import find_machine
from bigtrk.errors import InputError
from bigtrk.planning.choice import Given, TryOut, make_choice
from bigtrk.planning.plan import Question
from bigtrk.planning.scaling import as_measured
from bigtrk.planning.sizes import MiniBatches, Sizes, mini_batches
from bigtrk.proof.prove import check_model
from bigtrk.records.run_folder import read_run
from bigtrk.training.data.event_source import open_events
from bigtrk.training.model_files import build_model
from bigtrk.training.named_code import users_configuration
from bigtrk.training.settings import Configuration


@dataclass(frozen=True)
class Command:
    """A command line: CONFIG.yaml, key.sub=value and data folders in any order, and its options."""

    arguments: Sequence[str]
    default: Path
    sizes: Sizes
    ranks: str
    ranks_per_node: int
    memory_gib: float | None
    machine: str | None
    measured: Path | None = None

    def question(self, folders: Sequence[Path] = ()) -> Question:
        """Makes the question of a plan, of events in `folders` where none are named.

        Raises:
            InputError: an argument is bad.
        """
        path, overrides, named = split_arguments(self.arguments, self.default)
        configuration = _checked(users_configuration(path, overrides))
        folders, machine = named or folders, find_machine(self.machine)
        sampled = _sampled(configuration, folders)
        if self.measured:
            machine = as_measured(machine, read_run(given_path(self.measured)))
        return Question(
            configuration=configuration,
            sizes=sampled.sizes if sampled else self.sizes.of(folders),
            ranks=self._one_number(),
            ranks_per_node=self.ranks_per_node,
            budget=None if self.memory_gib is None else self.memory_gib * 2**30,
            machine=machine,
            measured=None if self.measured is None else str(self.measured),
            sampled=sampled,
        )

    def choice(self, try_out: TryOut | None = None) -> dict[str, Any]:
        """Chooses settings; without events they are those that the configuration trains on.

        try_out: trains some options for a few steps.

        Raises:
            InputError: the memory of ranks is not said, an argument is bad, or no option fits.
        """
        world = self._one_number()
        if self.memory_gib is None:
            raise InputError("bigtrk plan --choose: give the memory of a rank, as --memory 16")
        if world > self.ranks_per_node and world % self.ranks_per_node:
            raise InputError(
                f"bigtrk plan --choose: {world} ranks do not fill hosts of {self.ranks_per_node}; "
                f"give a multiple of that, or another --ranks-per-node"
            )
        path, overrides, folders = split_arguments(self.arguments, self.default)
        configuration = users_configuration(path, overrides)
        if (method := configuration.sampling.method) != "none":
            raise InputError(
                f"bigtrk plan --choose: is for steps of whole events, not for "
                f"sampling.method={method}; set it to none"
            )
        if not folders and not self.sizes.given:
            folders = configuration.data.train
        named = any("=" not in one and given_path(one) == path for one in self.arguments)
        files = [path] if named else []
        return make_choice(self.question(folders), Given(files, overrides, folders), try_out)

    def _one_number(self) -> int:
        world, *more = read_ranks(self.ranks)
        if more:
            raise InputError(
                f"--ranks {self.ranks}: give one number; bigtrk scale measures several"
            )
        return world


def _sampled(configuration: Configuration, folders: Sequence[Path]) -> MiniBatches | None:
    """Returns one rank's mini-batches of the events in `folders`; None where these are whole."""
    method = configuration.sampling.method
    if method == "none":
        return None
    if not folders:
        raise InputError(
            f"sampling.method={method}: how large mini-batches are depends on the events; name "
            f"folders of them"
        )
    return mini_batches(configuration, open_events(folders))


def _checked(configuration: Configuration) -> Configuration:
    """Checks a model of the user's own as a training does, which ours pass."""
    if configuration.model.is_users:
        counts, kind = configuration.data.feature_counts, configuration.model.kind
        check_model(build_model(configuration), *counts, kind)
    return configuration


def split_arguments(arguments: Sequence[str], default: Path) -> tuple[Path, list[str], list[Path]]:
    """Splits a command line into the configuration file (without one, bigtrk.yaml in this folder,
    else `default`), overrides and data folders.

    Raises:
        InputError: there is a second configuration file, or it is standard input.
    """
    if "-" in arguments:
        raise InputError(
            "-: bigtrk train alone reads standard input; write the configuration to a file"
        )
    overrides = [a for a in arguments if "=" in a]
    others = [given_path(a) for a in arguments if "=" not in a]
    files = [path for path in others if path.suffix in (".yaml", ".yml")]
    if len(files) > 1:
        raise InputError(f"{files[1]}: a second configuration file; give one")
    local = Path("bigtrk.yaml")
    path = files[0] if files else local if local.exists() else default
    return path, overrides, [path for path in others if path not in files]


def read_ranks(text: str) -> list[int]:
    """Parses world sizes such as "1,2,4"; returns them ascending.

    Raises:
        InputError: `text` is something else, or a size is not from 1 to 4096.
    """
    try:
        ranks = sorted({int(word) for word in text.split(",")})
    except ValueError:
        raise InputError(f"--ranks {text!r}: write numbers, such as 1,2,4,8") from None
    if not 1 <= ranks[0] <= ranks[-1] <= 4096:
        raise InputError(f"--ranks {text!r}: from 1 to 4096")
    return ranks
