"""Tests how the watchdog's verdicts are passed on: in order, and never at the cost of the run."""

import threading

from bigtrk.errors import InputError
from bigtrk.parallel.heartbeat import Verdict
from bigtrk.parallel.watchdog import listening, tell

VERDICT = Verdict("rank 1 says nothing", (1,))


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
