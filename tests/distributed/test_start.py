"""Ranks that do not come, that do not fit together, or that stop before they train."""

import os
import signal
import socket
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module
from typing import Any
from unittest.mock import patch

import pytest
import torch

from bigtrk.parallel import process_group as groups
from tests.distributed.runs import write_events
from tests.distributed.started import SILENT, End, Start, play
from tests.programs import free_port

ABSENT = ("data.train=[absent]",)  # ranks that have met say so, and end


def stop_at(module: str, name: str) -> None:
    """Stops the process where the function of that name is called."""
    place = import_module(module)
    call = getattr(place, name)

    def stopped(*arguments: Any, **named: Any) -> Any:
        os.kill(os.getpid(), signal.SIGSTOP)
        return call(*arguments, **named)

    setattr(place, name, stopped)


def on_one_card() -> None:
    """Has this rank see one GPU, the same as others."""
    patch.object(groups, "card_of", lambda _: "card 1").start()
    patch.object(torch.cuda, "device_count", lambda: 1).start()


IN_THE_MEETING = partial(stop_at, "bigtrk.parallel.process_group", "key_of")
WHEN_JOINING = partial(stop_at, "torch.distributed", "init_process_group")
AFTER_JOINING = partial(stop_at, "bigtrk.training.run", "software")
AT_THE_ENGINE = partial(stop_at, "bigtrk.training.run", "make_engine")


@pytest.fixture(scope="module")
def mute() -> Iterator[int]:
    """The port of a program that says nothing."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    return {}


@pytest.fixture(scope="module")
def ends(
    mute: int, ports: dict[str, int], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[End]]:
    folder = tmp_path_factory.mktemp("start")
    write_events(folder)
    data = (f"data.train=[{folder}/graphs]", "model.hidden=8", "model.layers=1")
    scenarios: dict[str, Sequence[Start]] = {
        "one is missing": [Start(0, 4), Start(2, 4), Start(3, 4)],
        "the first is missing": [Start(1, 3), Start(2, 3)],
        "another world size": [Start(0, 2), Start(1, 3)],
        "the same rank": [Start(0, 3), Start(1, 3), Start(1, 3)],
        "a taken port": [Start(0, 2), Start(1, 2)],
        "one after the other": [Start(rank, 5, ABSENT, after=1.6 * rank) for rank in range(5)],
        "the first stops in the meeting": [Start(0, 3, before=IN_THE_MEETING), Start(1, 3)],
        "one stops when joining": [Start(0, 2), Start(1, 2, before=WHEN_JOINING)],
        "the first stops after joining": [Start(0, 2, before=AFTER_JOINING), Start(1, 2)],
        "one stops at the engine": [Start(0, 2, data), Start(1, 2, data, before=AT_THE_ENGINE)],
        "one card": [Start(rank, 2, before=on_one_card) for rank in range(2)],
        "other settings": [
            Start(0, 3),
            Start(1, 3, ("model.hidden=16", "training.epochs=3")),
            Start(2, 3, ("training.epochs=3",)),
        ],
    }
    ports.update({name: free_port() for name in scenarios}, **{"a taken port": mute})
    return play({name: (ports[name], starts) for name, starts in scenarios.items()}, folder)


@pytest.mark.parametrize(
    ("scenario", "missing"),
    [("one is missing", "rank 1 of 4 is"), ("the first is missing", "rank 0 of 3 is")],
)
def test_who_is_missing_is_named_by_all_that_are_there(
    ends: dict[str, list[End]], ports: dict[str, int], scenario: str, missing: str
) -> None:
    said = (
        f"bigtrk/train.py: error: {missing} missing at 127.0.0.1, port {ports[scenario]}, where no "
        f"rank has come for {SILENT} s"
    )
    for end in ends[scenario]:
        assert end.status == 2
        assert [line[: len(said)] for line in end.said] == [said]


def test_ranks_come_one_after_the_other(ends: dict[str, list[End]]) -> None:
    """They may take longer, all together, than the patience with one."""
    first, *others = ends["one after the other"]
    assert first.said == [
        "bigtrk/train.py: error: absent: no such folder; make graphs with 'bigtrk build EVENTS "
        "absent' or sectors with 'python -m partition GRAPHS absent'"
    ]
    assert first.status == 2
    assert [(end.status, end.said) for end in others] == [(2, [])] * 4


def test_another_world_size_is_named_by_all(ends: dict[str, list[End]]) -> None:
    first, second = ends["another world size"]
    assert (first.status, second.status) == (2, 2)
    assert first.said == second.said
    (said,) = first.said
    assert "error: WORLD_SIZE is 2 for rank 0 (process " in said
    assert " and 3 for rank 1 (process " in said
    assert f"on {os.uname().nodename})" in said


def test_ranks_of_one_card_are_named_by_both(ends: dict[str, list[End]]) -> None:
    wanted = "error: ranks 0-1 have the same GPU; start at most 1 rank on a host of 1 GPU"
    found = [(end.status, end.said) for end in ends["one card"]]
    assert found == [(2, [f"bigtrk/train.py: {wanted}"])] * 2


def test_a_rank_that_is_there_twice_is_named(ends: dict[str, list[End]]) -> None:
    first, *twins = ends["the same rank"]
    assert [end.status for end in (first, *twins)] == [2, 2, 2]
    assert "rank 2 of 3 is missing" in first.said[0]
    said = sorted((end.said[0] for end in twins), key=first.said[0].__eq__)
    assert "have RANK=1: " in said[0]
    assert said[1] == first.said[0]


def test_a_taken_port_is_named(ends: dict[str, list[End]], mute: int) -> None:
    reasons = ["address already in use", f"no answer for {SILENT} s"]
    for rank, (end, why) in enumerate(zip(ends["a taken port"], reasons, strict=True)):
        assert end.status == 2
        (said,) = end.said
        assert f"rank {rank} cannot meet the other ranks at 127.0.0.1, port {mute}: another" in said
        assert why in said


def test_a_first_rank_that_stops_in_the_meeting_is_named(ends: dict[str, list[End]]) -> None:
    _, other = ends["the first stops in the meeting"]
    assert other.status == 2
    [said] = other.said
    assert "rank 0" in said
    assert f"no answer for {SILENT} s" in said


@pytest.mark.parametrize(
    ("scenario", "rank", "place"),
    [
        ("one stops when joining", 1, ""),
        ("the first stops after joining", 0, ""),
        ("one stops at the engine", 1, "making the engine"),
    ],
)
def test_a_rank_that_stops_before_it_trains_is_named(
    ends: dict[str, list[End]], scenario: str, rank: int, place: str
) -> None:
    end = ends[scenario][1 - rank]
    assert end.status == 1
    (said,) = end.said
    assert f"error: stalled: rank {rank} has been silent for {SILENT} s, last seen in " in said
    assert place in said


def test_settings_that_differ_are_named_with_ranks_and_values(ends: dict[str, list[End]]) -> None:
    first, *others = ends["other settings"]
    assert [end.status for end in (first, *others)] == [2, 2, 2]
    assert [end.said for end in others] == [[], []]
    assert first.said == [
        "bigtrk/train.py: error: rank 1 has another model.hidden than rank 0: 16 instead of 64; "
        "ranks 1-2 have another training.epochs than rank 0: 3 instead of 10; start all ranks with "
        "the same values"
    ]
