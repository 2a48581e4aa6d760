"""Steps that the spike guard left out of a run."""

from collections.abc import Sequence

from bigtrk.records.metrics import StepRecord
from bigtrk.records.run_folder import Run, labels
from bigtrk.reports.elements import figures
from bigtrk.reports.elements.layout import Table

# Number of spikes that a table names; the JSON summary names all.
_NAMED = 10


def spikes(run: Run) -> list[StepRecord]:
    """Lists the steps left out, ascending."""
    return [step for step in run.steps if step.spike]


def spikes_tables(runs: Sequence[Run]) -> list[Table]:
    """Makes a row per guarded run, notes naming the steps; no table without a guarded run."""
    guarded = [(name, run) for name, run in zip(labels(runs), runs, strict=True) if _guard(run)]
    if not guarded:
        return []
    rows = tuple(
        (name, _guard(run), figures.count(len(run.steps)), figures.count(len(spikes(run))))
        for name, run in guarded
    )
    note = (
        "Steps with a loss far above that of recent steps, or a loss or gradients that are not "
        "finite: left out (skip), or left out of the epoch trained again (roll_back)."
    )
    named = [_names(name, spikes(run)) for name, run in guarded if spikes(run)]
    columns = ("run", "guard", "steps", "spikes")
    return [Table("Loss spikes", columns, rows, (note, *named), text_columns=2)]


def _guard(run: Run) -> str:
    """Says how the run was guarded, "" if it was not."""
    training = run.record.config.get("training")
    guard = training.get("spike_guard") if isinstance(training, dict) else None
    return guard if isinstance(guard, str) and guard != "off" else ""


def _names(label: str, steps: Sequence[StepRecord]) -> str:
    shown = (
        f"step {step.step}, {'not finite' if step.loss is None else figures.loss(step.loss)}"
        for step in steps[:_NAMED]
    )
    more = f" and {len(steps) - _NAMED} more" if len(steps) > _NAMED else ""
    return f"{label}: {'; '.join(shown)}{more}."
