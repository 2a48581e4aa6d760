"""One draw of scripts/bench/plan_choice.py: its events, the choice for it, and all that could have
been chosen instead.
"""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from bigtrk.cost.event_size import EventSize
from bigtrk.cost.model import CostModel
from bigtrk.disk.files import read_json, write_json
from bigtrk.parallel.routing import Cut
from bigtrk.planning.choice import TryOut
from bigtrk.planning.command import Sizes, ask_choice
from bigtrk.planning.event_sizes import folder_sizes
from bigtrk.studies.trials import try_out
from bigtrk.train import DEFAULT
from bigtrk.training.automatic.margin import GIB, Limit
from bigtrk.training.costs import load_constants, make_cost
from bigtrk.training.named_code import users_configuration
from bigtrk.training.settings import Configuration
from bigtrk.training.steps.routers import FittingCuts
from scripts.bench.forked_ranks import ForkedRanks
from scripts.large_events.limited_ranks import Outcome, train_within
from scripts.results import CHECKOUT

STEPS = 3
SECTORS = (1, 2, 4, 8)
# What a rival keeps for the backward pass. On a CPU `offload` is `chunk`.
WAYS = ("model.recompute=none", "model.recompute=layer", "model.recompute=chunk")
# Particles of events of 25 k to 140 k edges. With smaller ones most of the memory is the process's,
# and candidates differ by less of it than has to be left free.
FEWEST, MOST = 2_000, 6_000
DOUBTLESS = 1.5  # times the limit: no prediction was ever that far off
# Layouts that are predicted to fit the least limit: the choice, the eight rivals that a draw has at
# least, and one more, which may not fit after all.
FITTING = 10
AS_STORED = "training.routing=stored"
# A rival that keeps all in memory is trained, whatever is predicted of its memory.
IN_MEMORY = ("training.spill=null", "training.memory_gib=1000")
CHOICE = "choice"


@dataclass(frozen=True)
class Draw:
    """Describes what a user may have. place: of the limit of memory, from the least (0) to the most
    (1).
    """

    number: int
    particles: int
    ranks: int
    hidden: int
    layers: int
    events_per_step: int
    place: float

    @property
    def settings(self) -> list[str]:
        """Returns the settings of its model and its steps."""
        return [
            f"model.hidden={self.hidden}",
            f"model.layers={self.layers}",
            f"training.events_per_step={self.events_per_step}",
            "training.epochs=1",
            "data.validation=0",
        ]


def draws(number: int, seed: int) -> list[Draw]:
    """Draws what the choice is asked for, a function of the seed alone."""
    random = np.random.default_rng(seed)
    return [
        Draw(
            number=i,
            particles=int(np.exp(random.uniform(np.log(FEWEST), np.log(MOST)))),
            ranks=int(random.integers(1, 5)),
            hidden=int(random.choice([16, 32, 64])),
            layers=int(random.choice([2, 3, 4, 6])),
            events_per_step=int(random.choice([1, 2])),
            place=float(random.uniform(0.02, 1)),
        )
        for i in range(number)
    ]


@dataclass(frozen=True)
class Rival:
    """A training that the choice is compared with; `spills`: edges between layers go to files
    where memory has no room for them.
    """

    way: str
    sectors: int
    spills: bool = False

    @property
    def name(self) -> str:
        files = ", files" if self.spills else ""
        return f"{self.way}, {self.sectors} sectors{files}"


RIVALS = (
    *(Rival(way, sectors) for way in WAYS for sectors in SECTORS),
    *(Rival(WAYS[-1], sectors, spills=True) for sectors in SECTORS),
)


@dataclass(frozen=True)
class Forks:
    """How trainings are started that are many: as forks of `ranks`, which are not charged for
    `modules` bytes of what they import.
    """

    ranks: ForkedRanks
    modules: int


@dataclass(frozen=True)
class Bench:
    """A draw's data in a folder of its own, and how its runs are started and remembered."""

    draw: Draw
    folder: Path
    calibration: Path
    forks: Forks

    def prepare(self) -> None:
        """Makes the events in all numbers of sectors, once, and a folder for files."""
        events = str(self.folder / "events")
        number = ["--events", str(STEPS * self.draw.events_per_step)]
        size = ["--particles", str(self.draw.particles), "--seed", str(self.draw.number)]
        self.files.mkdir(parents=True, exist_ok=True)
        quietly(["bigtrk", "simulate", events, *number, *size])
        quietly(["bigtrk", "build", events, str(self.stored(1))])
        whole = str(self.stored(1))
        quietly(
            *(["partition", whole, str(self.stored(k)), "--parts", str(k)] for k in SECTORS[1:])
        )

    @property
    def files(self) -> Path:
        """Returns the folder that edges may be spilled to."""
        return self.folder / "spilled"

    def stored(self, sectors: int) -> Path:
        """Returns the folder of the events in so many sectors."""
        return self.folder / ("graphs" if sectors == 1 else f"graphs-in-{sectors}")

    @cached_property
    def limit_gib(self) -> float:
        """Returns the memory of each rank, between what FITTING layouts need and the most that any
        does.
        """
        answer = self._ask(1000.0)
        enough = Limit(0.0, answer["budget_bytes"] / answer["memory_bytes"])
        laid = {(one.way, *self._laid(one)) for one in RIVALS if not one.spills}
        least = sorted(n_bytes for *_, n_bytes in laid)[:FITTING][-1]
        most = max(least, *(row["memory"] for row in answer["candidates"]))
        low, high = (np.log(enough.enough_gib(n_bytes)) for n_bytes in (least, most))
        return round(float(np.exp(low + self.draw.place * (high - low))) + 0.001, 3)

    @cached_property
    def answer(self) -> dict[str, Any]:
        """Returns what `bigtrk plan --choose --try --json` prints."""
        return self._ask(self.limit_gib, partial(try_out, launch=self.forks.ranks.train))

    def _ask(self, gib: float, tried: TryOut | None = None) -> dict[str, Any]:
        ranks, machine = self.draw.ranks, str(self.calibration)
        spill = f"training.spill={self.files}"
        arguments = [str(self.stored(1)), *self.draw.settings, spill]
        sizes = Sizes(None, None, None)
        return ask_choice(arguments, DEFAULT, sizes, str(ranks), ranks, gib, machine, False, tried)

    def runs(self) -> dict[str, list[str]]:
        """Returns the settings of the choice and of its rivals, by name; makes what they lack."""
        *cutting, training = map(shlex.split, self.answer["commands"])
        for command in cutting:
            quietly(command[2:])  # python -m
        chosen = training[training.index("bigtrk/train.py") + 1 :]
        return {CHOICE: chosen, **{rival.name: self._settings(rival) for rival in self.rivals()}}

    def rivals(self) -> list[Rival]:
        """Lists the rivals that might fit and are not the choice, each layout of an event once."""
        distinct: dict[Any, list[Rival]] = {}
        for one in RIVALS:
            layout = self._spilled_layout(one) if one.spills else self._layout(one)
            if layout:
                distinct.setdefault((one.way, one.spills, layout), []).append(one)
        return [alike[0] for alike in distinct.values() if not any(map(self._is_chosen, alike))]

    def run(self, name: str, settings: Sequence[str], again: bool = False) -> Outcome:
        """Trains within the limit, or returns what is known of it. The choice and what is run
        `again` are programs of their own, as a user's trainings are.
        """
        known = self.folder / f"{name}{' again' if again else ''}.json"
        if known.exists():
            return Outcome(**read_json(known))
        folder, ranks = self.folder / "run", self.draw.ranks
        shutil.rmtree(folder, ignore_errors=True)
        limit = int(self.limit_gib * GIB)
        if name == CHOICE or again:
            outcome = train_within(limit, ranks, settings, folder)
        else:
            free = limit - self.forks.modules
            outcome = train_within(free, ranks, settings, folder, self.forks.ranks.train_in)
        write_json(known, asdict(outcome))
        return outcome

    def _settings(self, rival: Rival) -> list[str]:
        data = f"data.train=[{self.stored(rival.sectors)}]"
        memory = self._with_files() if rival.spills else IN_MEMORY
        return [*self.draw.settings, data, rival.way, AS_STORED, *memory]

    def _with_files(self) -> tuple[str, str]:
        budget_gib = self.answer["budget_bytes"] / GIB
        return f"training.spill={self.files}", f"training.memory_gib={budget_gib}"

    def _layout(self, rival: Rival) -> Cut | None:
        """Returns how a rival lays out its largest event, unless it surely does not fit."""
        layout, n_bytes = self._laid(rival)
        return layout if n_bytes <= DOUBTLESS * self.limit_gib * GIB else None

    def _laid(self, rival: Rival) -> tuple[Cut, float]:
        """Returns how a rival lays out its largest event in memory, and the bytes it then needs."""
        cuts, largest = self._cuts(rival, float("inf"))
        layout = next(iter(cuts.fitting(largest)))
        return layout, cuts.needed(largest, layout)

    def _spilled_layout(self, rival: Rival) -> Cut | None:
        """Returns how a rival lays out its largest event, if it fits with edges in files alone."""
        cuts, largest = self._cuts(rival, self.answer["budget_bytes"])
        assert cuts.spilling is not None
        layout = next(iter(cuts.fitting(largest)), None)
        fits = layout is None or cuts.spilling.fits_without_files(largest, *layout)
        return None if fits else layout

    def _cuts(self, rival: Rival, budget: float) -> tuple[FittingCuts, EventSize]:
        """Returns the cuts of a rival's events, and the size of the largest."""
        sizes = folder_sizes([self.stored(rival.sectors)])
        configuration = users_configuration(DEFAULT, self._settings(rival))
        cuts = FittingCuts(configuration, self._cost(configuration), budget)
        return cuts, max(sizes, key=lambda size: size.edges)

    def _cost(self, configuration: Configuration) -> CostModel:
        ranks = self.draw.ranks
        return make_cost(configuration, ranks, ranks, load_constants(self.calibration))

    def _is_chosen(self, rival: Rival) -> bool:
        chosen: Mapping[str, Any] = self.answer["choice"]
        settings = {f"{key}={value}" for key, value in chosen["settings"].items()}
        spills = "training.spill=null" not in settings
        same = rival.way in settings and chosen["parts"] == rival.sectors
        return same and spills == rival.spills


def quietly(*commands: Sequence[str]) -> None:
    """Runs programs of ours side by side.

    Raises:
        subprocess.CalledProcessError: one failed.
    """
    programs = [[sys.executable, "-m", *command] for command in commands]
    running = [
        subprocess.Popen(program, stdout=subprocess.DEVNULL, cwd=CHECKOUT) for program in programs
    ]
    for status, program in zip([one.wait() for one in running], programs, strict=True):
        if status:
            raise subprocess.CalledProcessError(status, program)
