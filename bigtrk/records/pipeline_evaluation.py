"""An evaluation of a pipeline, as `bigtrk evaluate PIPELINE EVENTS` writes it."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import AwareDatetime, Field, model_validator

from bigtrk.config import Count
from bigtrk.records.evaluation import Binned, EdgeScores, Judged, check_shared_bins
from bigtrk.records.quantities import MOST, Measure, Number, PathText, Ratio, Text, some
from bigtrk.records.record import FileRecord, Record


class StageLeft(Record):
    """Counts what a stage leaves of all events together, and has its mean `seconds` per event.

    edges: of these `true_edges` are true, and of these `target_edges` of particles to be found.
    findable: particles that the true edges left would find, without false ones.
    """

    stage: Text
    edges: Count
    true_edges: Count
    target_edges: Count
    findable: Count
    seconds: Measure

    @model_validator(mode="after")
    def _counts_fit(self) -> Self:
        if not self.target_edges <= self.true_edges <= self.edges:
            raise ValueError("target_edges are among true_edges, and these among edges")
        return self


class PipelineEvaluationRecord(FileRecord):
    """A file in `evaluations/` of a pipeline's folder.

    data: the folder of events, however it was typed. made: the time. weights: the digests of the
    stages' weights. pt_min: in GeV. edge_cut: the score of the classifier above which an edge
    counts as kept; the track builder reads all scores.

    stages: "event" (the true edges that there are), then "radius", "filter", "classifier" and
    "builder", whose edges are those that would be true if each track were a particle, and whose
    `findable` particles are those found. scores: the edges by the classifier's.
    losses: particles to be found by their category of loss, and loss_bins the same by pt (GeV),
    eta, distance (in eta and phi to the nearest particle), vertex (its distance from the beam line,
    mm) and hits, as "merged_by_pt" (`pipeline/evaluation/event_losses.py` defines them).
    notes: what was said of events, such as a radius that was reduced.
    """

    made_again: ClassVar[str] = "remove it and evaluate again"

    format: Literal[1] = 1
    data: PathText
    made: AwareDatetime
    weights: dict[Text, Text] = some()
    events: Count
    events_trained_on: Count = 0
    events_left_out: Count = 0
    hits: Count
    min_hits: Count
    pt_min: Number
    matching_fraction: Number
    edge_cut: Ratio
    stages: Annotated[tuple[StageLeft, ...], Field(max_length=MOST)]
    scores: EdgeScores | None = None
    tracks: Judged
    losses: dict[Text, Count] = some()
    loss_bins: dict[Text, Binned] = some()
    notes: Annotated[tuple[Text, ...], Field(max_length=MOST)] = ()

    @model_validator(mode="after")
    def _bins_are_shared(self) -> Self:
        check_shared_bins(self.loss_bins.items())
        return self
