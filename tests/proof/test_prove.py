"""Exact models are proved, and the wrong layer of others is named with its fault."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from bigtrk.models.settings import (
    AttentionGNNConfig,
    EdgeMLPConfig,
    EmbeddingConfig,
    InteractionGNNConfig,
    ModelConfig,
    make_model,
)
from bigtrk.proof.prove import EVALUATED, PARTS, Proof, prove, prove_configured
from bigtrk.proof.sectors import KINDS
from tests.models.graphs import F, G
from tests.models.user_models import Embedding, Layered, Simple
from tests.present import present
from tests.proof import right_models, wrong_models


def proof_of(model: type[nn.Module], **options: Any) -> Proof:
    torch.manual_seed(0)
    hit = model in (Embedding, right_models.Embedding)
    return prove(model(F, G, **options), F, G, "hit" if hit else "edge")


SMALL: dict[str, Any] = {"hidden": 4, "layers": 2}
# Each option that changes what a layer computes.
OURS: list[ModelConfig] = [
    InteractionGNNConfig(**SMALL),
    AttentionGNNConfig(**SMALL),
    EdgeMLPConfig(hidden=4),
    EmbeddingConfig(hidden=4),
]
OPTIONS: list[ModelConfig] = [
    InteractionGNNConfig(**SMALL, shared_weights=True, concatenate=True, recompute="layer"),
    InteractionGNNConfig(**SMALL, in_out=True, recompute="offload", precision="bf16"),
    InteractionGNNConfig(hidden=4, layers=1, mlp_layers=1),
    AttentionGNNConfig(**SMALL, layer_norm=False, edge_features=True, recompute="layer"),
    AttentionGNNConfig(**SMALL, layer_norm=True, edge_features=False, precision="bf16"),
    EdgeMLPConfig(hidden=4, recompute="chunk"),
    EmbeddingConfig(hidden=4, recompute="layer"),
]


@pytest.mark.parametrize(
    "config",
    [*OURS, *(pytest.param(config, marks=pytest.mark.slow) for config in OPTIONS)],
    ids=repr,
)
def test_our_models_are_exact(config: ModelConfig) -> None:
    torch.manual_seed(0)
    proof = prove_configured(config, F, G)
    assert proof.first_difference is None
    assert present(proof.worst) < 1e-12
    assert len(proof.trials) == 2 + len(KINDS) * len(PARTS) + 2 + len(EVALUATED)


@pytest.mark.usefixtures("in_three")
def test_the_head_for_pt_is_proved() -> None:
    config = InteractionGNNConfig(hidden=4, layers=2)
    assert prove(make_model(config, F, G, pt_head=True), F, G).exact


@pytest.mark.usefixtures("in_three")
@pytest.mark.parametrize(
    "model",
    [
        Simple,
        Layered,
        Embedding,
        right_models.BothEnds,
        right_models.StableSoftmax,
        right_models.RecomputesLayers,
        right_models.Embedding,
    ],
)
def test_models_of_users_are_exact(model: type[nn.Module]) -> None:
    options = {"hidden": 4, "layers": 2} if model is Layered else {}
    proof = proof_of(model, **options)
    assert proof.first_difference is None
    assert present(proof.worst) < 1e-12
    assert len(present(proof.exchanges)) == (0 if model is Embedding else 2)


@pytest.mark.usefixtures("in_three")
def test_rounding_is_no_difference() -> None:
    proof = proof_of(right_models.Float32)
    assert proof.exact
    assert 1e-9 < present(proof.worst) < 1e-5


READS_HALO = "reads rows of halo nodes that differ"
MIXES = "mixes all rows of its sector"


@pytest.mark.parametrize(
    ("model", "layer", "why"),
    [
        ("Normalised", "'norm' (BatchNorm1d), batch_norm", MIXES),
        ("Centred", "Centred, mean", MIXES),
        ("Counts", "Counts, div", "or reads their number"),
        ("AddsBesideHalo", "AddsBesideHalo, where in wrong_models.py", MIXES),
        ("Hidden", "Hidden, mean", MIXES),
        ("Dropped", "Dropped, dropout", "draw nothing at random"),
        ("ExchangesOnce", "'convs.1' (Conv), getitem", READS_HALO),
        ("GathersHalo", "GathersHalo, index_select", READS_HALO),
        ("Degrees", "Degrees, getitem", r"reads the number of a halo node's edges"),
        ("SumsAtSources", "SumsAtSources, index_add", "edges that end at halo nodes"),
        ("Numbered", "Numbered", "come in another order"),
        ("Halved", "Halved, ", "computes in torch.bfloat16 whatever the type of x"),
        ("HalfDetached", "convs.1.linear.bias", "its gradient is not the same in sectors"),
        ("IdleWithoutEdges", "IdleWithoutEdges", "exchange less often for a sector of 49 nodes, 0"),
        ("StumblesWithoutEdges", "'scaled' (Scaled) in wrong_models.py", "RuntimeError: no edges"),
        ("ExchangesAll", "ExchangesAll", "pass only the owned rows, [n_owned, H]"),
        ("NotANumber", "last.bias", "its gradient is NaN or infinite in a sector"),
        ("FailsBackward", "FailsBackward in wrong_models.py", "fails in its backward pass; use no"),
        ("Clamped", "model Clamped", "its parameter 'last.weight' has a gradient hook"),
        ("Lazy", "model Lazy", "its parameter 'last.weight' has no size yet"),
    ],
)
def test_what_is_wrong_is_found(model: str, layer: str, why: str) -> None:
    proof = proof_of(getattr(wrong_models, model))
    assert not proof.exact
    found = present(proof.first_difference)
    assert found.startswith(layer), found
    assert why in found
    assert "\n" not in found


@pytest.mark.usefixtures("in_three")
def test_what_is_wrong_in_eval_mode_alone_is_found() -> None:
    first = present(proof_of(wrong_models.CentredInEval).first_difference)
    assert re.match(r"CentredInEval, mean in wrong_models.py.*\(in eval mode alone", first)
    assert MIXES in first


def test_the_line_at_fault_is_told() -> None:
    first = proof_of(wrong_models.Centred).first_difference
    found = re.search(r"mean in wrong_models.py:(\d+): ", first or "")
    assert found
    source = Path(wrong_models.__file__).read_text().splitlines()
    assert source[int(found[1]) - 1].strip() == "return rows - rows.mean(0)"
    assert "eval mode" not in (first or "")


def test_nothing_is_left_behind() -> None:
    """The model, torch's random numbers, its default type and its hooks are as before."""
    torch.manual_seed(0)
    model = wrong_models.Dropped(F, G)
    before, state = torch.get_rng_state(), {k: v.clone() for k, v in model.state_dict().items()}
    assert not prove(model, F, G).exact
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_default_dtype() == torch.float32
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert all(not module._forward_hooks for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
