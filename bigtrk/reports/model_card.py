"""Writes `MODEL.md` of each trained model from `model_card.md`; texts in it show literally."""

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

from jinja2 import Environment
from markupsafe import Markup

from bigtrk import __version__
from bigtrk.console import complain
from bigtrk.disk.files import write_atomically
from bigtrk.errors import printable, reason
from bigtrk.records.evaluation import EvaluationRecord, TrackRecord
from bigtrk.records.run import BEST_WEIGHTS
from bigtrk.records.run_folder import Run, read_run
from bigtrk.reports import figures
from bigtrk.reports.evaluation import evaluation_numbers, evaluation_verdict, outdated
from bigtrk.reports.facts import facts, sentence
from bigtrk.reports.metrics import AXES, edge_numbers
from bigtrk.reports.runs import embedding_table
from bigtrk.user_code import names_code

CARD = "MODEL.md"
_MEANING = {c: f"\\{c}" for c in "\\`*_[]|~$#"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_ESCAPED = str.maketrans(_MEANING)
# Addresses of pages and of people, which GitHub makes links.
_LINKED = re.compile(r"(?<=:)//|(?<=www)\.|@", re.IGNORECASE)
SCORES = "scores edges, pairs of hits: does one particle make them one after the other?"
EMBEDS = "embeds hits, so that those which a particle makes one after the other are neighbours"
TRAINED_BY = (
    *("epochs", "minutes", "events_per_step", "seed", "class_balance", "loss", "pt_weight"),
    "average_decay",
)


def refresh_card(run: Path) -> None:
    """Writes the card of a run that has ended, atomically; prints a line if it cannot."""
    try:
        read = read_run(run)
        if read.record.ended is not None:
            text = model_card(read)
            write_atomically(run / CARD, lambda path: path.write_text(text, "utf-8"))
    except (OSError, ValueError) as error:
        complain(f"{run / CARD}: could not be written ({reason(error)}); the model is kept")


def model_card(run: Run) -> str:
    """Returns the card of a run's final model; without evaluations of its earlier states."""
    record, data = run.record, run.record.data
    model = record.section("model")
    embeds_hits = model.get("name") == "embedding" or model.get("gives") == "hit"
    code = record.newest_code()
    modules = sorted({name.partition(":")[0] for name in code if names_code(name)})
    shares = {
        "of the true edges": data.edge_efficiency,
        "of those of particles above 1 GeV with at least 3 hits": data.target_efficiency,
    }
    recall = [f"{figures.percent(x, 2)} % {which}" for which, x in shares.items() if x is not None]
    embedding = embedding_table("", run)
    last = [row for row in embedding.rows if row[0] == embedding.rows[-1][0]]
    environment = Environment(autoescape=True, finalize=_finish, keep_trailing_newline=True)
    environment.trim_blocks = environment.lstrip_blocks = True
    text = files("bigtrk.reports").joinpath("model_card.md").read_text("utf-8")
    return environment.from_string(text).render(
        run=run,
        name=run.folder.resolve().name,
        sentence=sentence(run),
        known=_known(run, embeds_hits),
        validated=next((epoch for epoch in reversed(run.epochs) if epoch.validation), None),
        embedding=replace(embedding, rows=tuple(last)),
        evaluations=[
            one
            for one in run.evaluations
            if not outdated(one, run) and (record.finished is None or one.made >= record.finished)
        ],
        recall=" and ".join(recall),
        modules=modules,
        option=Markup("".join(f" --code {module}" for module in modules)),
        argument=Markup(f", code={modules}" if modules else ""),
        embeds_hits=embeds_hits,
        version=__version__,
        figures=figures,
        edge_numbers=edge_numbers,
        evaluation_numbers=evaluation_numbers,
        evaluation_verdict=evaluation_verdict,
        tested=lambda record: [*_tested(run, record)],
    )


def _finish(value: object) -> Markup:
    return value if isinstance(value, Markup) else Markup(escaped(str(value)))


def escaped(text: str) -> str:
    """Returns a text as one line whose Markdown and HTML show as they are."""
    line = " ".join(printable(text).split())
    return _LINKED.sub(lambda m: f"&#{ord(m[0][0])};{m[0][1:]}", line.translate(_ESCAPED))


def _known(run: Run, embeds_hits: bool) -> dict[str, str]:
    """Returns the facts of the model and its data, by label; "" if unknown."""
    record, data, known = run.record, run.record.section("data"), facts(run)
    weights = ["model.safetensors: those that the training ended with"]
    if (best := run.best) and (run.folder / BEST_WEIGHTS).exists():
        weights.append(
            f"{BEST_WEIGHTS}: those of epoch {best.epoch + 1}, the best in {best.metric}"
        )
    if (run.folder / "averaged.safetensors").exists():
        weights.append("averaged.safetensors: their exponential moving average")
    told = {"task": EMBEDS if embeds_hits else SCORES, **known, "weights": "; ".join(weights)}
    if record.data.validation_events is None:
        told["validated on"] = ""
    told["graphs built from the formats"] = ", ".join(record.data.sources)
    for label, names in (("hits", "node_features"), ("edges", "edge_features")):
        found = data.get(names)
        told[f"features of {label}"] = ", ".join(map(str, found)) if isinstance(found, list) else ""
    if record.ended != "imported":  # whose training settings are unknown
        training, sampling = record.section("training"), record.section("sampling")
        some = {key: training[key] for key in TRAINED_BY if training.get(key) is not None}
        told["training"] = figures.settings(some)
        told["optimizer"] = figures.settings(record.section("optimizer"))
        if sampling.get("method") not in (None, "none"):
            told["sampling"] = figures.settings(sampling)
    at = record.finished
    return told | ({"written": f"{at:%Y-%m-%d %H:%M} {at.tzname()}"} if at else {})


def _tested(run: Run, record: EvaluationRecord) -> Iterator[str]:
    train = run.record.section("data").get("train")
    named = train if isinstance(train, list) else []
    folders = [os.path.realpath(one) for one in named if isinstance(one, str) and "\0" not in one]
    evaluated = record.folders or (record.data,)
    if run.record.data.validation_events and set(evaluated) & set(folders):
        yield "Its validation events are among these: settings may have been chosen by them."
    tracks = record.tracks or TrackRecord()
    if tracks.pt_min is not None and tracks.min_hits is not None:
        least = f"{tracks.pt_min:g} GeV and {figures.count_of(tracks.min_hits, 'hit')}"
        yield f"Only particles of at least {least} were to be found."
    for axis in ("pt", "eta", "vertex", "hits"):
        if binned := tracks.bins("strict").get(f"efficiency_by_{axis}"):
            ranges = [f"{low:g} to {high:g}" for low, high in pairwise(binned.edges)]
            bins = dict(zip(ranges, binned.whole, strict=True))
            bins["beyond that"] = binned.outside[1]
            told = [f"{where} ({figures.count(n)})" for where, n in bins.items() if n]
            yield f"Tested in {AXES[axis]}: {', '.join(told) or 'nowhere'}."
