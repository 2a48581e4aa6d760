"""Evaluates trained models: loads a model, scores events, and writes the record."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import torch
from torch import Tensor

from bigtrk.console import complain, follow
from bigtrk.disk.files import disk_errors
from bigtrk.errors import InputError, number_of, printable, shell_word
from bigtrk.models.protocol import LayeredModel
from bigtrk.parallel.collectives import gather_items, on_first_rank, together
from bigtrk.parallel.engines.engine import share_weights
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.routing import MicroStep
from bigtrk.parallel.world import make_world
from bigtrk.records.evaluation import EvaluationRecord, write_evaluation
from bigtrk.records.pipeline import check_is_run
from bigtrk.records.run import MeasuredScales
from bigtrk.records.run_folder import RUN
from bigtrk.tracks.bins import Bins, added
from bigtrk.tracks.edge_metrics import edge_bins, edge_scores_record, score_counts
from bigtrk.tracks.evaluation import EventTracks, TrackOptions, score_tracks, summarise_tracks
from bigtrk.tracks.matching import Ids
from bigtrk.training.checkpoint.checkpointer import stored_weights
from bigtrk.training.checkpoint.folder import Found, read_newest, resumed_configuration
from bigtrk.training.data.batch import BatchMaker
from bigtrk.training.data.event_source import Events, open_events, split_validation
from bigtrk.training.evaluation.scoring import (
    EventMetrics,
    ScoredEvent,
    measure,
    score_events,
    summary,
)
from bigtrk.training.loss import EdgeLoss, make_loss
from bigtrk.training.model_files import (
    StoredModel,
    build_model,
    check_shapes,
    earlier_events,
    load_model,
    model_configuration,
    recorded_scales,
)
from bigtrk.training.run_folder import CHECKPOINTS, DESCRIPTION, WEIGHTS, run_of
from bigtrk.training.settings import Configuration, TrainingSettings, warn_of_other_code
from bigtrk.training.spill import LaidEvents, SpillFolder, held_sectors, spill_scoring
from bigtrk.training.steps import scoring_router


def evaluated_configuration(run: Path) -> Configuration:
    """Reads the configuration of the model that `load_evaluated` loads; InputError without one."""
    if _is_finished(run):
        return model_configuration(run)
    check_is_run(run)
    if not (run / CHECKPOINTS).is_dir():
        raise InputError(
            f"{run}: holds neither a trained model ({WEIGHTS} and {DESCRIPTION}) nor "
            f"{CHECKPOINTS}; name a run, such as runs/0001, that has saved one of them"
        )
    return resumed_configuration(run, [])


def _is_finished(run: Path) -> bool:
    return run_of(run) != run or ((run / WEIGHTS).exists() and (run / DESCRIPTION).exists())


def load_evaluated(run: Path, ranks: Ranks) -> StoredModel:
    """Loads the model of a run, or of a weights file in it, on the device of `ranks`. For a run
    that has not ended it takes the newest good checkpoint. Writes nothing. Collective. Raises
    InputError if there is no model, a file is damaged, or its training events are unknown.
    """
    if on_first_rank(_is_finished, run):
        stored = load_model(run)
        stored.model.to(ranks.device)
        return stored
    weights: dict[str, Tensor] = {}
    configuration, trained_on, measured, step = on_first_rank(_read_unfinished, run, weights)
    model = build_model(configuration)
    if ranks.is_first:
        model.load_state_dict(weights)
    model.to(ranks.device)
    share_weights(model)
    return StoredModel(model, configuration, trained_on, measured, step)


def _read_unfinished(
    run: Path, weights: dict[str, Tensor]
) -> tuple[Configuration, frozenset[str], MeasuredScales, int]:
    """Reads the newest good checkpoint: fills `weights`, returns the rest of a StoredModel."""
    configuration = evaluated_configuration(run)
    warn_of_other_code(run, configuration)

    def read(found: Found) -> Found:
        shapes = found.checkpoint.shapes
        check_shapes(configuration, str(run / RUN), shapes, str(found.folder))
        weights.update(stored_weights(found.folder, found.checkpoint))
        return found

    found = read_newest(run, read)
    checkpoint, data = found.checkpoint, configuration.data
    remedy = (
        "so the events it trains on cannot be left out of the evaluation; evaluate in the folder "
        "where it was started, with its data unchanged, or wait until it has ended"
    )
    try:
        train, held = split_validation(data.train, data.validation, data.events)
    except InputError as error:
        said = f"{run}: has not ended, and its data cannot be read ({error})"
        raise InputError(f"{said}, {remedy}") from None
    if Events(train, held).training_digest != checkpoint.data:
        raise InputError(
            f"{run}: its data folders hold other events than it was trained on, {remedy}"
        )
    trained_on = {*(source.origin for source in train), *earlier_events(configuration)}
    if found.complaint:
        complain(found.complaint)
    complain(
        f"{run}: has not ended; evaluating its checkpoint {found.folder.name}, written by "
        f"{checkpoint.engine} on {number_of(len(checkpoint.shards), 'rank')}"
    )
    measured = recorded_scales(run, configuration)
    return configuration, frozenset(trained_on), measured, checkpoint.progress.step


@dataclass(frozen=True)
class _Evaluated:
    edges: EventMetrics
    edge_bins: Bins
    scores: Ids
    tracks: EventTracks | None


def evaluate_run(
    run: Path,
    data: Sequence[Path],
    options: TrackOptions | None,
    ranks: Ranks,
    spill: SpillFolder | None = None,
) -> EvaluationRecord:
    """Evaluates the model of `run` (its folder, or a file of weights in it) on the events of
    `data`; returns the record, also written to RUN/evaluations. Events that trained the model are
    left out, unless there are no others. Edges beyond memory go to `spill`. Collective. Raises
    InputError if there is no model, or data cannot be read or have no truth, or as spill_scoring.
    """
    evaluated = load_evaluated(run, ranks)
    configuration = evaluated.configuration
    if configuration.model.kind == "hit":
        raise InputError(
            f"{run}: its model embeds hits, so no edges can be evaluated; 'bigtrk build EVENTS "
            f"OUT --embedding {shell_word(run)}' makes graphs with it and reports how good they are"
        )
    found = open_events(data)
    unseen = [source for source in found if source.origin not in evaluated.trained_on]
    sources = unseen or found
    several = isinstance(evaluated.model, LayeredModel)
    router = scoring_router(sources, ranks.world_size, several)
    if spill:
        sizes = held_sectors(LaidEvents(sources, router))
        together(lambda: spill_scoring(evaluated.model, spill, ranks, sizes))
    world = make_world(ranks, router.num_ranks)
    maker = together(BatchMaker, configuration, world, evaluated.measured)
    loss = together(make_loss, configuration.training)

    def follow_all(micro_steps: list[MicroStep]) -> Iterable[MicroStep]:
        shown = follow(micro_steps, len(micro_steps), "evaluate")
        return shown if ranks.is_first else micro_steps

    # Sectors save the model's memory only; the whole graph fits in the host's.
    scored = score_events(evaluated.model, maker, sources, router, follow_all, whole=True)
    mine = [_evaluated(event, configuration.training, loss, options) for event in scored]
    gathered = [event for events in gather_items(mine) for event in events]
    events = sorted(gathered, key=lambda event: event.edges.event)
    folders = tuple(printable(str(folder.resolve())) for folder in data)
    tracks = [event.tracks for event in events if event.tracks]
    evaluation = EvaluationRecord(
        data=", ".join(folders),
        folders=folders if len(folders) > 1 else (),
        made=datetime.now(UTC),
        step=evaluated.step,
        weights=None if run_of(run) == run else run.name,
        events=len(events),
        events_trained_on=0 if unseen else len(sources),
        events_left_out=len(found) - len(sources),
        edges=sum(event.edges.metrics.n_edges for event in events),
        edge_metrics=summary([event.edges for event in events]),
        edge_bins=added([event.edge_bins for event in events]),
        scores=edge_scores_record([event.scores for event in events]),
        tracks=summarise_tracks(tracks, options) if options else None,
    )
    return on_first_rank(_written, run, evaluation)


def _written(run: Path, evaluation: EvaluationRecord) -> EvaluationRecord:
    with disk_errors():
        path = write_evaluation(run_of(run), evaluation)
    if "purity_by_eta" not in evaluation.edge_bins:
        complain(
            f"{evaluation.data}: graphs store neither eta nor r and z of hits, so the evaluation "
            "leaves out edge purity by eta"
        )
    complain(f"evaluation in {path}")
    return evaluation


def _evaluated(
    scored: ScoredEvent, settings: TrainingSettings, loss: EdgeLoss, options: TrackOptions | None
) -> _Evaluated:
    whole = scored.whole
    assert whole is not None, "it was asked for"
    assert whole.y is not None, "it has truth"
    every = torch.sigmoid(scored.logits)
    scores = every[whole.edge_id]
    counted = scored.counted[whole.edge_id]
    once = replace(whole, edge_index=whole.edge_index[:, counted], y=whole.y[counted])
    weights = scored.weights[whole.edge_id][counted]
    kinds = (column[scored.counted].numpy() for column in (every, scored.y, scored.is_target))
    return _Evaluated(
        measure(scored, settings, loss),
        edge_bins(once, scores[counted], weights, settings.edge_cut),
        score_counts(*kinds),
        None if options is None else score_tracks(whole, scores, options),
    )
