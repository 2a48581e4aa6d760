"""A rank that stalls ends the run, which says which one and where it was."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch.distributed as dist
from torch.distributed.flight_recorder.components.loader import read_dump

from bigtrk.parallel import watchdog as watchdog_module
from bigtrk.parallel.collectives import gather_items
from bigtrk.parallel.process_group import meet
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.watchdog import Patience, Verdict, Watchdog, listening
from bigtrk.tracing import traced, waiting
from tests.distributed.ranks import FORKSERVER, run_ranks
from tests.programs import free_port

PATIENCE = 6  # s
LONGEST = 90  # s


def stop_itself(_: Ranks) -> None:
    time.sleep(PATIENCE)  # a beat says where, on a busy machine, too
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


def write_down(verdict: Verdict | None, ends: bool) -> None:
    """Notes what the watchdog tells those who watch the run."""
    with Path(os.environ["NOTES"]).open("a") as notes:
        notes.write(f"{ends}: {verdict.text if verdict else 'all go on'}\n")


def keep_others_waiting(
    ranks: Ranks, late: int, what: Callable[[Ranks], None], records: Path
) -> None:
    kept = watchdog_module.records_in(records)
    with listening(write_down), kept, watchdog(ranks), traced("step 12"):
        if ranks.rank == late:
            with traced("data"):
                what(ranks)
        with traced("reduce"), waiting():
            dist.barrier()


def be_suspended(ranks: Ranks, _: int, __: Callable[[Ranks], None], ___: Path) -> None:
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
    "stuck": (keep_others_waiting, 1, be_stuck),
    "slow": (keep_others_waiting, 1, be_slow),
    "suspended": (be_suspended, 0, be_slow),
}


def run_scenario(scenario: str, port: int, said: Path) -> None:
    """Starts the ranks; they print errors into a file."""
    for descriptor, path in ((1, os.devnull), (2, said)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), descriptor)
    os.environ.update(MASTER_PORT=str(port), NOTES=f"{said}, notes")
    run_ranks(3, *SCENARIOS[scenario], records_of(said), fresh="fork")


def records_of(said: Path) -> Path:
    """Names the folder of the ranks' flight records beside what they said."""
    return said.with_name(f"flight of {said.name}")


class Played(NamedTuple):
    """Exit status, what was printed, and what those who watch the run were told."""

    status: int
    said: str
    notes: list[str]


def play(scenario: str, said: Path) -> Played:
    notes = Path(f"{said}, notes")
    said.touch()
    notes.touch()
    played = FORKSERVER.Process(target=run_scenario, args=(scenario, free_port(), said))
    played.start()
    played.join(6 * LONGEST)
    assert played.exitcode is not None, f"{scenario}: has not ended"
    return Played(played.exitcode, said.read_text(), notes.read_text().splitlines())


# They mostly wait: together they take as long as one.
@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of messages and of flight records."""
    return tmp_path_factory.mktemp("said")


@pytest.fixture(scope="module")
def played(folder: Path) -> dict[str, Played]:
    with ThreadPoolExecutor() as pool:
        ends = pool.map(play, SCENARIOS, [folder / scenario for scenario in SCENARIOS])
        return dict(zip(SCENARIOS, ends, strict=True))


@pytest.mark.parametrize(("scenario", "rank"), [("stopped", 1), ("first rank stopped", 0)])
def test_a_silent_rank_is_named(played: dict[str, Played], scenario: str, rank: int) -> None:
    status, said, notes = played[scenario]
    assert status != 0
    named = f"rank {rank} has been silent for {PATIENCE} s, last seen in step 12, data (process "
    assert said.count(named) == 1
    assert "in step 12, reduce, waiting for other ranks" in said
    assert notes[-1].startswith(f"True: {named}")
    assert all(note.startswith(f"False: rank {rank} ") for note in notes[:-1])


def test_a_stuck_rank_is_named_and_shows_its_stack(played: dict[str, Played]) -> None:
    status, said, notes = played["stuck"]
    assert status != 0
    assert said.count(f"rank 1 has not moved for {2 * PATIENCE} s, in step 12, data (process") == 1
    assert "Others: rank 0 and 1 more in step 12, reduce, waiting for other ranks" in said
    assert "in be_stuck" in said
    assert notes[0].startswith("False: rank 1 has not moved for ")
    assert "in step 12, data (process" in notes[0]
    assert notes[-1].startswith(f"True: rank 1 has not moved for {2 * PATIENCE} s, in step 12")


@pytest.mark.parametrize(("scenario", "answer"), [("stuck", (0, 1, 2)), ("stopped", (0, 2))])
def test_ranks_that_answer_leave_their_collectives(
    played: dict[str, Played], folder: Path, scenario: str, answer: tuple[int, ...]
) -> None:
    """Torch's own reader of them finds what the others wait in, and that rank 1 never began it."""
    records = records_of(folder / scenario)
    assert f"torchfrtrace {records})" in played[scenario][1]
    assert sorted(path.name for path in records.iterdir()) == [f"rank{rank}" for rank in answer]
    found: dict[int, Any] = {
        rank: read_dump("rank", str(records / f"rank{rank}"))["entries"] for rank in answer
    }
    for rank in (0, 2):
        *before, last = found[rank]
        assert (last["retired"], last["profiling_name"]) == (False, "gloo:barrier")
        assert all(entry["retired"] for entry in before)
        assert any("keep_others_waiting" in frame["name"] for frame in last["frames"])
        assert 1 not in answer or len(found[1]) == len(before)


@pytest.mark.parametrize("scenario", ["slow", "suspended"])
def test_patience_with_what_goes_on(played: dict[str, Played], scenario: str) -> None:
    status, said, notes = played[scenario]
    assert (status, said) == (0, "")
    assert not any(note.startswith("True") for note in notes)
