"""Configuration: overrides, unknown keys, bad values."""

from pathlib import Path

import pytest

from bigtrk.config import load_settings
from bigtrk.errors import InputError
from bigtrk.train import DEFAULT
from bigtrk.training.settings import Configuration


def test_the_shipped_default_is_valid_and_overridable() -> None:
    configuration = load_settings(Configuration, DEFAULT, ["model.hidden=16", "data.train=[a, b]"])
    assert configuration.model.hidden == 16
    assert configuration.data.train == [Path("a"), Path("b")]
    assert configuration.training.epochs == 10


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("model.hiden=64", "did you mean 'model.hidden'"),
        ("trainning.epochs=3", "did you mean 'training"),
        ("optimizer.learning_rate=0.1", "unknown key 'optimizer.learning_rate'"),
        ("training.epochs=many", "training.epochs"),
        ("training.epochs=0", "greater than or equal to 1"),
        ("epochs", "write key.sub=value"),
        ("engine.name=horovod", "'ddp', 'deepspeed' or 'fsdp2'"),
    ],
)
def test_what_is_wrong_is_named(override: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        load_settings(Configuration, DEFAULT, [override])
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(DEFAULT) not in str(caught.value), "the file is not to blame"


@pytest.mark.parametrize("text", ["- a list", "model: [", "model: 3", "!!python/object:os.x {}"])
def test_a_broken_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_settings(Configuration, path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.yaml"):
        load_settings(Configuration, tmp_path / "absent.yaml")
