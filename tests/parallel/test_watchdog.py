"""Ranks name one that stalls, and pass it on: in order, at no cost to the run."""

import threading

from bigtrk.errors import InputError
from bigtrk.parallel.watchdog import Beat, Verdict, late, listening, silence, stall, tell
from bigtrk.tracing import moves, traced, waiting
from tests.present import present

VERDICT = Verdict(text="rank 1 says nothing", stalled=(1,))


def beat(place: str, waits: bool = False, process: int = 7) -> Beat:
    return Beat(number=3, still=40.0, place=place, waits=waits, host="node1", process=process)


def test_a_beat_says_where_the_process_is() -> None:
    before, moved = Beat.now(0, 0.0), moves()
    assert (before.place, before.waits) == ("", False)
    with traced("step 12"), traced("exchange"):
        busy = Beat.now(1, 0.0)
        with waiting():
            waits = Beat.now(2, 4.0)
    assert (busy.place, busy.waits) == ("step 12, exchange", False)
    assert (waits.place, waits.waits) == ("step 12, exchange, waiting for other ranks", True)
    assert moves() == moved + 6
    assert Beat.model_validate_json(waits.model_dump_json()) == waits


def test_silent_ranks_are_named_with_their_last_words() -> None:
    others = {0: beat("step 5, reduce", True), 1: beat("", True), 3: beat("step 5, reduce", True)}
    verdict = silence({2: beat("step 5, data", process=99)}, others, 30)
    assert verdict.text == (
        "rank 2 has been silent for 30 s, last seen in step 5, data (process 99 on node1). "
        "Others: rank 0 and 1 more in step 5, reduce; rank 1 in no operation"
    )
    assert verdict.silent == (("node1", 99),)
    assert Verdict.model_validate_json(verdict.model_dump_json()) == verdict


def test_who_does_not_wait_for_others_keeps_them_waiting() -> None:
    waits = beat("step 5, reduce", True)
    verdict = stall({0: waits, 1: beat("step 5, data"), 2: waits}, 300)
    assert verdict.stalled == (1,)
    assert verdict.silent == ()
    assert verdict.text.startswith("rank 1 has not moved for 300 s, in step 5, data (process 7")
    assert verdict.text.endswith("Others: rank 0 and 1 more in step 5, reduce")


def test_who_keeps_others_waiting_is_noted_before_the_run_ends() -> None:
    waits, busy = beat("step 5, reduce", True), beat("step 5, data", process=99)
    found = present(late({0: waits, 1: busy, 2: waits}, {}, 10))
    assert (found.stalled, found.silent) == ((1,), ())
    assert found.text == (
        "rank 1 has not moved for 40 s, in step 5, data (process 99 on node1). "
        "Others: rank 0 and 1 more in step 5, reduce"
    )
    silent = present(late({0: waits, 1: waits}, {1: waits}, 10))
    assert silent.text.startswith("rank 1 says nothing, last seen in step 5, reduce (process 7 on")
    for beats, seconds in ({}, 10), ({0: waits, 1: waits}, 10), ({0: waits, 1: busy}, 50):
        assert late(beats, {}, seconds) is None, "all move, or wait for nobody"
    assert late({0: busy, 1: busy}, {}, 10) is None


def test_verdicts_are_told_in_order_to_those_who_listen() -> None:
    told: list[tuple[Verdict | None, bool]] = []
    tell(VERDICT)
    with listening(lambda verdict, ends: told.append((verdict, ends))):
        for _ in range(20):
            tell(VERDICT)
            tell(None)
        tell(VERDICT, ends=True)
        tell(None)
        tell(None)  # waits for the one before
        assert told[:42] == [(VERDICT, False), (None, False)] * 20 + [
            (VERDICT, True),
            (None, False),
        ]
    tell(VERDICT)
    tell(VERDICT)
    assert (VERDICT, False) not in told[42:]


def test_a_disk_that_refuses_or_does_not_answer_stops_nothing() -> None:
    answers, told = threading.Event(), list[str]()

    def refuse(_: Verdict | None, __: bool) -> None:
        told.append("refused")
        raise InputError("no folder")

    def hang(_: Verdict | None, __: bool) -> None:
        told.append("asked")
        answers.wait(120)  # longer than telling three verdicts takes, on any machine

    with listening(refuse), listening(hang):
        for _ in range(3):
            tell(VERDICT)
        assert told == ["refused", "asked"], "it waits for no answer"
        answers.set()
        tell(None)
        tell(None)
        assert told[:4] == ["refused", "asked"] * 2
