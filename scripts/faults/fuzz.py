"""Feed a reader mutated files for a while, guided by coverage (atheris).

    pip install 'bigtrk[fuzz]'
    python scripts/faults/fuzz.py READER [--seconds 600] [--corpus FOLDER] [--keep FOLDER]

READER: event, graph, sector, manifest, configuration, heptrkx, pyg, tracks (readers.py of
tests/hostile); report, model, checkpoint, resumed or deepspeed (record_readers.py there). It starts
from valid files made on the fly. Whatever is read is fine, and so is an InputError of one printable
line; any other exception is uncaught: its input goes to --keep, and the search goes on. Graphs,
sectors, manifests and checkpoints are also tried with digests and manifests that agree with the
mutated content, as an attacker would write them. The last line is one JSON object with reader,
executions, seconds and uncaught (kinds of them, told apart by exception and place); exit status 1
where there are any.
"""

import argparse
import json
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import atheris

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT))

with atheris.instrument_imports(include=["bigtrk", "yaml", "zipfile", "gzip", "json"]):
    import bigtrk.program  # noqa: F401
    from bigtrk.console import complain
    from bigtrk.errors import InputError
    from tests.hostile.reader import Reader
    from tests.hostile.readers import READERS
    from tests.hostile.record_readers import RECORD_READERS

ALL = {**READERS, **RECORD_READERS}
LONGEST = 1 << 16  # bytes of an input


class Search:
    """Counts, and the kinds of uncaught exceptions with an input for each."""

    def __init__(self, name: str, reader: Reader, seconds: float, keep: Path) -> None:
        self.name, self.reader, self.seconds, self.keep = name, reader, seconds, keep
        self.executions = 0
        self.uncaught: dict[str, str] = {}
        self.started = time.monotonic()
        self.scratch = Path(tempfile.mkdtemp(prefix="bigtrk-fuzz-"))

    def try_one(self, content: bytes) -> None:
        """Runs one input; libFuzzer calls it and never returns, so the end is reported here."""
        if time.monotonic() - self.started > self.seconds:
            self.report()
        self.executions += 1
        try:
            self.reader.read(self.scratch, content)
        except InputError as error:
            message = str(error)
            if not message.replace(str(self.scratch), "").isprintable():
                self._found(error, content)
        except Exception as error:
            self._found(error, content)

    def _found(self, error: Exception, content: bytes) -> None:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        kind = f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}"
        if kind in self.uncaught:
            return
        self.keep.mkdir(parents=True, exist_ok=True)
        path = self.keep / f"{self.name}-{len(self.uncaught)}"
        path.write_bytes(content)
        self.uncaught[kind] = str(path)
        complain(f"uncaught {kind}: {path}")
        for line in "".join(traceback.format_exception(error, limit=-6)).splitlines():
            complain(line)

    def report(self) -> NoReturn:
        """Prints the line and leaves, past libFuzzer's own way out."""
        seconds = round(time.monotonic() - self.started, 1)
        counts = {"reader": self.name, "executions": self.executions, "seconds": seconds}
        print(json.dumps({**counts, "uncaught": len(self.uncaught)}), flush=True)
        os._exit(1 if self.uncaught else 0)


def write_seeds(reader: Reader, corpus: Path) -> None:
    """Writes the valid inputs that mutation starts from."""
    corpus.mkdir(parents=True, exist_ok=True)
    for number, content in enumerate(reader.seeds()):
        (corpus / f"seed-{number}").write_bytes(content)


def main() -> None:
    """Searches until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("reader", choices=list(ALL))
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--corpus", type=Path, help="keep what is found of interest there")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-findings"))
    arguments = parser.parse_args()
    # What numpy and torch remark on hostile values is not the point here.
    warnings.simplefilter("ignore")
    reader = ALL[arguments.reader]
    corpus = arguments.corpus or Path(tempfile.mkdtemp(prefix="bigtrk-corpus-"))
    write_seeds(reader, corpus)
    search = Search(arguments.reader, reader, arguments.seconds, arguments.keep)
    target: Callable[[bytes], None] = search.try_one
    # Hangs are findings too; memory is bounded by far less than the machine's.
    options = [f"-max_len={LONGEST}", "-timeout=20", "-rss_limit_mb=4096", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
