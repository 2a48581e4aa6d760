"""`bigtrk plan` from its arguments to its tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bigtrk.cost.event_size import EventSize
from bigtrk.errors import InputError
from bigtrk.planning.check import check
from bigtrk.planning.choice import Given, TryOut, make_choice
from bigtrk.planning.event_sizes import folder_sizes, paper_sizes
from bigtrk.planning.mini_batches import MiniBatches, mini_batches
from bigtrk.planning.plan import Question, check_summary
from bigtrk.proof.prove import check_model
from bigtrk.training.costs import find_machine
from bigtrk.training.data.event_source import open_events
from bigtrk.training.model_files import build_model
from bigtrk.training.named_code import users_configuration
from bigtrk.training.settings import Configuration


@dataclass(frozen=True)
class Sizes:
    """The source of event sizes: numbers, a paper, or folders."""

    nodes: int | None
    edges: int | None
    paper: str | None

    @property
    def given(self) -> bool:
        """Says whether sizes are given without folders."""
        return (self.nodes, self.edges, self.paper) != (None, None, None)

    def of(self, folders: Sequence[Path]) -> list[EventSize]:
        """Returns the sizes asked for.

        Raises:
            InputError: not exactly one of the three is given.
        """
        numbers = self.nodes is not None or self.edges is not None
        if (bool(folders) + numbers + (self.paper is not None)) != 1:
            raise InputError(
                "bigtrk plan: say which events: folders of graphs or sectors, --nodes with "
                "--edges, or --events ex3, ctd or event1000"
            )
        if self.paper is not None:
            return paper_sizes(self.paper)
        if folders:
            return folder_sizes(folders)
        if self.nodes is None or self.edges is None:
            raise InputError("bigtrk plan: --nodes and --edges belong together")
        return [EventSize(self.nodes, self.edges)]


def ask(
    arguments: Sequence[str],
    default: Path,
    sizes: Sizes,
    ranks: str,
    ranks_per_node: int,
    memory_gib: float | None,
    machine: str | None,
    seed: int,
) -> Question:
    """Makes a command line's question: CONFIG.yaml, key.sub=value and data folders in any order.

    Raises:
        InputError: an argument is none of these, or its content is bad.
    """
    path, overrides, folders = split_arguments(arguments, default)
    configuration = _checked(users_configuration(path, overrides))
    sampled = _sampled(configuration, folders)
    return Question(
        configuration=configuration,
        sizes=sampled.sizes if sampled else sizes.of(folders),
        ranks=read_ranks(ranks),
        ranks_per_node=ranks_per_node,
        budget=None if memory_gib is None else memory_gib * 2**30,
        machine=find_machine(machine),
        seed=seed,
        sampled=sampled,
    )


def ask_choice(
    arguments: Sequence[str],
    default: Path,
    sizes: Sizes,
    ranks: str,
    ranks_per_node: int,
    memory_gib: float | None,
    machine: str | None,
    allow_bf16: bool,
    try_out: TryOut | None = None,
) -> dict[str, Any]:
    """Answers a command line's question for a choice; without events they are those that the
    configuration trains on. try_out: trains some candidates for a few steps.

    Raises:
        InputError: the number of ranks or their memory is not said, an argument is bad, or no
            candidate fits.
    """
    if len(read_ranks(ranks)) > 1 or memory_gib is None:
        raise InputError(
            "bigtrk plan --choose: give one number of ranks and the memory of each in GiB, such as "
            "--ranks 4 --memory 16"
        )
    world = read_ranks(ranks)[0]
    if world > ranks_per_node and world % ranks_per_node:
        raise InputError(
            f"bigtrk plan --choose: {world} ranks do not fill hosts of {ranks_per_node}; give a "
            f"multiple of that, or another --ranks-per-node"
        )
    path, overrides, folders = split_arguments(arguments, default)
    configuration = users_configuration(path, overrides)
    method = configuration.sampling.method
    if method != "none":
        raise InputError(
            f"bigtrk plan --choose: is for steps of whole events, not for "
            f"sampling.method={method}; set it to none"
        )
    if not folders and not sizes.given:
        folders = configuration.data.train
    question = ask(
        [*arguments, *(str(folder) for folder in folders if str(folder) not in arguments)],
        default,
        sizes,
        ranks,
        ranks_per_node,
        memory_gib,
        machine,
        seed=0,
    )
    files = [path] if str(path) in arguments else []
    return make_choice(question, Given(files, overrides, folders, allow_bf16), try_out)


def _sampled(configuration: Configuration, folders: Sequence[Path]) -> MiniBatches | None:
    """Returns one rank's mini-batches of the events in `folders`; None where these are whole.

    Raises:
        InputError: there are no folders, whose events' sizes are not those of mini-batches.
    """
    method = configuration.sampling.method
    if method == "none":
        return None
    if not folders:
        raise InputError(
            f"sampling.method={method}: how large mini-batches are depends on the events; name "
            f"folders of them"
        )
    return mini_batches(configuration, open_events(folders), 1)


def _checked(configuration: Configuration) -> Configuration:
    """Checks a model of the user's own as a training does, which ours pass.

    Raises:
        InputError: it breaks the contract (models/protocol.py).
    """
    if configuration.model.is_users:
        counts, kind = configuration.data.feature_counts, configuration.model.kind
        check_model(build_model(configuration), *counts, kind)
    return configuration


def split_arguments(arguments: Sequence[str], default: Path) -> tuple[Path, list[str], list[Path]]:
    """Splits a command line into the configuration file (without one, bigtrk.yaml in this folder,
    else `default`), overrides and data folders.

    Raises:
        InputError: there is a second configuration file.
    """
    overrides = [a for a in arguments if "=" in a]
    others = [Path(a) for a in arguments if "=" not in a]
    files = [path for path in others if path.suffix in (".yaml", ".yml")]
    if len(files) > 1:
        raise InputError(f"{files[1]}: a second configuration file; give one")
    local = Path("bigtrk.yaml")
    path = files[0] if files else local if local.exists() else default
    return path, overrides, [path for path in others if path not in files]


def compare_runs(
    runs: Sequence[str], machine: str | None, ranks_per_node: int | None
) -> list[dict[str, Any]]:
    """Returns the `check_summary` of run folders.

    Raises:
        InputError: none is given, or one cannot be compared.
    """
    if not runs:
        raise InputError("bigtrk plan --check: name run folders, such as runs/0001")
    constants = find_machine(machine)
    return check_summary([check(Path(run), constants, ranks_per_node) for run in runs])


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
