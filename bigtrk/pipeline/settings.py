"""The settings of a pipeline: of each stage's training, and of what is chosen from it."""

from typing import Any

from pydantic import Field

from bigtrk.config import Settings


class PipelineSettings(Settings):
    """`pipeline.yaml`: embedding, filter and classifier hold settings as `bigtrk/train.py` takes
    them, without data.train, data.validation and run.folder, which the pipeline gives.
    """

    validation: int = Field(1, ge=1)
    """Events held back from the end (by name), on which radius and cuts are chosen, and the quality
    of tracks is learnt [events]."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Seed of all trainings."""
    embedding: dict[str, Any]
    """Stage 1, the embedding of hits."""
    radius_efficiency: float = 0.99
    """Share of the target edges that the radius keeps."""
    filter: dict[str, Any]
    """Stage 3, which thins the radius graphs."""
    filter_efficiency: float = 0.995
    """Share of the target edges that the filter keeps."""
    classifier: dict[str, Any]
    """Stage 4, the graph network."""
    threshold: float = Field(0.5, ge=0, le=1)
    """Quality that a track needs: a higher one gives fewer fakes and finds fewer particles."""
