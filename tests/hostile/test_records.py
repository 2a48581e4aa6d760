"""Records, models and checkpoints may come from anybody, as data do: they are read as they are
meant, or refused in one line, in bounded time and memory.
"""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigtrk.disk import files, json_lines
from bigtrk.disk.files import read_json
from bigtrk.disk.json_lines import read_lines
from bigtrk.errors import InputError
from tests.hostile.json_values import VALUES, mutated, places
from tests.hostile.reader import one_line, refusal
from tests.hostile.record_readers import JSON_FILES, RECORD_READERS, as_file
from tests.hostile.test_files import HARMLESS, mutations

LONGEST = 4000  # letters of a message
HOW = st.sampled_from(["replace", "add", "drop"])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", JSON_FILES)
@settings(max_examples=15, suppress_health_check=HARMLESS, deadline=None)
@given(data=st.data())
def test_a_record_that_says_something_else_is_read_or_refused(
    tmp_path: Path, name: str, data: st.DataObject
) -> None:
    reader, _, content = JSON_FILES[name]
    place = data.draw(st.sampled_from(list(places(content))))
    content = mutated(content, place, data.draw(st.sampled_from(VALUES)), data.draw(HOW))
    told = refusal(lambda: RECORD_READERS[reader].read(tmp_path, as_file(name, content)))
    assert one_line(told, tmp_path)
    assert len(str(told)) < LONGEST


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", RECORD_READERS)
@settings(max_examples=15, suppress_health_check=HARMLESS, deadline=None)
@given(data=st.data())
def test_a_mutated_file_is_read_or_refused(tmp_path: Path, name: str, data: st.DataObject) -> None:
    reader = RECORD_READERS[name]
    content = data.draw(st.sampled_from(reader.seeds()).flatmap(mutations))
    assert one_line(refusal(lambda: reader.read(tmp_path, content)), tmp_path)


@pytest.mark.parametrize("name", RECORD_READERS)
def test_the_seeds_are_valid(tmp_path: Path, name: str) -> None:
    for seed in RECORD_READERS[name].seeds():
        RECORD_READERS[name].read(tmp_path, seed)


CASES: list[tuple[str, tuple[Any, ...], Any, str]] = [
    ("config.json", ("scales",), {}, "'r' had scale None in training, but has scale 300.0 in"),
    ("config.json", ("scales", "r"), 1e999, "is not valid JSON (a number is too large"),
    ("config.json", ("measured", "nodes"), {"r": [0, 1]}, "needs no mean and deviation, but has"),
    ("config.json", ("configuration", "data", "node_features"), ["x"], "'x' needs a mean and"),
    ("config.json", ("configuration", "model", "hidden"), 100_000, "less than or equal to 65536"),
    ("manifest.json", (), [], "manifest.json is damaged or of an older version"),
    ("manifest.json", ("progress", "step"), 14, "another checkpoint, step-00000014"),
    ("manifest.json", ("averaged",), False, "does not match manifest.json"),
    ("metrics.jsonl", (0, "step"), 10**30, "line 1: step: Input should be less than"),
    ("metrics.jsonl", (0, "routes"), {"a\nb": "x"}, "line 1: routes.a b: Input should be"),
    ("metrics.jsonl", (3, "seconds"), 1e999, "line 4: is not valid JSON (a number is too large"),
    ("metrics.jsonl", (4, "validation", "loss"), float("nan"), ""),
    ("stall.json", ("ranks",), [-1], "stall.json: ranks.0: Input should be greater"),
    ("stall.json", ("text",), "x" * 10**5, "text: String should have at most 10000 characters"),
    ("watched run.json", ("steps_per_epoch",), -1, "steps_per_epoch: Input should be greater"),
    ("evaluation.json", ("edge_bins", "purity_by_eta", "part"), [5, 5], "not as many counts as"),
    ("best.json", ("value",), 1e300, "best.json: value: Value error, must be from"),
    ("search.json", ("metric",), "x\n" * 999, "search.json: metric: String should have at most"),
    ("search.json", ("space",), {"x\n": 3, "y": [[]], "z": {"low": 1e300, "high": "x"}}, ""),
    ("result.json", ("trials", 0, "value"), 1e300, "result.json: trials.0.value: Value error"),
    ("series.json", ("repeats",), 10**12, "repeats: Input should be less than or equal to 1000"),
    ("resumed run.json", ("git",), "\ud800", "run.json: is not valid JSON"),
    ("resumed run.json", ("config", "training", "minutes"), "x\n" * 9, "training.minutes: Input"),
    ("resumed metrics.jsonl", (0, "kind"), "stp", "line 1: kind: Input should be 'step', 'epoch'"),
    ("ds.json", ("zero_optimization", "stage"), 7, "zero_optimization.stage: must be 0 to 3"),
]


@pytest.mark.parametrize(("name", "place", "value", "complaint"), CASES)
def test_what_a_record_must_not_say_is_named(
    tmp_path: Path, name: str, place: tuple[Any, ...], value: Any, complaint: str
) -> None:
    reader, _, content = JSON_FILES[name]
    given = as_file(name, mutated(content, place, value))
    told = refusal(lambda: RECORD_READERS[reader].read(tmp_path, given))
    assert complaint in str(told)
    assert bool(complaint) == bool(str(told)), told
    assert one_line(told, tmp_path)
    assert len(str(told)) < LONGEST


def test_files_larger_than_any_record_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_JSON_BYTES", 1 << 20)
    monkeypatch.setattr(json_lines, "LONGEST_LINE", 1 << 20)
    monkeypatch.setattr(json_lines, "MOST_LINES", 100)
    path = tmp_path / "a"
    path.write_bytes(b'"' + b"x" * (1 << 20) + b'"')
    with pytest.raises(InputError, match="a: is larger than the 1 MiB"):
        read_json(path)
    with pytest.raises(InputError, match="a, line 1: is longer than 1 MiB; remove the line"):
        list(read_lines(path))
    path.write_bytes(b"{}\n" * 101)
    with pytest.raises(InputError, match="a: has more than 100 lines"):
        list(read_lines(path))
