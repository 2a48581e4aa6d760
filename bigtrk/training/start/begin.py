"""The model that a run begins or goes on with, the scales of its features, and its description."""

from pathlib import Path
from typing import Any

from torch import nn

from bigtrk.console import say
from bigtrk.parallel.collectives import on_first_rank, together
from bigtrk.parallel.ranks import Ranks
from bigtrk.proof.prove import check_on_all_ranks
from bigtrk.records.run import MeasuredScales
from bigtrk.training.checkpoint.resume import recorded_scales
from bigtrk.training.data.events import Events
from bigtrk.training.data.measured_scales import measure_scales
from bigtrk.training.data.model_features import lacking_scales
from bigtrk.training.model_files import build_model, describe
from bigtrk.training.settings import Configuration
from bigtrk.training.start.earlier import earlier_events, earlier_scales, warn_of_seen
from bigtrk.training.start.weights import starting_model


def first_model(configuration: Configuration, ranks: Ranks, resume: Path | None) -> nn.Module:
    """Makes the model on the device of `ranks`; one to resume gets its weights later. Collective.

    Raises:
        InputError: there are no weights to start from, or the model does not keep its contract.
    """
    if resume:
        model = together(lambda: build_model(configuration))
    else:
        model, told = together(lambda: starting_model(configuration))
        if told and ranks.is_first:
            say(told)
    model = model.to(ranks.device)
    check_on_all_ranks(model, *configuration.data.feature_counts, configuration.model)
    return model


def first_scales(
    configuration: Configuration, ranks: Ranks, events: Events, resume: Path | None
) -> MeasuredScales:
    """Measures the scales of features that have none of their own, once in a run; weights that
    were trained before go on with theirs. Collective.

    Raises:
        InputError: an event, a record or a description cannot be read.
    """
    if resume:
        return on_first_rank(lambda: recorded_scales(resume, configuration))
    known = on_first_rank(lambda: earlier_scales(configuration))
    nodes, edges = lacking_scales(configuration.data)
    if known.nodes.keys() >= set(nodes) and known.edges.keys() >= set(edges):
        return known
    measured = measure_scales(configuration.data, events.train, ranks)
    return MeasuredScales(
        nodes={**measured.nodes, **known.nodes}, edges={**measured.edges, **known.edges}
    )


def described_model(
    configuration: Configuration, events: Events, measured: MeasuredScales
) -> dict[str, Any]:
    """Describes the model that the training will have made, which also knows the events that
    trained the weights it starts from.

    Raises:
        InputError: those are not known.
    """
    earlier = earlier_events(configuration)
    warn_of_seen(set(earlier), events.validation)
    trained_on = dict.fromkeys((*earlier, *(source.origin for source in events.train)))
    return describe(configuration, list(trained_on), measured)
