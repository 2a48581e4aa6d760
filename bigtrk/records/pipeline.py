"""`pipeline.json`: the stages from hits to tracks, trained and chosen together."""

from typing import ClassVar, Literal

from bigtrk.records.quantities import Measure, Ratio, Text
from bigtrk.records.record import FileRecord

PIPELINE = "pipeline.json"


class PipelineRecord(FileRecord):
    """`pipeline.json`: of the runs in the folders embedding, filter and classifier beside it.

    radius: within which hits of the embedding are joined. cut: the score of the filter that an edge
    needs to be kept. builder: the name of the track builder. score_cut: its parameter.
    """

    made_again: ClassVar[str] = "finish 'bigtrk pipeline EVENTS OUT'"

    format: Literal[1] = 1
    radius: Measure
    cut: Ratio
    builder: Text
    score_cut: Ratio
