"""The metrics of a model, as far as evaluations and validations know them."""

from collections.abc import Iterator, Sequence

from bigtrk.records.evaluation import EvaluationRecord
from bigtrk.records.run_folder import Run
from bigtrk.reports.elements import figures
from bigtrk.reports.elements.first_screen import INTERVALS, Headline
from bigtrk.reports.embedding import embedding_tables
from bigtrk.reports.evaluation.headlines import edge_headlines, evaluation_headlines
from bigtrk.reports.evaluation.tables import BUDGET
from bigtrk.reports.model_card.markdown import escaped, heading, table

COLUMNS = ("metric", "value", "interval; of how many")
RULES = (
    f"{INTERVALS} Tracks: {BUDGET[0]} matching, {BUDGET[1]} mode. Efficiency, purity and AUC of "
    f"edges are means over events."
)


def metrics(run: Run, evaluations: Sequence[EvaluationRecord]) -> Iterator[str]:
    """Writes the last validation, and each evaluation of the model."""
    known = [*_validation(run), *(part for each in evaluations for part in _evaluation(each))]
    yield from known or ["None is known."]
    if known:
        yield escaped(RULES)


def _validation(run: Run) -> Iterator[str]:
    """Writes the last validation in the training, of the weights as they were then."""
    for epoch in [epoch for epoch in run.epochs if epoch.validation][-1:]:
        assert epoch.validation, "chosen so"
        yield heading(f"Validation after epoch {epoch.number}", 3)
        yield _numbers(edge_headlines(epoch.validation), epoch.validation.loss)
    for found in embedding_tables([run]):
        last = found.rows[-1][0]
        yield heading(f"Validation after epoch {last}", 3)
        yield table(found.columns[1:], [row[1:] for row in found.rows if row[0] == last])
        yield escaped(" ".join(found.notes))


def _evaluation(record: EvaluationRecord) -> Iterator[str]:
    events = "1 event" if record.events == 1 else f"{figures.count(record.events)} events"
    yield heading(f"Evaluation on {events} of {record.data}", 3)
    yield escaped(" ".join(_conditions(record)))
    yield _numbers(evaluation_headlines(record), record.edge_metrics.loss)


def _conditions(record: EvaluationRecord) -> Iterator[str]:
    """Says when it was made, of which weights, and what its tracks were made by."""
    weights = f", with the weights of {record.weights}" if record.weights else ""
    yield f"Made {record.made:%Y-%m-%d}{weights}."
    if tracks := record.tracks:
        yield (
            f"Tracks by {tracks.builder} from edges with a score above "
            f"{figures.text(tracks.score_cut)}."
        )


def _numbers(numbers: Sequence[Headline], loss: float | None) -> str:
    rows = [(one.label, one.value, one.basis) for one in numbers]
    return table(COLUMNS, rows if loss is None else [*rows, ("loss", figures.loss(loss), "")])
