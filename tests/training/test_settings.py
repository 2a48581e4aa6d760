"""Settings that rule each other out are refused, with what to set instead."""

import pytest

from bigtrk.config import load_settings
from bigtrk.errors import InputError
from bigtrk.training.settings import Configuration

CASES = {
    "sampling.method=shadow training.events_per_step=2": "set training.events_per_step=1",
    "model.name=mlp training.pt_weight=1": "pt_weight: model.name=mlp has no head for pT",
    "model.name=attention training.spill=x": "spill: model.name=attention with .* keeps no edges",
    "model.recompute=none training.spill=x": "with model.recompute=none keeps no edges",
    "sampling.method=wedges training.spill=x": "for whole events, not for sampling.method=wedges",
    "sampling.method=wedges training.auto=true": "steps of whole events, not .*; set it to false",
    "optimizer.name=muon engine.name=fsdp2": "set engine.name=ddp, or optimizer.name=adamw",
    "model.name=embedding training.loss=focal": "focal: is for edges, but model.name=embedding",
    "model.name=embedding sampling.method=sectors": ": needs edges, but model.name=embedding reads",
    "negatives.hard=1": "model.name=interaction does not score an edge by itself",
    "model.name=mlp negatives.easy=1": "not with sampling.method=none; set it to wedges",
    "training.best.patience=3": "set training.best.metric",
}


@pytest.mark.parametrize(("overrides", "told"), CASES.items(), ids=CASES)
def test_settings_that_rule_each_other_out_are_refused(overrides: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        load_settings(Configuration, None, overrides.split())
