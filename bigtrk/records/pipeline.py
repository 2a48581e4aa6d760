"""`pipeline.json`: the stages from hits to tracks, trained and chosen together."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from bigtrk.records.quantities import MOST, Measure, Ratio, Text
from bigtrk.records.record import FileRecord, Record

PIPELINE = "pipeline.json"
Id = Annotated[int, Field(ge=-(2**63), lt=2**63)]


class LayerModules(Record):
    """A layer with hits in training, and the range of the modules that these are in."""

    volume: Id
    layer: Id
    lowest: Id
    highest: Id


class ThresholdPoint(Record):
    """The tracks at a threshold of their quality: the share of particles found, and that of tracks
    that match none; None of nothing.
    """

    threshold: Ratio
    efficiency: Ratio | None
    fake_rate: Ratio | None


class ThresholdRecord(Record):
    """The threshold of track quality, which was chosen for a rate of `fakes` of what the held-back
    events say of each threshold; nothing where there is one alone.
    """

    threshold: Ratio
    fakes: Ratio
    scan: tuple[ThresholdPoint, ...] = Field((), max_length=MOST)


class PipelineRecord(FileRecord):
    """`pipeline.json`: of the runs in the folders embedding, filter and classifier beside it, and
    of the merge tree in merge_tree.safetensors.

    radius: within which hits of the embedding are joined. cut: the score of the filter that an edge
    needs to be kept. weights: the digests of the stages' weights. quality: how the threshold of the
    merge tree was chosen; None in files of before it was. modules: by layer, where the training had
    hits.
    """

    made_again: ClassVar[str] = "finish 'bigtrk pipeline train EVENTS OUT'"

    format: Literal[1] = 1
    radius: Measure
    cut: Ratio
    weights: dict[Text, Text]
    quality: ThresholdRecord | None = None
    modules: tuple[LayerModules, ...] = Field((), max_length=MOST)
