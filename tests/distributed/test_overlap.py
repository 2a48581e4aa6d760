"""Runs whose halo rows travel while layers compute end with the bits of those that wait."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load_file

from bigtrk.models.edges import states
from bigtrk.models.edges.passes import ChunkedMLP
from bigtrk.models.edges.states import HaloRows
from bigtrk.parallel.ranks import Ranks
from bigtrk.training.settings import Configuration
from tests.distributed.ranks import run_ranks
from tests.distributed.runs import ENGINES, settings, train, write_events
from tests.distributed.trial import same

EPOCHS = 1


def in_chunks(configuration: Configuration) -> Configuration:
    model = configuration.model.model_copy(update={"layers": 3, "recompute": "chunk"})
    return configuration.model_copy(update={"model": model})


def train_on_hosts(ranks: Ranks, runs: Sequence[tuple[int, Configuration]]) -> list[int]:
    """Trains with a number of ranks on a host; returns how many
    chunks of edges were computed while rows were awaited in each run.
    """
    counts = []
    for per_host, configuration in runs:
        awaiting = AwaitedChunks()
        with (
            patch.object(states, "CPU_BYTES", 200),
            patch.object(HaloRows, "read", awaiting.read),
            patch.object(HaloRows, "wait", awaiting.wait),
            patch.object(ChunkedMLP, "forward", awaiting.forward),
        ):
            train(replace(ranks, local_size=per_host, local_rank=0), configuration)
        counts.append(awaiting.chunks)
    return counts


class AwaitedChunks:
    """Counts the chunks that are computed while halo rows are awaited."""

    def __init__(self) -> None:
        self.chunks = 0
        awaited: list[HaloRows] = []
        read, wait, forward = HaloRows.read, HaloRows.wait, ChunkedMLP.forward

        def noting_read(rows: HaloRows, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
            if rows.are_awaited:
                awaited.append(rows)
            return read(rows, x, dtype)

        def noting_wait(rows: HaloRows, n_owned: int) -> None:
            awaited.clear()
            wait(rows, n_owned)

        def noting_forward(mlp: ChunkedMLP, rows: slice) -> torch.Tensor:
            self.chunks += bool(awaited)
            return forward(mlp, rows)

        self.read, self.wait, self.forward = noting_read, noting_wait, noting_forward


@pytest.mark.parametrize(("world_size", "engines"), [(2, ("FSDP2", "zero1")), (3, ("DDP",))])
def test_overlapped_runs_end_with_the_same_weights(
    tmp_path: Path, world_size: int, engines: tuple[str, ...]
) -> None:
    write_events(tmp_path)
    # Between hosts the network moves rows, within one the cores that compute.
    names = {(engine, hosts): f"{engine} on {hosts}" for engine in engines for hosts in (1, 2)}
    runs = [
        (
            world_size if hosts == 1 else 1,
            in_chunks(settings(tmp_path, tmp_path / name, EPOCHS, ENGINES[engine])),
        )
        for (engine, hosts), name in names.items()
    ]
    for counts in run_ranks(world_size, train_on_hosts, runs):
        together, apart = counts[::2], counts[1::2]
        assert set(together) == {0}
        assert all(apart) or world_size == 3  # of three ranks one may have had whole events alone
    for engine in engines:
        wanted, found = (
            load_file(tmp_path / names[engine, hosts] / "model.safetensors") for hosts in (1, 2)
        )
        assert same(wanted, found), engine
