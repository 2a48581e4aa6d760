"""A rank that stalls ends the run, which says which one and where it was."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch.distributed as dist

from bigtrk.parallel.collectives import gather_items
from bigtrk.parallel.heartbeat import Patience
from bigtrk.parallel.meeting import meet
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.watchdog import Watchdog
from bigtrk.tracing import traced, waiting
from tests.programs import free_port

PATIENCE = 6  # s
LONGEST = 90  # s


def stop_itself(_: Ranks) -> None:
    time.sleep(PATIENCE)  # a beat says where, on a busy machine, too
    stop_at_once(_)


def stop_at_once(_: Ranks) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def be_stuck(_: Ranks) -> None:
    time.sleep(LONGEST)


def be_slow(ranks: Ranks) -> None:
    for layer in range(3 * PATIENCE):
        time.sleep(1)
        with traced(f"rank {ranks.rank}, layer {layer}"):
            continue


def watchdog(ranks: Ranks) -> Watchdog:
    met = meet(ranks, LONGEST)
    dist.barrier()  # the first to see that all have met may stop at once
    return Watchdog(ranks, met, Patience(PATIENCE, 2 * PATIENCE))


def keep_others_waiting(ranks: Ranks, late: int, what: Callable[[Ranks], None]) -> None:
    with watchdog(ranks), traced("step 12"):
        if ranks.rank == late:
            with traced("data"):
                what(ranks)
        with traced("reduce"), waiting():
            dist.barrier()


def be_suspended(ranks: Ranks, _: int, __: Callable[[Ranks], None]) -> None:
    """Stops all ranks for longer than the watchdog's patience, as when a job is suspended."""
    with watchdog(ranks):
        all_ranks = " ".join(map(str, gather_items(os.getpid())))
        if ranks.rank == 0:
            script = f"kill -STOP {all_ranks}; sleep {3 * PATIENCE}; kill -CONT {all_ranks}"
            subprocess.Popen(["sh", "-c", script])
        time.sleep(PATIENCE)
        dist.barrier()


SCENARIOS = {
    "stopped": (keep_others_waiting, 1, stop_itself),
    "first rank stopped": (keep_others_waiting, 0, stop_itself),
    "first rank stopped at once": (keep_others_waiting, 0, stop_at_once),
    "stuck": (keep_others_waiting, 1, be_stuck),
    "slow": (keep_others_waiting, 1, be_slow),
    "suspended": (be_suspended, 0, be_slow),
}


def play(scenario: str) -> tuple[int, str, float]:
    """Exit status, what was printed, seconds."""
    call = (
        f"from {__name__} import SCENARIOS; from tests.distributed.ranks import run_ranks; "
        f"run_ranks(3, *SCENARIOS[{scenario!r}], start_method='fork')"
    )
    start = time.monotonic()
    command = [sys.executable, "-c", call]
    root = Path(__file__).parents[2]
    played = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * LONGEST,
        cwd=root,
        env={**os.environ, "MASTER_PORT": str(free_port())},
    )
    return played.returncode, played.stderr, time.monotonic() - start


# They mostly wait: together they take as long as one.
@pytest.fixture(scope="module")
def played() -> dict[str, tuple[int, str, float]]:
    with ThreadPoolExecutor() as pool:
        return dict(zip(SCENARIOS, pool.map(play, SCENARIOS), strict=True))


@pytest.mark.parametrize(("scenario", "rank"), [("stopped", 1), ("first rank stopped", 0)])
def test_a_silent_rank_is_named(
    played: dict[str, tuple[int, str, float]], scenario: str, rank: int
) -> None:
    status, said, seconds = played[scenario]
    assert status != 0
    named = f"rank {rank} has been silent for {PATIENCE} s, last seen in step 12, data (process "
    assert said.count(named) == 1
    assert "in step 12, reduce, waiting for other ranks" in said
    assert seconds < LONGEST


def test_a_rank_that_never_spoke_is_named(played: dict[str, tuple[int, str, float]]) -> None:
    status, said, seconds = played["first rank stopped at once"]
    assert status != 0
    assert said.count(f"rank 0 has been silent for {PATIENCE} s, last seen in ") == 1
    assert seconds < LONGEST


def test_a_stuck_rank_is_named_and_shows_its_stack(
    played: dict[str, tuple[int, str, float]],
) -> None:
    status, said, seconds = played["stuck"]
    assert status != 0
    assert said.count(f"rank 1 has not moved for {2 * PATIENCE} s, in step 12, data (process") == 1
    assert "Others: rank 0 and 1 more in step 12, reduce, waiting for other ranks" in said
    assert "in be_stuck" in said
    assert seconds < LONGEST


@pytest.mark.parametrize("scenario", ["slow", "suspended"])
def test_patience_with_what_goes_on(
    played: dict[str, tuple[int, str, float]], scenario: str
) -> None:
    status, said, _ = played[scenario]
    assert (status, said) == (0, "")
