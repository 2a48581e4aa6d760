"""Files that `bigtrk watch` reads: valid ones, and all that is shown of them."""

import io
from pathlib import Path

from bigtrk.console import Screen
from bigtrk.disk.folder_lock import LOCK, Owner
from bigtrk.records.run import STALL
from bigtrk.reports.watch import Watch, dashboard
from tests.hostile.json_values import as_json
from tests.hostile.records import metric_lines, run_json, stall_json

FILES = ("run.json", "metrics.jsonl", STALL)


def good_file(name: str) -> bytes:
    if name == "metrics.jsonl":
        return b"".join(as_json(line) + b"\n" for line in metric_lines())
    return as_json(run_json() if name == "run.json" else stall_json())


def read_watched(folder: Path, content: bytes) -> object:
    """A dashboard in the terminal, of a run that this process trains. First byte:
    which of FILES is `content`.
    """
    spoilt = FILES[content[0] % len(FILES)] if content else "run.json"
    run = folder / "watched"
    (run / LOCK).mkdir(parents=True, exist_ok=True)
    (run / LOCK / Owner.here().name).touch()
    for name in FILES:
        (run / name).write_bytes(content[1:] if name == spoilt else good_file(name))
    watch, screen = Watch([run]), Screen(file=io.StringIO())
    runs = watch.look()
    screen.print(dashboard(watch.labels, runs, screen))
    return None


def watch_seeds() -> list[bytes]:
    return [bytes([kind]) + good_file(name) for kind, name in enumerate(FILES)]
