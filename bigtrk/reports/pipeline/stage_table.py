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
class Shares:
    """Shares that a stage leaves, in the columns' order; None where they say nothing."""

    efficiency: float | None
    purity: float | None
    findable: float | None

    def since(self, before: "Shares") -> "Shares":
        """Returns what was gained since the stage before; losses are below 0."""
        return Shares(
            _gain(before.efficiency, self.efficiency),
            _gain(before.purity, self.purity),
            _gain(before.findable, self.findable),
        )


def stage_shares(record: PipelineEvaluationRecord) -> list[Shares]:
    """Returns what each stage leaves."""
    return [_shares(record, stage) for stage in record.stages]


def stage_table(record: PipelineEvaluationRecord) -> Table:
    """Makes a row per stage, and one of the true edges that there are."""
    before = Shares(None, None, 1.0)
    rows = []
    for stage, shares in zip(record.stages, stage_shares(record), strict=True):
        gained = shares.since(before)
        rows.append(
            (
                STAGES.get(stage.stage, stage.stage),
                figures.count(stage.edges / record.events if record.events else None),
                figures.percent(shares.efficiency, 2),
                figures.percent(_lost(gained.efficiency), 2),
                figures.percent(shares.purity, 2),
                figures.percent(gained.purity, 2),
                figures.percent(shares.findable, 2),
                figures.percent(_lost(gained.findable), 2),
                figures.seconds(stage.seconds or None),
            )
        )
        before = shares
    cut = f"The classifier's cut is {record.edge_cut:g}; the track builder reads all its scores."
    return Table("What each stage leaves", COLUMNS, tuple(rows), (RULE, cut))


def _shares(record: PipelineEvaluationRecord, stage: StageLeft) -> Shares:
    event = record.stages[0]
    target_and_false = stage.edges - stage.true_edges + stage.target_edges
    return Shares(
        efficiency=_ratio(stage.target_edges, event.target_edges),
        # All that are there are true before any stage.
        purity=None if stage is event else _ratio(stage.target_edges, target_and_false),
        findable=_ratio(stage.findable, sum(record.losses.values())),
    )


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _gain(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


def _lost(gained: float | None) -> float | None:
    return None if gained is None else -gained
