"""The model, data, engine and machine of a run: as facts by label, and in a sentence."""

from collections.abc import Sequence
from typing import Any

from bigtrk.records.run import RunRecord
from bigtrk.records.run_folder import Run, labels
from bigtrk.reports import figures
from bigtrk.reports.document import Facts


def engine_name(record: RunRecord) -> str:
    """Names the engine as people write it, such as "DeepSpeed ZeRO-1"."""
    return record.engine_detail or record.engine


def section(record: RunRecord, name: str) -> dict[str, Any]:
    """Returns a section of the configuration, which may be anybody's; {} where there is none."""
    found = record.config.get(name)
    return found if isinstance(found, dict) else {}


def facts(run: Run) -> dict[str, str]:
    """Says what was trained on what, with which engine, where: text by label."""
    record, data, machine = run.record, run.record.data, run.record.machine
    settings = section(record, "model")
    own = figures.settings({x: y for x, y in settings.items() if not x.startswith("init_")})
    start = settings.get("init_from")
    started = f"; started from {start}" if start else ""
    model = f"{figures.count(record.parameters)} parameters: {own}{started}"
    if record.ended == "imported":  # what its configuration says of a training are defaults
        labels = ("model", "trained on", "target", "validated on", "engine", "machine")
        known = {"model": model, "software": software(record), "progress": engine_name(record)}
        return {**dict.fromkeys(labels, figures.DASH), **known}
    ranks = "1 rank" if record.world_size == 1 else f"{record.world_size} ranks"
    launched = f", started by {record.launcher}" if record.launcher else ""
    size = f"{figures.count(data.nodes)} nodes, {figures.count(data.edges)} edges"
    folders = section(record, "data").get("train")
    names = f" of {', '.join(map(str, folders))}" if isinstance(folders, list) and folders else ""
    accelerator = None if machine.accelerator == "cpu" else machine.accelerator
    cores = None if machine.cores is None else f"{machine.cores} cores"
    return {
        "model": model,
        "trained on": f"{_events(data.train_events)}{names} ({size})",
        "target": figures.settings(section(record, "target")),
        "validated on": _events(data.validation_events),
        "engine": f"{engine_name(record)} on {ranks}{launched}",
        "machine": ", ".join(filter(None, (machine.host, accelerator, machine.cpu, cores))) or "-",
        "software": software(record),
        "progress": _progress(run),
    }


def sentence(run: Run) -> str:
    """Says what was trained on what, and how far, in a sentence."""
    record, known = run.record, facts(run)
    name = section(record, "model").get("name")
    kind = f"{name} model" if isinstance(name, str) else "model"
    trained = f"trained on {known['trained on']} with {known['engine']}; {known['progress']}"
    if record.ended == "imported":
        trained = f"{known['progress']}; what it was trained on is not known"
    return (
        f"Run {run.folder.resolve().name}: {kind} of {figures.count(record.parameters)} "
        f"parameters, {trained}."
    )


def headers(runs: Sequence[Run]) -> list[Facts]:
    """Makes blocks of facts; of several runs, what they share and where each differs."""
    names, known = labels(runs), [facts(run) for run in runs]
    if len(runs) == 1:
        return [Facts(f"Run {names[0]}", known[0])]
    common = {
        label: text
        for label, text in known[0].items()
        if all(other[label] == text for other in known)
    }
    own = {
        name: "; ".join(f"{label}: {x}" for label, x in one.items() if label not in common)
        for name, one in zip(names, known, strict=True)
    }
    return [Facts(f"All {len(runs)} runs", common), Facts("Each run", own)]


def software(record: RunRecord) -> str:
    """Names what a run was trained with, and the versions."""
    git = f" (git {record.git[:12]})" if record.git else ""
    others = [f"{name} {x}" for name, x in record.software.items() if x and name != "bigtrk"]
    newest = record.newest_code()
    own = [f"{name} {code.version[:12]}" for name, code in newest.items() if code.version]
    return ", ".join([f"bigtrk {figures.text(record.bigtrk)}{git}", *others, *own])


def _events(number: int | None) -> str:
    return f"{figures.count(number)} event{'' if number == 1 else 's'}"


def _progress(run: Run) -> str:
    planned = section(run.record, "training").get("epochs")
    steps = f"{len(run.steps)} step{'' if len(run.steps) == 1 else 's'}"
    since = f" since {run.record.started}" if run.record.started else ""
    told = [f"{len(run.epochs)}{f' of {planned}' if planned else ''} epochs, {steps}{since}"]
    if not run.epochs:
        told.append("no epoch has finished yet")
    if best := run.best:
        told.append(f"best in {best.metric} ({best.value:.5g}): epoch {best.epoch + 1}")
    if run.record.ended == "patience":
        told.append("no better epoch came, which ended it")
    return "; ".join(told)
