"""Configuration: overrides, unknown keys, bad values."""

import json
import re
from pathlib import Path

import pytest

from bigtrk.config import flat, load_settings
from bigtrk.errors import InputError
from bigtrk.shipped import DEFAULT
from bigtrk.training.settings import Configuration


def values_of(path: Path | None, *typed: str) -> dict[str, str]:
    """The settings as JSON by their keys."""
    return flat(load_settings(Configuration, path, typed).model_dump(mode="json"))


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("model.hiden=64", "did you mean 'model.hidden'"),
        ("optimizer.learning_rate=0.1", "unknown key 'optimizer.learning_rate'"),
        ("training.epochs=many", "training.epochs"),
        ("epochs", "write key.sub=value"),
        ("engine.name=horovod", "'ddp', 'fsdp2' or 'deepspeed'"),
        ("model.name=transformer", "'interaction', 'attention', 'mlp'"),
        ("model.name=my-mod:Net", "model.name: Value error, must name your class of a model as"),
        ("model.layer_norm=true", "model.layer_norm is only for model.name=attention; remove it"),
        ("qqqq=3", "unknown key 'qqqq'; choose one of data, model, target, engine, optimizer, "),
        ("training.best.patience=3", "patience needs a metric; set training"),
        ("training.lr_factors={'*': -1}", "Input should be greater than or equal to 0"),
    ],
)
def test_what_is_wrong_is_named(override: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        load_settings(Configuration, DEFAULT, [override])
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(DEFAULT) not in str(caught.value), "the file is not to blame"


@pytest.mark.parametrize(
    ("overrides", "blamed"),
    [
        (
            ["training.spill=/tmp", "sampling.method=shadow", "run.folder=runs"],
            "setting 'training.spill=/tmp' and setting 'sampling.method=shadow': ",
        ),
        (
            ["training.auto_bf16=true"],
            "setting 'training.auto_bf16=true': key 'training.auto_bf16' was removed; set model",
        ),
        (["model.name=foo"], "setting 'model.name=foo': model.name: must be one of 'interaction'"),
    ],
)
def test_settings_of_sections_that_do_not_go_together_are_named(
    overrides: list[str], blamed: str
) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(blamed)}"):
        load_settings(Configuration, DEFAULT, overrides)


@pytest.mark.parametrize(
    ("name", "override", "complaint"),
    [
        ("attention", "model.in_out=false", "only for model.name=interaction; remove it for att"),
        ("mlp", "model.layers=3", "for model.name=interaction or attention; remove it for mlp"),
        ("mlp", "model.gives=hit", "for model.name=package.module:Class; remove it for mlp"),
        ("pyg", "model.hidden=3", "for pyg, or set model.options.hidden, if the class itself"),
        ("m:Net", "model.optons.hidden=3", "unknown key 'model.optons'; did you mean 'model.opt"),
        ("m:Net", "model.options=3", "model.options: Input should be a valid dictionary"),
    ],
)
def test_options_of_other_models_are_refused(name: str, override: str, complaint: str) -> None:
    with pytest.raises(InputError, match=re.escape(complaint)):
        load_settings(Configuration, DEFAULT, [f"model.name={name}", override])


@pytest.mark.parametrize(
    "name", ["interaction", "attention", "mlp", "embedding", "pyg", "my.module:Net"]
)
def test_the_shipped_default_fits_every_model(name: str) -> None:
    configuration = load_settings(Configuration, DEFAULT, [f"model.name={name}"])
    assert configuration.model.name == name
    again = Configuration.model_validate(configuration.model_dump(mode="json"))
    assert again == configuration


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("run.folder=runs/ttbar #2", "runs/ttbar #2"),
        ("run.folder=007", "007"),
        ("run.folder=2024-06-01", "2024-06-01"),
        ('run.folder="a #2"', "a #2"),
        ("run.folder=~/x", "/home/me/x"),
        ("run.folder=${SCRATCH}/x", "/scratch/x"),
        ("run.folder=null", None),
        ("training.spike_guard=off", "off"),
        ("training.auto=off", False),
        ("engine.ds_config=no", "no"),
        ("data.train=a, 20240601", ["a", "20240601"]),
        ("data.train=[$SCRATCH/a, 007]", ["/scratch/a", "007"]),
        ('data.train="a,b","~/c"', ["a,b", "/home/me/c"]),
        ('data.train=c,"a,b"', ["c", "a,b"]),
        ("training.spill=./off", "off"),
        ("data.validation=2", 2),
        ("data.validation=2,b", ["2", "b"]),
        ("run.loggers=wandb,mlflow", ["wandb", "mlflow"]),
    ],
)
def test_a_value_is_read_by_the_type_of_its_setting(
    typed: str, read: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("SCRATCH", "/scratch")
    key = typed.partition("=")[0]
    assert values_of(None, typed)[key] == json.dumps(read)


def test_a_file_is_read_by_the_types_of_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    path = tmp_path / "bigtrk.yaml"
    path.write_text(
        "training: {spike_guard: off, epochs: 8}\n"
        "run: {folder: 2024-06-01}\n"
        "data: {train: ~/graphs, validation: [007, '~/more']}\n"
    )
    values = values_of(path)
    assert values["training.spike_guard"] == '"off"'
    assert values["training.epochs"] == "8"
    assert values["run.folder"] == '"2024-06-01"'
    assert values["data.train"] == '["/home/me/graphs"]'
    assert values["data.validation"] == '["007", "/home/me/more"]'


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("training.epochs=010", "010: must be a number without a leading 0"),
        ("training.epochs=1:30", "1:30: must be a number without a colon"),
        ("training.epochs=yes", "yes: must be a number"),
        ("run.folder=no", "no: YAML reads it as true or false; write ./no, or null for no folder"),
        ("data.train=a,", "a,: an item of the list is empty; remove a comma"),
        ('data.train="a', '"a: quote each item as a whole, as in "a,b",c'),
    ],
)
def test_a_value_that_yaml_reads_otherwise_is_refused_in_a_plain_line(
    typed: str, told: str
) -> None:
    with pytest.raises(InputError, match="^" + re.escape(f"setting {typed!r}: {told}")):
        load_settings(Configuration, None, [typed])


@pytest.mark.parametrize("path", ["$EMPTY/x", "~no_such_user/x"])
def test_a_path_of_nowhere_is_refused(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = r"(the variable \$EMPTY is unset or|there is no home folder ~no_such_user;) .*in full"
    monkeypatch.setenv("EMPTY", "")
    with pytest.raises(InputError, match=f"setting 'run.folder=.*: {said}"):
        load_settings(Configuration, None, [f"run.folder={path}"])
    file = tmp_path / "bigtrk.yaml"
    file.write_text(f"data: {{train: [{path}]}}\n")
    with pytest.raises(InputError, match=rf"bigtrk\.yaml: .*: {said}"):
        load_settings(Configuration, file)


TWICE = "model: {layers: 1}\nmodel: {hidden: 8}\n"


@pytest.mark.parametrize(
    "text", ["- a list", "model: [", "model: 3", "!!python/object:os.x {}", TWICE]
)
def test_a_broken_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_settings(Configuration, path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
