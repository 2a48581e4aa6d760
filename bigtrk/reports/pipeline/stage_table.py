"""The table of what each stage of a pipeline leaves, loses and gains."""

from dataclasses import dataclass

from bigtrk.records.pipeline_evaluation import PipelineEvaluationRecord, StageLeft
from bigtrk.reports.elements import figures
from bigtrk.reports.elements.layout import Table

STAGES = {
    "event": "true edges of the events",
    "radius": "embedding and radius",
    "filter": "filter",
    "classifier": "classifier",
    "builder": "track builder",
}
COLUMNS = (
    *("after stage", "edges", "edge eff. %", "lost", "purity %", "gained"),
    *("findable %", "lost", "s"),
)
RULE = (
    "edges: per event; of the classifier those above its cut, of the track builder those that "
    "would be true if each track were a particle. edge eff.: share of the target edges, the true "
    "ones of particles to be found. purity: target edges among target and false ones, as also "
    "those are that skip a hit. findable: share of the particles to be found that the true edges "
    "left join to enough hits; of the track builder, those found. lost, gained: per cent since the "
    "stage before. s: per event."
)


@dataclass(frozen=True)
class _Shares:
    """Shares that a stage leaves, in the columns' order; None where they say nothing."""

    efficiency: float | None
    purity: float | None
    findable: float | None


def stage_table(record: PipelineEvaluationRecord) -> Table:
    """Makes a row per stage, and one of the true edges that there are."""
    before = _Shares(None, None, 1.0)
    rows = []
    for stage in record.stages:
        shares = _shares(record, stage)
        rows.append(
            (
                STAGES.get(stage.stage, stage.stage),
                figures.count(stage.edges / record.events if record.events else None),
                figures.percent(shares.efficiency, 2),
                _difference(before.efficiency, shares.efficiency),
                figures.percent(shares.purity, 2),
                _difference(shares.purity, before.purity),
                figures.percent(shares.findable, 2),
                _difference(before.findable, shares.findable),
                figures.seconds(stage.seconds or None),
            )
        )
        before = shares
    cut = f"The classifier's cut is {record.edge_cut:g}; the track builder reads all its scores."
    return Table("What each stage leaves", COLUMNS, tuple(rows), (RULE, cut))


def _shares(record: PipelineEvaluationRecord, stage: StageLeft) -> _Shares:
    event = record.stages[0]
    target_and_false = stage.edges - stage.true_edges + stage.target_edges
    return _Shares(
        efficiency=_ratio(stage.target_edges, event.target_edges),
        # All that are there are true before any stage.
        purity=None if stage is event else _ratio(stage.target_edges, target_and_false),
        findable=_ratio(stage.findable, sum(record.losses.values())),
    )


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _difference(more: float | None, less: float | None) -> str:
    return figures.percent(None if more is None or less is None else more - less, 2)
