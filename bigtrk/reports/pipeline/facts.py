"""The headers of a pipeline and of its evaluations: text by label."""

from bigtrk.records.pipeline_evaluation import PipelineEvaluationRecord
from bigtrk.records.pipeline_folder import PipelineFolder
from bigtrk.records.run import RunRecord
from bigtrk.reports.elements import figures
from bigtrk.reports.facts import software

NOT_YET = "not yet: bigtrk evaluate PIPELINE EVENTS"

Facts = tuple[str, dict[str, str]]


def pipeline_facts(pipeline: PipelineFolder) -> Facts:
    """Says what a pipeline has chosen, and what it was evaluated on."""
    record = pipeline.record
    evaluated = [_told(each, each.weights == record.weights) for each in pipeline.evaluations]
    return f"Pipeline {pipeline.name}", {
        **{stage: _trained(run) for stage, run in pipeline.stages.items()},
        "radius": figures.small(record.radius),
        "filter's cut": figures.small(record.cut),
        "evaluated on": ", ".join(evaluated) or NOT_YET,
    }


def _trained(run: RunRecord) -> str:
    """Says what a stage is, and what it was trained with."""
    model = run.config.get("model")
    name = model.get("name") if isinstance(model, dict) else None
    return (
        f"{figures.text(name)}, {figures.count(run.parameters)} parameters, "
        f"{figures.count(run.data.train_events)} events of {figures.count(run.data.edges)} edges, "
        f"{figures.text(run.started)}, {software(run)}"
    )


def _told(record: PipelineEvaluationRecord, is_of_these_weights: bool) -> str:
    return f"{record.data}{'' if is_of_these_weights else ' (before a stage was trained again)'}"


def evaluation_facts(record: PipelineEvaluationRecord) -> Facts:
    """Says what was evaluated, and when."""
    return f"Evaluation on {record.data}", {
        "events": figures.count(record.events),
        "hits": figures.count(record.hits),
        "made": f"{record.made:%Y-%m-%d %H:%M} {record.made.tzname()}",
    }
