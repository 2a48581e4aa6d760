"""The small folder of a pipeline, with records as its training and its evaluation build them."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bigtrk.records.evaluation import Judged, PipelineEvaluationRecord, StageLeft, write_evaluation
from bigtrk.records.pipeline import PIPELINE, PipelineRecord
from bigtrk.records.record import write_record
from tests.reports.run_folders import binned, matching_record

PIPELINE_RECORD = PipelineRecord(radius=0.2, cut=0.1, weights={"filter": "ab"})
COLUMNS = ("stage", "edges", "true_edges", "target_edges", "findable", "seconds")
ROWS = (
    ("event", 2000, 2000, 1000, 99, 0),
    ("radius", 40000, 1900, 980, 98, 1.5),
    ("filter", 8000, 1800, 970, 96, 0.25),
    ("classifier", 2200, 1700, 950, 90, 2.0),
    ("builder", 2100, 1690, 945, 88, 0.5),
)
STAGES = tuple(StageLeft.model_validate(dict(zip(COLUMNS, row, strict=True))) for row in ROWS)
LOSSES = {
    "found": 88,
    "hits": 1,
    "radius": 1,
    "filter": 2,
    "true_edges_cut": 4,
    "merged": 3,
    "builder": 1,
}


def pipeline_evaluation(**changes: Any) -> PipelineEvaluationRecord:
    """An evaluation of two events with 100 particles to be found."""
    content: dict[str, Any] = {
        "data": "/data/events",
        "made": datetime(2026, 11, 22, 6, 41, 5, tzinfo=UTC),
        "weights": {"filter": "ab"},
        "events": 2,
        "hits": 3400,
        "min_hits": 3,
        "pt_min": 1.0,
        "matching_fraction": 0.5,
        "edge_cut": 0.5,
        "stages": STAGES,
        "tracks": Judged(trackml_score=0.8, matching=(matching_record(),)),
        "losses": LOSSES,
        "loss_bins": {
            "found_by_pt": binned((60, 70), (0, 0), (28, 30)),
            "merged_by_pt": binned((3, 70), (0, 0), (0, 30)),
            "found_by_distance": binned((28, 40), (60, 60), edges=(0.01, 0.1, 1.0)),
        },
        "notes": ("event1: joins hits within 0.1 instead of 0.2",),
    }
    return PipelineEvaluationRecord(**{**content, **changes})


def pipeline_folder(folder: Path, *evaluations: PipelineEvaluationRecord) -> Path:
    """Makes the folder of a pipeline, as far as reports read it."""
    folder.mkdir()
    write_record(folder / PIPELINE, PIPELINE_RECORD)
    for evaluation in evaluations:
        write_evaluation(folder, evaluation)
    return folder
