"""Trainings whose edges are in files: the same bits as in memory, on two ranks."""

from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from safetensors.torch import load_file

from bigtrk.cost.machines import find_machine
from bigtrk.disk.local_files import UnnamedFiles
from bigtrk.parallel.ranks import Ranks
from bigtrk.training.data import input_files
from bigtrk.training.data.event_source import open_events
from bigtrk.training.fitting import make_cost
from bigtrk.training.settings import Configuration
from tests.distributed.ranks import Works, run_all
from tests.distributed.runs import losses
from tests.distributed.test_routes import settings, train, write_data
from tests.distributed.trial import same

# Of the large event in sectors edges take more memory than the blocks they travel in.
WIDE = {"hidden": 96, "layers": 4}


def least_gib(configuration: Configuration, data: Path, parts: int, ranks: int) -> float:
    """Just enough memory for the large event with all of its edges in files."""
    cost = replace(make_cost(configuration, ranks, ranks, find_machine(None)), spills_beyond=0.0)
    source = open_events([data / "sectors"])[0]
    return 1.0001 * cost.memory(source.size, parts, ranks).total / 2**30


def train_noting_files(ranks: Ranks, configuration: Configuration) -> int:
    """Trains; counts what went to files of its own: edges, and their inputs."""
    taking = patch.object(UnnamedFiles, "take", autospec=True, side_effect=UnnamedFiles.take)
    with patch.object(input_files, "_LEAST_BYTES", 1), taking as take:  # these are small events
        train(ranks, configuration)
    return len({call.args[0] for call in take.call_args_list})


def test_edges_in_files_train_the_same_bits(tmp_path: Path) -> None:
    data = write_data(tmp_path, 1500, 60_000)
    folder, runs = tmp_path / "spill", (tmp_path / "memory", tmp_path / "files")
    folder.mkdir()
    kept = wide(settings(data, runs[0], routing="stored"), "fsdp2")
    gib = least_gib(kept, data, 4, 2)
    spilled = settings(data, runs[1], routing="stored", memory_gib=gib, spill=folder)
    works: Works = {
        "memory": (train, (kept,)),
        "files": (train_noting_files, (wide(spilled, "fsdp2"),)),
    }
    assert max(run_all(2, works)["files"]) == 2
    assert losses(runs[0]) == losses(runs[1])
    expected, found = (load_file(run / "model.safetensors") for run in runs)
    assert same(found, expected)
    assert not list(folder.iterdir())


def wide(configuration: Configuration, engine: str) -> Configuration:
    own = {"engine": {"name": engine}, "model": WIDE}
    return Configuration.model_validate({**configuration.model_dump(), **own})
