"""Loads the trained models of a run or a pipeline, to hand them to other software."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from bigtrk.errors import InputError
from bigtrk.formats.acts.modules import Stage
from bigtrk.pipeline.graphs import CUT_EFFICIENCY, RADIUS_EFFICIENCY
from bigtrk.pipeline.models import TrainedModel, cut_for, radius_for
from bigtrk.pipeline.stages import CLASSIFIER, EMBEDDING, FILTER, load_pipeline
from bigtrk.records.pipeline import TRAINED, is_pipeline
from bigtrk.training.model_files import load_model, model_configuration
from bigtrk.training.settings import Configuration

Check = Callable[[str, Configuration], None]  # raises if a run's model cannot be exported


def stages_of(run: Path, check: Check = lambda *_: None) -> list[Stage]:
    """Loads the model of a run or of each stage of a pipeline; `check` raises to refuse one."""
    if not is_pipeline(run):
        return [_of_run(run, check)]
    configurations = {name: model_configuration(run / name) for name in TRAINED}
    for name, configuration in configurations.items():
        check(str(run / name), configuration)
    trained = load_pipeline(run)
    edge_cut = configurations[CLASSIFIER].training.edge_cut
    return [
        _stage(EMBEDDING, trained.embedding, radius=trained.radius),
        _stage(FILTER, trained.filter, cut=trained.cut),
        _stage(CLASSIFIER, trained.classifier, cut=edge_cut),
    ]


def _stage(name: str, trained: TrainedModel, **chosen: float) -> Stage:
    features = trained.features
    return Stage(name, trained.model, features.data, features.measured, **chosen)


def _of_run(run: Path, check: Check) -> Stage:
    """Loads a run's model as a stage that it can be, with cut or radius from its validations."""
    check(str(run), model_configuration(run))
    stored = load_model(run)
    configuration = stored.configuration
    parts = stored.model.eval(), configuration.data, stored.measured
    if configuration.model.kind == "hit":
        radius = None
        with suppress(InputError):
            radius = radius_for(run, RADIUS_EFFICIENCY)
        return Stage(EMBEDDING, *parts, radius=radius)
    name, cut = CLASSIFIER, configuration.training.edge_cut
    if configuration.model.scores_alone:
        name = FILTER
        with suppress(InputError):
            cut = cut_for(run, CUT_EFFICIENCY)
    return Stage(name, *parts, cut=cut)
