"""The card of a trained model: what is known of it, for whoever uses it or answers for it."""

from collections.abc import Iterator, Mapping
from typing import Any

from bigtrk.records.best import BEST_WEIGHTS
from bigtrk.records.evaluation import EvaluationRecord
from bigtrk.records.run_folder import Run
from bigtrk.reports.elements import figures
from bigtrk.reports.facts import facts as run_facts
from bigtrk.reports.facts import sentence
from bigtrk.reports.model_card.limits import limits
from bigtrk.reports.model_card.markdown import escaped, facts, heading, points
from bigtrk.reports.model_card.metrics import metrics
from bigtrk.reports.model_card.use import citation, licences, loading

REWRITTEN = (
    "What is not said here is not known to bigtrk. This file is written when a training ends or a "
    "model is imported, and again after each 'bigtrk evaluate': notes of your own belong elsewhere."
)
TASKS = {
    False: "scores edges, pairs of hits: does one particle make them one after the other?",
    True: "embeds hits, so that those which a particle makes one after the other are neighbours",
}
SOURCES = {
    "trackml": "files in TrackML's format",
    "colliderml": "files in ColliderML's format",
    "heptrkx": "graphs of HEPTrkX",
    "acorn": "graphs of acorn",
    "pyg": "graphs of PyTorch Geometric",
    "python": "graphs made in Python",
}
TRAINED_BY = (
    *("epochs", "minutes", "events_per_step", "seed", "class_balance", "loss", "pt_weight"),
    "average_decay",
)


def model_card(run: Run) -> str:
    """Writes the card of the model that a run ended with, in Markdown."""
    name, evaluations = run.folder.resolve().name, evaluations_of_model(run)
    hits = _embeds_hits(run)
    sections = (
        (heading(f"Model card: run {name}", 1), escaped(sentence(run)), REWRITTEN),
        (heading("Model"), facts(_model(run, hits))),
        (heading("Data"), facts(_data(run))),
        (heading("Metrics"), *metrics(run, evaluations)),
        (heading("Limits"), points(limits(run, evaluations))),
        (heading("Licence"), licences()),
        (heading("Use"), *loading(run, hits)),
        (heading("Cite"), citation(run)),
    )
    return "\n\n".join(part for section in sections for part in section) + "\n"


def evaluations_of_model(run: Run) -> list[EvaluationRecord]:
    """Lists the evaluations of what the run ended with: not those of its checkpoints, nor of the
    model that it had before it was resumed.
    """
    finished = run.record.finished
    return [
        record
        for record in run.evaluations
        if record.step is None and (finished is None or record.made >= finished)
    ]


def _model(run: Run, embeds_hits: bool) -> Iterator[tuple[str, str]]:
    known, record = run_facts(run), run.record
    yield "task", TASKS[embeds_hits]
    yield "model", known["model"]
    yield "weights", _files(run)
    if record.ended != "imported":  # by settings that nobody knows
        yield from _settings(run)
    for label in ("engine", "machine", "software", "progress"):
        yield label, known[label]
    if record.finished:
        yield "written", f"{record.finished:%Y-%m-%d %H:%M} {record.finished.tzname()}"


def _settings(run: Run) -> Iterator[tuple[str, str]]:
    yield "training", figures.settings(_some(_section(run, "training"), TRAINED_BY))
    yield "optimizer", figures.settings(_section(run, "optimizer"))
    if _section(run, "sampling").get("method") not in (None, "none"):
        yield "sampling", figures.settings(_section(run, "sampling"))


def _files(run: Run) -> str:
    """Says which weights lie beside the card."""
    told = "model.safetensors: those that the training ended with"
    if run.best and (run.folder / BEST_WEIGHTS).exists():
        best = f"epoch {run.best.epoch + 1}, the best in {run.best.metric}"
        told += f"; {BEST_WEIGHTS}: those of {best}"
    if (run.folder / "averaged.safetensors").exists():
        told += "; averaged.safetensors: their exponential moving average"
    return told


def _data(run: Run) -> Iterator[tuple[str, str]]:
    known, data, section = run_facts(run), run.record.data, _section(run, "data")
    yield "trained on", known["trained on"]
    yield "graphs built from", ", ".join(SOURCES.get(one, one) for one in data.sources)
    if data.validation_events is not None:
        yield "validated on", known["validated on"]
    yield "target (cuts on particles)", known["target"]
    for label, key in (
        ("features of hits", "node_features"),
        ("features of edges", "edge_features"),
    ):
        names = section.get(key)
        yield label, ", ".join(map(str, names)) if isinstance(names, list) else ""


def _embeds_hits(run: Run) -> bool:
    model = _section(run, "model")
    return model.get("name") == "embedding" or model.get("gives") == "hit"


def _section(run: Run, name: str) -> Mapping[str, Any]:
    section = run.record.config.get(name)
    return section if isinstance(section, dict) else {}


def _some(section: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    """Takes those of a section's settings that are set."""
    return {key: section[key] for key in keys if section.get(key) is not None}
