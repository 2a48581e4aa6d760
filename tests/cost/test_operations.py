"""Rules for what operations return without values: torch's own."""

from collections.abc import Iterator
from typing import Any

import pytest

from bigtrk.cost import footprint as counting
from bigtrk.cost import operations
from bigtrk.models.attention_gnn import AttentionGNNConfig
from bigtrk.models.interaction_gnn import InteractionGNNConfig
from bigtrk.models.mlps import EdgeMLPConfig, EmbeddingConfig
from tests.programs import run_python

MODELS = [
    *(InteractionGNNConfig(hidden=8, layers=2, recompute=way) for way in ("none", "chunk")),
    *(AttentionGNNConfig(hidden=8, layers=2, precision=name) for name in ("fp32", "bf16")),
    AttentionGNNConfig(hidden=8, layers=1, layer_norm=False, recompute="none"),
    EdgeMLPConfig(hidden=8),
    EmbeddingConfig(hidden=8),
]


@pytest.fixture
def counted_anew() -> Iterator[None]:
    counting.footprint.cache_clear()
    yield
    counting.footprint.cache_clear()


@pytest.mark.parametrize("config", MODELS, ids=lambda config: config.name)
@pytest.mark.usefixtures("counted_anew")
def test_a_pass_counts_as_by_torch_s_rules(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for cut in (False, True):
        by_ours = counting.footprint(config, 4, 6, cut)
        counting.footprint.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(operations, "result_of", lambda call, args, kwargs: call(*args, **kwargs))
            by_torch = counting.footprint(config, 4, 6, cut)
        counting.footprint.cache_clear()
        for name, expected in vars(by_torch).items():
            found = getattr(by_ours, name)
            assert (
                found is expected or (found == expected).all()
                if hasattr(found, "all")
                else (found == expected)
            ), name


IN_A_PROCESS = """
import sys
from bigtrk.cost.footprint import footprint
from bigtrk.models.settings import InteractionGNNConfig, make_model
from bigtrk.parallel.engines.optimizers import make_optimizer
from bigtrk.parallel.settings import OptimizerSettings
from tests.cost.test_operations import MODELS
cuts = (False, True)
[footprint(config, 4, 6, cut) for config in MODELS if config.name != "attention" for cut in cuts]
model = make_model(InteractionGNNConfig(hidden=16, layers=1), 4, 6)
for name in ("adamw", "muon"):
    optimizer = make_optimizer(model, OptimizerSettings(name=name), {})
    for parameter in model.parameters():
        parameter.grad = parameter.clone()
    optimizer.step()
    optimizer.zero_grad()
    optimizer.load_state_dict(optimizer.state_dict())
print("sympy" in sys.modules)
[footprint(config, 4, 6, cut) for config in MODELS for cut in cuts]
print("torch._dynamo" in sys.modules)
"""


def test_neither_counting_nor_optimizers_import_torch_s_compiler() -> None:
    """It takes 1.5 s and 68 MiB. Attention's count imports sympy, a part of it."""
    done = run_python(["-c", IN_A_PROCESS])
    assert done.stdout == "False\nFalse\n", done.stderr
