"""The fastest of the candidates that fit."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bigtrk.errors import InputError
from bigtrk.training.automatic.candidates import IN_MEMORY, Candidate, candidates
from bigtrk.training.automatic.margin import GIB
from bigtrk.training.automatic.prediction import Prediction, Task, predict
from bigtrk.training.steps.routers import setting_away


@dataclass(frozen=True)
class Choice:
    """The chosen prediction, and all that it was chosen from."""

    chosen: Prediction
    considered: list[Prediction]


def choose(task: Task) -> Choice:
    """Chooses the candidate that is predicted to end a step soonest, of those that fit; of equally
    fast ones that with fewest sectors.

    Where events are in sectors, or may still be cut, several sectors on a rank are candidates even
    if fewer fit: on a CPU steps of small ones took up to a fifth less time.

    Raises:
        InputError: none fits; names the memory that would do.
    """
    considered: list[Prediction] = []
    on_cpu = task.machine.shared
    for group in candidates(task.configuration, task.world, task.allow_bf16, on_cpu):
        found = [predict(task, one, sectors) for sectors in task.sectors for one in group]
        found = _needed(found + _finer(task, group, found))
        considered += found
        fitting = [(one.seconds, i) for i, one in enumerate(found) if one.seconds is not None]
        if fitting:
            return Choice(found[min(fitting)[1]], considered)
    raise InputError(_too_little(task, considered))


def _finer(
    task: Task, group: Sequence[Candidate], routed: Sequence[Prediction]
) -> list[Prediction]:
    """Predicts several sectors on a rank where routing would merge them."""
    in_sectors = task.cuttable or any(size.stored > 1 for size in task.sizes)
    if not in_sectors or "routing" in task.configuration.training.model_fields_set:
        return []
    known = {(one.candidate, one.cut) for one in routed}
    found = [predict(task, one.as_stored, sectors) for sectors in task.sectors for one in group]
    return [
        one
        for one in found
        if one.fits and one.sectors_per_rank > 1 and (one.candidate.routed, one.cut) not in known
    ]


def _needed(found: Sequence[Prediction]) -> list[Prediction]:
    """Leaves out edges in files where anything fits with all in memory: trials of the same training
    took 1.3 to 1.6 times as long with files.
    """
    in_memory = [one for one in found if IN_MEMORY in one.candidate.values]
    return in_memory if any(one.fits for one in in_memory) else list(found)


def _too_little(task: Task, considered: list[Prediction]) -> str:
    least, limit = min(considered, key=lambda one: one.memory), task.limit
    setting = setting_away(task.configuration, task.machine.shared)
    away = f"set {setting}, " if setting and _files_may_help(task) else ""
    filled = f", of which {limit.share:.0%} may be filled" if limit.share < 1 else ""
    return (
        f"no settings that may be chosen fit all events in the {limit.memory / GIB:.2f} GiB of a "
        f"rank{filled}; the least that would do is {limit.enough_gib(least.memory):.3f} GiB, with "
        f"{said(least)}: {away}give as much, add ranks, cut the events in more sectors or lower "
        f"model.hidden"
    )


def _files_may_help(task: Task) -> bool:
    """Says whether anything may fit with edges away from a rank's memory: on a CPU in files; of a
    GPU's host, the memory is not known.
    """
    if not task.machine.shared:
        return True
    training = task.configuration.training.model_copy(update={"spill": Path("FOLDER")})
    configuration = task.configuration.model_copy(update={"training": training})
    try:
        choose(replace(task, configuration=configuration))
    except InputError:  # nothing fits, or files do not go together with what is configured
        return False
    return True


def said(prediction: Prediction) -> str:
    """Says a candidate in words."""
    parts, per_rank = prediction.cut.parts, prediction.sectors_per_rank
    cut = "whole events" if parts == 1 else f"events in up to {parts} sectors"
    several = f", {per_rank} on a rank" if per_rank > 1 else ""
    return ", ".join([*prediction.candidate.overrides, cut]) + several
