"""YAML, JSON and overrides of all shapes are read as they are meant, or refused in one line."""

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bigtrk.config import load_settings, read_yaml
from bigtrk.disk.files import read_json
from bigtrk.errors import InputError
from bigtrk.shipped import DEFAULT
from bigtrk.training.settings import Configuration
from tests.hostile.reader import one_line, refusal


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("!!python/object/apply:os.system ['true']", "could not determine a constructor"),
        ("[" * 5000, "nested too deeply"),
        ("a: &a [*a]", "has an alias"),
        ("1" + ":59" * 200_000, "digits"),
        ("!!timestamp x", "not valid YAML"),
        ("!!bool x", "not valid YAML"),
        ("a: ]", r"found '\]' in line 1, column 4: a: \] \^\)"),
        ("2001-99-99", "not valid YAML"),
        ("x" * (1 << 20) + "x", "larger than the 1 MiB"),
        ("a: \ud800".encode("utf-8", "surrogatepass"), "not valid YAML"),
    ],
)
def test_yaml_bombs_are_refused(tmp_path: Path, text: str | bytes, complaint: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=complaint) as caught:
        read_yaml(path)
    assert one_line(caught.value, tmp_path)


def test_a_billion_laughs_are_refused(tmp_path: Path) -> None:
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{level}: &a{level} [{f'*a{level - 1}, ' * 10}]" for level in range(1, 12)]
    (tmp_path / "a.yaml").write_text("\n".join(lines))
    with pytest.raises(InputError, match="line 2 has an alias"):
        load_settings(Configuration, tmp_path / "a.yaml")


KEYS = st.sampled_from(["model", "hidden", "data.train", "training", "run", "engine", "", ".", "1"])
VALUES = st.sampled_from(["[[]]", "{}", "null", "NaN", "-.inf", "~", "{1: 2}", "!!set {a}", "'\\"])


@settings(max_examples=200)
@example([(["model"], ">\U00018cd6")])  # no letter yet: the library quotes it as it is
@given(st.lists(st.tuples(st.lists(KEYS, max_size=4), VALUES | st.text()), max_size=3))
def test_overrides_of_all_shapes(overrides: list[tuple[list[str], str]]) -> None:
    lines = [f"{'.'.join(keys)}={value}" for keys, value in overrides]
    assert str(refusal(lambda: load_settings(Configuration, DEFAULT, lines))).isprintable()


def test_many_mistakes_are_told_in_short(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("".join(f"key{number}: {'x' * 100}\n" for number in range(5000)))
    with pytest.raises(InputError) as caught:
        load_settings(Configuration, path)
    assert len(str(caught.value)) < 10_000


@pytest.mark.parametrize("text", ["[" * 200_000, "1" * 5000, "NaN", '{"a": Infinity}', "\xff"])
def test_json_that_breaks_readers(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match="is not valid JSON"):
        read_json(tmp_path / "a.json")
