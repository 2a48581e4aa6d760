"""The settings of a pipeline: of each stage's training, and of what is chosen from it."""

from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from bigtrk.config import Settings, parse, read_yaml
from bigtrk.errors import InputError
from bigtrk.tracks import edge_metrics
from bigtrk.training.embedding import KEPT
from bigtrk.training.named_code import code_named
from bigtrk.training.settings import Configuration
from bigtrk.user_code import allow_code

Stage = dict[str, dict[str, Any]]  # settings of bigtrk/train.py, by section
CLASSES = {"embedding": "hit", "filter": "edge", "classifier": "edge"}  # the model of each stage
GIVEN = (("data", "train"), ("data", "validation"), ("run", "folder"), ("training", "seed"))


class PipelineSettings(Settings):
    """`pipeline.yaml`: embedding, filter and classifier hold settings as `bigtrk/train.py` takes
    them, without those that the pipeline gives (GIVEN).
    """

    validation: int = Field(1, ge=1)
    """Events held back from the end (by name), on which radius and cuts are chosen, and the quality
    of tracks is learnt; of two or more also the quality that tracks need [events]."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Seed of all trainings."""
    embedding: Stage
    """Stage 1, the embedding of hits."""
    radius_efficiency: float = 0.99
    """Share of the target edges that the radius keeps."""
    filter: Stage
    """Stage 3, which thins the radius graphs."""
    filter_efficiency: float = 0.995
    """Share of the target edges that the filter keeps."""
    classifier: Stage
    """Stage 4, the graph network."""
    fakes: float = Field(0.017, ge=0, le=1)
    """Share of the tracks that may be fakes: as many particles are found as that allows."""

    @model_validator(mode="after")
    def _shares_are_looked_for(self) -> Self:
        for name, kept in (
            ("radius_efficiency", KEPT),
            ("filter_efficiency", edge_metrics.KEPT),
        ):
            if getattr(self, name) not in kept.values():
                shares = ", ".join(f"{share:g}" for share in kept.values())
                raise ValueError(f"{name}: choose one of {shares}")
        return self

    def content(self, stage: str, graphs: Path, run: Path) -> Stage:
        """Returns the settings of a stage's training on folder `graphs`."""
        sections: Stage = getattr(self, stage)
        given: Stage = {
            "data": {"train": [str(graphs.resolve())], "validation": self.validation},
            "training": {"seed": self.seed},
            "run": {"folder": str(run)},
        }
        return {
            section: {**sections.get(section, {}), **given.get(section, {})}
            for section in (*sections, *(given.keys() - sections.keys()))
        }


def read_settings(file: Path) -> PipelineSettings:
    """Reads a pipeline's settings, those of all stages' trainings among them.

    Raises:
        InputError: a setting is unknown, has no such value, is given by the pipeline, or a stage's
            model is of another kind.
    """
    content = read_yaml(file, [{stage: [Configuration] for stage in CLASSES}])
    settings = parse(PipelineSettings, content, str(file))
    for stage, kind in CLASSES.items():
        for section, key in GIVEN:
            if key in getattr(settings, stage).get(section, {}):
                raise InputError(
                    f"{file}: {stage}.{section}.{key} is given by the pipeline; leave it out"
                )
        content = settings.content(stage, Path("graphs"), Path("run"))
        parsed = parse(Configuration, content, f"{file}: {stage}")
        allow_code(code_named(parsed))  # the user has named it
        if parsed.model.kind != kind:
            raise InputError(
                f"{file}: {stage}.model.name={parsed.model.name}: this stage's model must "
                f"{'embed hits' if kind == 'hit' else 'classify edges'}"
            )
    return settings
