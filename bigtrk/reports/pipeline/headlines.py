"""The numbers of a pipeline's evaluation that count, and which stage limits its tracks."""

from bigtrk.records.pipeline_evaluation import PipelineEvaluationRecord
from bigtrk.records.pipeline_folder import PipelineFolder
from bigtrk.reports.elements import figures
from bigtrk.reports.elements.first_screen import Headline
from bigtrk.reports.evaluation.headlines import track_headlines

# What each category of loss speaks against.
LIMITS = {
    "detector": ("hits",),
    "graph": ("radius", "filter"),
    "model": ("true_edges_cut", "merged"),
    "track builder": ("builder",),
}


def pipeline_sentence(pipeline: PipelineFolder) -> str:
    """Says what was trained on what."""
    events = max((record.data.train_events or 0 for record in pipeline.stages.values()), default=0)
    trained = f", its stages trained on {events} events" if events else ""
    started = [record.started for record in pipeline.stages.values() if record.started]
    since = f" since {min(started)}" if started else ""
    return f"Pipeline {pipeline.name}: from hits to tracks in five stages{trained}{since}."


def pipeline_headlines(record: PipelineEvaluationRecord) -> list[Headline]:
    """Lists the numbers of tracks, and the seconds that an event takes."""
    seconds = sum(stage.seconds for stage in record.stages)
    time = [Headline("s per event", figures.seconds(seconds))] if seconds else []
    events = Headline("events", figures.count(record.events), f"{figures.count(record.hits)} hits")
    return [*track_headlines(record.tracks), *time, events]


def pipeline_limit(record: PipelineEvaluationRecord) -> str:
    """Says which of detector, graph, model and track builder loses most of what is to be found."""
    total = sum(record.losses.values())
    if not total:
        return "What limits the tracks is not known: there are no particles to be found."
    lost = {
        what: sum(record.losses.get(name, 0) for name in names) for what, names in LIMITS.items()
    }
    first = max(lost, key=lambda what: lost[what])
    if not lost[first]:
        return f"Nothing limits the tracks: all {figures.count(total)} particles are found."
    told = ", ".join(f"the {what} {100 * n / total:.1f}" for what, n in lost.items())
    return f"The {first} limits the tracks: of 100 particles are lost by {told}."
