"""Groups of ranks are made once, as over NCCL each costs seconds and memory of a GPU; hosts whose
ranks are not neighbours are told.
"""

import os
import platform
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import pytest
from torch.distributed import distributed_c10d

from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.world import BlockGroups, dealt_out
from bigtrk.training.settings import Configuration
from tests.distributed.ranks import run_ranks
from tests.distributed.runs import ENGINES, settings, train, write_events


def groups_made(ranks: Ranks, runs: list[Configuration]) -> list[int]:
    """Counts the groups that each run makes, by whatever function of torch's."""
    make, counts = "_new_process_group_helper", []
    for configuration in runs:
        with patch.object(distributed_c10d, make, wraps=getattr(distributed_c10d, make)) as made:
            train(ranks, configuration)
        counts.append(made.call_count)
    return counts


def test_more_epochs_make_no_more_groups(tmp_path: Path) -> None:
    write_events(tmp_path)
    runs = [
        settings(tmp_path, tmp_path / f"{engine} {epochs}", epochs, ENGINES[engine])
        for engine in ("DDP", "FSDP2")
        for epochs in (1, 2)
    ]
    for one, other, *of_fsdp2 in run_ranks(2, groups_made, runs):
        assert len({*of_fsdp2}) == 1
        assert one == other == 2  # of checkpoints, and of two ranks that share an event


@pytest.mark.parametrize(
    ("hosts", "dealt"),
    [("a", False), ("aaab", False), ("abbc", False), ("abab", True), ("aabca", True)],
)
def test_ranks_are_dealt_out_where_a_host_comes_again(hosts: str, dealt: bool) -> None:
    assert dealt_out(hosts) is dealt


def said_of_hosts(ranks: Ranks, cases: list[tuple[str, int]]) -> list[str]:
    """Returns what making groups of so many ranks says, by the hosts of the ranks, each of which is
    the first of its host.
    """
    said = []
    for hosts, size in cases:
        with (
            patch.object(platform, "node", return_value=hosts[ranks.rank]),
            patch.dict(os.environ, LOCAL_RANK="0"),
            redirect_stderr(StringIO()) as written,
        ):
            BlockGroups(ranks, [1, size])
        said.append(written.getvalue())
    return said


def test_ranks_dealt_out_over_hosts_are_told_once_if_they_share_events() -> None:
    cases = [("aab", 2), ("aba", 1), ("aba", 2), ("aba", 2)]
    first, *others = run_ranks(3, said_of_hosts, cases, fresh=True)
    assert [bool(said) for said in first] == [False, False, True, False]
    assert first[2].startswith("bigtrk: warning: the ranks of a host do not follow each other")
    assert others == [[""] * len(cases)] * 2
