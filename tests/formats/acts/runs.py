"""Runs of each stage, and the files that are exported of them."""

from hashlib import sha256
from pathlib import Path

from bigtrk.records.pipeline import PIPELINE, PipelineRecord
from bigtrk.records.record import write_record
from bigtrk.tracks.builders.candidates import FEATURES
from bigtrk.tracks.builders.merge_tree import MergeTree, write_merge_tree
from bigtrk.training.run_folder import WEIGHTS
from tests.programs import run_in_one
from tests.tracks.builders.events import quality_of

TRAIN = "bigtrk/train.py model.hidden=8 training.epochs=1"
COMMANDS = [
    "bigtrk simulate events --events 3 --particles 60",
    "bigtrk build events graphs",
    "bigtrk build events truth --true-edges",
    f"{TRAIN} data.train=[graphs] run.folder=mine/classifier model.layers=2 training.edge_cut=0.4",
    f"{TRAIN} data.train=[graphs] run.folder=mine/filter model.name=mlp",
    f"{TRAIN} data.train=[truth] run.folder=mine/embedding model.name=embedding "
    "data.node_features=[r,cos_phi,sin_phi,z,eta]",
]
FILES = {
    "embedding": ["embedding.onnx", "embedding.pt"],
    "filter": ["filter.onnx", "filter.pt", "filter_edge_attr.onnx", "filter_edge_attr.pt"],
}
FILES["classifier"] = [name.replace("filter", "classifier") for name in FILES["filter"]]
CUT, RADIUS = 0.0625, 0.375


def make_runs(folder: Path) -> None:
    """Makes graphs, and a run of each stage, which together are the pipeline `mine`."""
    run_in_one(COMMANDS, folder)
    mine = folder / "mine"
    write_merge_tree(mine / "merge_tree.safetensors", MergeTree(quality_of(FEATURES[0], 1, 0), 0.5))
    digests = {name: sha256((mine / name / WEIGHTS).read_bytes()).hexdigest() for name in FILES}
    write_record(mine / PIPELINE, PipelineRecord(radius=RADIUS, cut=CUT, weights=digests))
