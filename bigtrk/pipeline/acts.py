"""Models of a run, or of each stage of a pipeline, handed over to ACTS."""

from contextlib import suppress
from pathlib import Path

from bigtrk.errors import InputError
from bigtrk.formats.acts.export import check_out, export_stages
from bigtrk.formats.acts.stage import Stage, check_exportable
from bigtrk.pipeline.graphs import CUT_EFFICIENCY, RADIUS_EFFICIENCY
from bigtrk.pipeline.models import EdgeScorer, Embedding, cut_for, radius_for
from bigtrk.pipeline.stages import CLASSIFIER, EMBEDDING, FILTER, load_pipeline
from bigtrk.records.pipeline import is_pipeline
from bigtrk.training.model_files import load_model, model_configuration
from bigtrk.training.settings import Configuration


def export_to_acts(run: Path, out: Path) -> list[str]:
    """Writes the trained model of a run, or those of all stages of a pipeline, to folder `out` as
    ACTS loads them; returns the names of the files.

    Raises:
        InputError: `run` has no model that ACTS can be given, or `out` holds something else.
    """
    check_out(out)
    return export_stages(stages_of(run), out)


def stages_of(run: Path) -> list[Stage]:
    """Loads the trained model of a run, or those of all stages of a pipeline.

    Raises:
        InputError: `run` has no model that ACTS can be given.
    """
    return _of_pipeline(run) if is_pipeline(run) else [_of_run(run)]


def _of_pipeline(folder: Path) -> list[Stage]:
    names = (EMBEDDING, FILTER, CLASSIFIER)
    configurations = [model_configuration(folder / name) for name in names]
    for name, configuration in zip(names, configurations, strict=True):
        check_exportable(str(folder / name), configuration)
    trained = load_pipeline(folder)
    return [
        _stage(EMBEDDING, trained.embedding, radius=trained.radius),
        _stage(FILTER, trained.filter, cut=trained.cut),
        _stage(CLASSIFIER, trained.classifier, cut=_cut(configurations[-1])),
    ]


def _stage(
    name: str, of: Embedding | EdgeScorer, cut: float | None = None, radius: float | None = None
) -> Stage:
    return Stage(name, of.model, of.features.data, of.features.measured, cut, radius)


def _of_run(run: Path) -> Stage:
    """Names a run's stage by what its model can be; validations chose cut and radius, if any."""
    check_exportable(str(run), model_configuration(run))
    stored = load_model(run)
    configuration = stored.configuration
    parts = stored.model.eval(), configuration.data, stored.measured
    if configuration.model.kind == "hit":
        return Stage(EMBEDDING, *parts, radius=_radius(run))
    if not configuration.model.scores_alone:
        return Stage(CLASSIFIER, *parts, cut=_cut(configuration))
    with suppress(InputError):
        return Stage(FILTER, *parts, cut=cut_for(run, CUT_EFFICIENCY))
    return Stage(FILTER, *parts, cut=_cut(configuration))


def _radius(run: Path) -> float | None:
    with suppress(InputError):
        return radius_for(run, RADIUS_EFFICIENCY)
    return None


def _cut(configuration: Configuration) -> float:
    return configuration.training.edge_cut
