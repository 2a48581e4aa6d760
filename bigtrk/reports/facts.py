"""The header of a run: the task, the data, the engine and the machine."""

from collections.abc import Sequence
from typing import Any

from bigtrk.records.run import RunRecord
from bigtrk.records.run_folder import Run, labels
from bigtrk.reports.elements import figures


def engine_name(record: RunRecord) -> str:
    """Names the engine as people write it, such as "DeepSpeed ZeRO-1"."""
    names = {"ddp": "DDP", "deepspeed": "DeepSpeed", "fsdp2": "FSDP2", "none": ""}
    name = names.get(record.engine, record.engine)
    detail = record.engine_detail or ""
    return detail if detail.lower().startswith(record.engine) else f"{name} {detail}".strip()


def facts(run: Run) -> dict[str, str]:
    """Says what was trained on what, with which engine, where: text by label."""
    record, data = run.record, run.record.data
    known = {
        "model": f"{figures.count(record.parameters)} parameters: {_model(run)}",
        "trained on": f"{_events(data.train_events)}{_folders(run)} ({_size(run)})",
        "target": _section(run, "target"),
        "validated on": _events(data.validation_events),
        "engine": f"{engine_name(record)} on {_ranks(record)}",
        "machine": _machine(record),
        "software": software(record),
        "progress": _progress(run),
    }
    if record.ended == "imported":  # what its configuration says of a training are defaults
        unknown = ("trained on", "target", "validated on", "engine", "machine")
        known |= {**dict.fromkeys(unknown, figures.DASH), "progress": engine_name(record)}
    return known


def sentence(run: Run) -> str:
    """Says what was trained on what, and how far, in a sentence."""
    record, known = run.record, facts(run)
    name = (_settings(run, "model") or {}).get("name")
    kind = f"{name} model" if isinstance(name, str) else "model"
    trained = f"trained on {known['trained on']} with {known['engine']}; {known['progress']}"
    if record.ended == "imported":
        trained = f"{known['progress']}; what it was trained on is not known"
    return (
        f"Run {run.folder.resolve().name}: {kind} of {figures.count(record.parameters)} "
        f"parameters, {trained}."
    )


def headers(runs: Sequence[Run]) -> list[tuple[str, dict[str, str]]]:
    """Makes blocks of title and facts; of several runs, what they share and where each differs."""
    names = labels(runs)
    known = [facts(run) for run in runs]
    if len(runs) == 1:
        return [(f"Run {names[0]}", known[0])]
    common = {
        label: text
        for label, text in known[0].items()
        if all(other[label] == text for other in known)
    }
    own = {
        name: "; ".join(f"{label}: {x}" for label, x in one.items() if label not in common)
        for name, one in zip(names, known, strict=True)
    }
    return [(f"All {len(runs)} runs", common), ("Each run", own)]


def _events(number: int | None) -> str:
    return f"{figures.count(number)} event{'' if number == 1 else 's'}"


def _folders(run: Run) -> str:
    """Names the folders of the events that were trained, as far as the configuration does."""
    folders = (_settings(run, "data") or {}).get("train")
    return f" of {', '.join(map(str, folders))}" if isinstance(folders, list) and folders else ""


def _ranks(record: RunRecord) -> str:
    ranks = "1 rank" if record.world_size == 1 else f"{record.world_size} ranks"
    return f"{ranks}, started by {record.launcher}" if record.launcher else ranks


def _size(run: Run) -> str:
    data = run.record.data
    return f"{figures.count(data.nodes)} nodes, {figures.count(data.edges)} edges"


def _section(run: Run, name: str) -> str:
    return figures.settings(_settings(run, name))


def _settings(run: Run, name: str) -> dict[str, Any] | None:
    section = run.record.config.get(name)
    return section if isinstance(section, dict) else None


def _model(run: Run) -> str:
    """Says what the model is, and from which weights it started, if not from drawn ones."""
    section = _settings(run, "model") or {}
    own = {key: value for key, value in section.items() if not key.startswith("init_")}
    start = section.get("init_from")
    return figures.settings(own) + (f"; started from {start}" if start else "")


def _machine(record: RunRecord) -> str:
    machine = record.machine
    accelerator = None if machine.accelerator == "cpu" else machine.accelerator
    cores = None if machine.cores is None else f"{machine.cores} cores"
    known = [machine.host, accelerator, machine.cpu, cores]
    return ", ".join(part for part in known if part) or figures.DASH


def software(record: RunRecord) -> str:
    """Names what a run was trained with, and the versions."""
    git = f" (git {record.git[:12]})" if record.git else ""
    others = [
        f"{name} {version}"
        for name, version in record.software.items()
        if version and name != "bigtrk"
    ]
    newest = record.newest_code()
    own = [f"{name} {code.version[:12]}" for name, code in newest.items() if code.version]
    return ", ".join([f"bigtrk {figures.text(record.bigtrk)}{git}", *others, *own])


def _progress(run: Run) -> str:
    training = run.record.config.get("training")
    planned = training.get("epochs") if isinstance(training, dict) else None
    epochs = f"{len(run.epochs)} of {planned} epochs" if planned else f"{len(run.epochs)} epochs"
    since = f" since {run.record.started}" if run.record.started else ""
    plural = "" if len(run.steps) == 1 else "s"
    waiting = "" if run.epochs else "; no epoch has finished yet"
    return f"{epochs}, {len(run.steps)} step{plural}{since}{waiting}{_best(run)}"


def _best(run: Run) -> str:
    """Says which epoch was the best, and whether the want of a better one ended the run."""
    ended = "; no better epoch came, which ended it" if run.record.ended == "patience" else ""
    if run.best is None:
        return ended
    return f"; best in {run.best.metric} ({run.best.value:.5g}): epoch {run.best.epoch + 1}{ended}"
