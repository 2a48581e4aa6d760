"""Groups of ranks are made once: over NCCL each costs seconds and memory of a GPU."""

from pathlib import Path
from unittest.mock import patch

import pytest
from torch.distributed import distributed_c10d

from bigtrk.parallel.ranks import Ranks
from bigtrk.training.settings import Configuration
from tests.distributed.ranks import run_ranks
from tests.distributed.runs import ENGINES, settings, train, write_events

EPOCHS = (1, 3)


def groups_made(ranks: Ranks, runs: list[Configuration]) -> list[int]:
    """Counts the groups that each run makes, by whatever function of torch's."""
    make, counts = "_new_process_group_helper", []
    for configuration in runs:
        with patch.object(distributed_c10d, make, wraps=getattr(distributed_c10d, make)) as made:
            train(ranks, configuration)
        counts.append(made.call_count)
    return counts


@pytest.mark.parametrize("world_size", [2, 3])
def test_more_epochs_make_no_more_groups(tmp_path: Path, world_size: int) -> None:
    write_events(tmp_path)
    runs = [
        settings(tmp_path, tmp_path / f"{engine} {epochs}", epochs, ENGINES[engine])
        for engine in ("DDP", "FSDP2")
        for epochs in EPOCHS
    ]
    for counts in run_ranks(world_size, groups_made, runs):
        of_ddp, of_fsdp2 = counts[: len(EPOCHS)], counts[len(EPOCHS) :]
        assert len({*of_ddp}) == len({*of_fsdp2}) == 1
        assert of_ddp[0] == 2  # that of the checkpoints, and that of two ranks that share an event
