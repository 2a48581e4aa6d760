"""A failed process is told by what ended it, or by what it wrote last."""

import subprocess
import sys

import pytest

from bigtrk.errors import why_it_failed


@pytest.mark.parametrize(
    ("ended_by", "said"),
    [
        ("os.kill(os.getpid(), 9)", "ended by SIGKILL, perhaps out of memory"),
        ("os.kill(os.getpid(), 11)", "ended by SIGSEGV"),
        ("os._exit(3)", "last words"),
    ],
)
def test_why_a_process_failed(ended_by: str, said: str) -> None:
    """Whatever it warned of before it was killed."""
    said_first = "print('first words', 'last words', sep='\\n', file=sys.stderr, flush=True)"
    script = f"import os, sys; {said_first}; {ended_by}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert why_it_failed(done.returncode, done.stderr) == said


def test_a_process_that_says_nothing_is_told_by_its_status() -> None:
    assert why_it_failed(3, "\n") == "ended with status 3"
