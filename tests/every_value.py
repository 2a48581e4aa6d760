"""Every value of every setting that has a list of them, from the configuration classes themselves.

A value that a class gets later is found here without being named; a setting that is optional, or of
several types, needs an example in `EXAMPLES`, and a value that is only valid beside others has them
in `NEEDED`.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from bigtrk.config import Settings, section_kinds
from bigtrk.graphs.features import CELL_FEATURES, EDGE_FEATURES, NODE_FEATURES
from bigtrk.models.options import ModelSettings
from bigtrk.training.settings import Configuration
from bigtrk.user_code import names_code
from tests.programs import CHECKOUT

FUNCTIONS = "tests.training.user_functions"
# Values that no type lists: of optional settings, of names, and of numbers that are 0 for "off".
EXAMPLES: dict[str, list[Any]] = {
    "data.validation": [0, 1, ["held back"]],
    "data.events": [1],
    "data.node_features": [[*NODE_FEATURES, *CELL_FEATURES], ["r", f"{FUNCTIONS}:distance"]],
    "data.edge_features": [list(EDGE_FEATURES), ["dz", f"{FUNCTIONS}:length"]],
    "target.pt_min": [0.0, 0.5],
    "target.hits_min": [0, 3],
    "target.eta_max": [2.5],
    "target.other_weight": [0.0, 0.5, -1.0],
    "engine.ds_config": sorted(path.stem for path in (CHECKOUT / "ds_configs").glob("*.json")),
    "engine.shard_ranks": [2],
    "negatives.hard": [0.0, 2.0],
    "negatives.easy": [0.0, 0.5],
    "optimizer.warmup_steps": [0, 1],
    "optimizer.gradient_clipping": [0.0, 1.0],
    "model.init_from": ["start", "start/model.safetensors"],
    "training.memory_gib": [4.0],
    "training.spill": ["."],
    "training.minutes": [60.0],
    "training.validate_minutes": [1e-9],
    "training.lr_factors": [{}, {"node_encoder.*": 0.0, "*": 0.5}],
    "training.average_decay": [0.9],
    "training.best.patience": [1],
    "training.checkpoint_every": [1],
    "training.norms_every": [0, 1],
    "training.pt_weight": [0.0, 0.3],
    "training.loss": [f"{FUNCTIONS}:squared"],
    "training.focal_gamma": [0.0, 2.0],
    "run.folder": ["run"],
    "run.price_per_device_hour": [1.5],
}
HELD_BACK = {"data.validation": ["held back"]}
# By setting, or by setting and value; the latter first.
NEEDED: dict[str, dict[str, Any]] = {
    "negatives.hard": {"model.name": "mlp", "sampling.method": "wedges"},
    "negatives.easy": {"model.name": "mlp", "sampling.method": "wedges"},
    "engine.ds_config": {"engine.name": "deepspeed"},
    "engine.shard_ranks=2": {"engine.name": "fsdp2"},
    "optimizer.name=muon": {"model.hidden": 16},
    "model.name=embedding": {"data.train": ["true edges"]},
    "model.name=pyg": {"model.options.module": "tests.models.pyg_nets:Plain"},
    "model.gives": {"model.name": "tests.models.user_models:Simple"},
    "model.gives=hit": {
        "model.name": "tests.models.user_models:Embedding",
        "data.train": ["true edges"],
    },
    "sampling.method=shadow": {"training.events_per_step": 1},
    "sampling.method=sectors": {"data.train": ["sectors"]},
    "data.sectors": {"data.train": ["sectors"]},
    "training.routing": {"data.train": ["sectors"]},
    "training.focal_gamma": {"training.loss": "focal"},
    "training.best.metric": HELD_BACK,
    "training.best.metric=log_pt_error": {**HELD_BACK, "training.pt_weight": 0.3},
    "training.best.patience=1": {**HELD_BACK, "training.best.metric": "loss"},
}


@dataclass(frozen=True)
class Value:
    """A setting's dotted key, the value, and what others must be for it, by key."""

    key: str
    value: Any
    needed: dict[str, Any]

    def __str__(self) -> str:
        model = self.needed.get("model.name")
        return f"{self.key}={self.value}" + (f" of {model}" if model else "")

    def overrides(self, **others: Any) -> list[str]:
        """Returns command-line overrides: a small model's, `others` unless replaced, its own."""
        model = {"model.hidden": 8, "model.layers": 2}
        name = self.needed.get("model.name", "interaction")
        if name in ("mlp", "embedding", "pyg") or names_code(name):
            del model["model.layers"]
        if name == "pyg" or names_code(name):
            del model["model.hidden"]
        content = {**model, **others, **self.needed, self.key: self.value}
        return [f"{key}={json.dumps(value)}" for key, value in content.items()]


def every_value() -> list[Value]:
    """Lists every value of the configuration of a run, in its order."""
    return list(_of_sections(Configuration, "", {}))


def _of_sections(kind: type[Settings], prefix: str, needed: dict[str, Any]) -> Iterator[Value]:
    for name, field in kind.model_fields.items():
        if name in ModelSettings.model_fields and needed.get("model.name") != "interaction":
            continue  # of all models: one is enough
        key = prefix + name
        for value in _values(field.annotation, key):
            if isinstance(value, type):
                yield from _of_sections(value, f"{key}.", _named(value, key))
            else:
                with_value = NEEDED.get(f"{key}={value}", NEEDED.get(key, {}))
                of_model = NEEDED.get(f"model.name={needed.get('model.name')}", {})
                yield Value(key, value, {**with_value, **of_model, **needed})


def _named(kind: type[Settings], key: str) -> dict[str, Any]:
    """Returns what chooses this one of several kinds of a section, if its name does."""
    name = kind.model_fields.get("name")
    return {f"{key}.name": name.default} if name and len(get_args(name.annotation)) == 1 else {}


def _values(annotation: Any, key: str) -> Iterator[Any]:
    """The values of a type, with a section's class for a section."""
    yield from section_kinds(annotation)
    for member in _members(annotation):
        if section_kinds(member):
            continue
        if get_origin(member) is Literal:
            yield from get_args(member)
        elif member is bool:
            yield from (False, True)
        elif member is NoneType:
            yield None
        elif get_origin(member) is tuple:
            yield ()
            yield from ((value,) for value in _values(get_args(member)[0], key))
        else:
            assert not _lists(member), f"{key}: teach tests/every_value.py the values of {member}"
    if len(_members(annotation)) > 1 and not all(map(_lists, _members(annotation))):
        assert key in EXAMPLES, f"{key}: give tests/every_value.py an example of {annotation}"
    yield from EXAMPLES.get(key, [])


def _members(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _lists(annotation: Any) -> bool:
    """Whether a type, or one inside it, has a list of values."""
    if annotation in (bool, NoneType) or get_origin(annotation) is Literal:
        return True
    if section_kinds(annotation):
        return True
    return any(map(_lists, get_args(annotation)))
