"""The trained models of a run or a pipeline, as they are handed over to other software."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from bigtrk.errors import InputError
from bigtrk.formats.acts.modules import Stage
from bigtrk.pipeline.graphs import CUT_EFFICIENCY, RADIUS_EFFICIENCY
from bigtrk.pipeline.models import EdgeScorer, Embedding, cut_for, radius_for
from bigtrk.pipeline.stages import CLASSIFIER, EMBEDDING, FILTER, load_pipeline
from bigtrk.records.pipeline import is_pipeline
from bigtrk.training.model_files import load_model, model_configuration
from bigtrk.training.settings import Configuration

Check = Callable[[str, Configuration], None]  # raises for a run whose model cannot be given


def stages_of(run: Path, check: Check = lambda *_: None) -> list[Stage]:
    """Loads the trained model of a run, or those of all stages of a pipeline, which pass `check`.

    Raises:
        InputError: `run` has no model, or `check` refuses it.
    """
    if not is_pipeline(run):
        return [_of_run(run, check)]
    names = (EMBEDDING, FILTER, CLASSIFIER)
    configurations = {name: model_configuration(run / name) for name in names}
    for name, configuration in configurations.items():
        check(str(run / name), configuration)
    trained = load_pipeline(run)
    edge_cut = configurations[CLASSIFIER].training.edge_cut
    return [
        _stage(EMBEDDING, trained.embedding, radius=trained.radius),
        _stage(FILTER, trained.filter, cut=trained.cut),
        _stage(CLASSIFIER, trained.classifier, cut=edge_cut),
    ]


def _stage(
    name: str, of: Embedding | EdgeScorer, cut: float | None = None, radius: float | None = None
) -> Stage:
    return Stage(name, of.model, of.features.data, of.features.measured, cut, radius)


def _of_run(run: Path, check: Check) -> Stage:
    """Names a run's stage by what its model can be; validations chose cut and radius, if any."""
    check(str(run), model_configuration(run))
    stored = load_model(run)
    configuration = stored.configuration
    parts, cut = (stored.model.eval(), configuration.data, stored.measured), None
    with suppress(InputError):
        if configuration.model.kind == "hit":
            return Stage(EMBEDDING, *parts, radius=radius_for(run, RADIUS_EFFICIENCY))
        if configuration.model.scores_alone:
            cut = cut_for(run, CUT_EFFICIENCY)
    if configuration.model.kind == "hit":
        return Stage(EMBEDDING, *parts)
    name = FILTER if configuration.model.scores_alone else CLASSIFIER
    return Stage(name, *parts, cut=configuration.training.edge_cut if cut is None else cut)
