"""The file of a search: what it may hold, and the messages on other values."""

from pathlib import Path

import pytest

from bigtrk.errors import InputError
from bigtrk.studies.search.plan import Choices, Pruning, Range, read_space

SPACE = """\
metric: auc
space:
  optimizer.lr: {low: 1e-4, high: 1e-1, log: true}
  model.layers: {low: 2, high: 8, step: 2}
  model.name: [interaction, attention]
  data.node_features: [[r, z], [r, phi, z]]
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "space.yaml"
    path.write_text(text)
    return path


def test_a_space_as_it_is_written(tmp_path: Path) -> None:
    space = read_space(write(tmp_path, SPACE))
    assert (space.metric, space.sampler, space.seed) == ("auc", "tpe", 0)
    assert space.pruning == Pruning(first=1, factor=3)
    rate, layers = space.settings["optimizer.lr"], space.settings["model.layers"]
    assert rate == Range(low=1e-4, high=0.1, log=True)
    assert isinstance(layers, Range)
    assert layers.is_whole
    names, features = space.settings["model.name"], space.settings["data.node_features"]
    assert names == Choices(("interaction", "attention"))
    assert isinstance(features, Choices)
    assert features.by_label == {'["r", "z"]': ["r", "z"], '["r", "phi", "z"]': ["r", "phi", "z"]}
    assert space.overrides({"model.name": "attention", "data.node_features": ["r", "z"]}) == [
        'model.name="attention"',
        'data.node_features=["r", "z"]',
    ]


def test_choices_are_read_by_the_type_of_their_setting(tmp_path: Path) -> None:
    choices = "{training.spike_guard: [off, skip], data.node_features: [[r, no]]}"
    space = read_space(write(tmp_path, f"metric: auc\nspace: {choices}\n"))
    assert space.settings["training.spike_guard"] == Choices(("off", "skip"))
    assert space.settings["data.node_features"] == Choices((["r", "no"],))
    loss = read_space(write(tmp_path, f"metric: train_loss\nspace: {choices}\n"))
    assert (space.minimises, loss.minimises) == (False, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("space: {}", "space.yaml: space: Dictionary should have at least 1 item"),
        ("prunning: null\nspace: {a: [1]}", "did you mean 'pruning'"),
        (
            "population: {every: 1, lag: 0}\nspace: {a: [1]}",
            "key 'population.lag' was removed; leave it out: all trials of a round wait",
        ),
        (
            "space: {optimizer.lr: {low: 0.1, high: 0.01}}",
            r"space.yaml: space.optimizer.lr: low 0.1 is above high 0.01; swap them",
        ),
        (
            "space: {optimizer.lr: {low: 0, high: 1, log: true}}",
            "low 0 has no logarithm; raise it above 0",
        ),
        ("space: {a: {low: 1, high: 2, log: true, step: 1}}", "cannot be combined"),
        ("space: {a: {low: 1, high: 4, step: 0.5}}", "step 0.5 must be a whole number"),
        ("space: {a: {low: .nan, high: 2}}", "space.a: low.int: Input should be a finite number"),
        ("space: {training: [{seed: 1}]}", r"search sets training.best.metric; remove it \(set"),
        (
            "space: {model: [{layers: 1}], model.hidden: [8, 16]}",
            "space.yaml: space: model and model.hidden overlap; leave one out",
        ),
        ("space: {a: 3}", r"space.a: has no values; write bounds, such as {low: 1, high"),
        ("space: {a: [1, 1]}", "space.a: a value is listed twice; remove one"),
        ("space: {a: [[2020-01-01]]}", "space.a: lists a value no setting takes"),
        ("space: {run.folder: [a, b]}", "a search sets run.folder; remove it \\(use --out\\)"),
    ],
)
def test_bad_spaces_are_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        read_space(write(tmp_path, f"metric: auc\n{text}"))
    assert "\n" not in str(caught.value)
