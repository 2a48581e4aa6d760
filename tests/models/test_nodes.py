"""The fused passes over nodes against autograd in float64: on a GPU, else in the interpreter."""

from math import fsum

import pytest
import torch
from torch import Tensor

from bigtrk.models.edges import schedule
from bigtrk.models.edges.fused_pass import FusedEdgePass
from bigtrk.models.edges.passes import EdgePass
from bigtrk.models.protocol import Ends
from tests.models.fused import DEVICE
from tests.models.nodes import NodeCase, computed, exact

pytest.importorskip("triton")
pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("interpreted_bf16")]
CASES = [
    NodeCase(),
    NodeCase(layers=3, in_out=False),
    NodeCase(layers=1, encoded=False),
    NodeCase(hidden=48, n_nodes=17, n_owned=17),
    NodeCase(n_nodes=0, n_owned=0),
    NodeCase(n_nodes=5, n_owned=0),
]


class Checked(FusedEdgePass):
    """Keeps the sums for the backward pass, and converts the nodes for the next layer."""

    def _updated(self, sums: Ends) -> Tensor:
        totals = [sums.of_destination.clone(), sums.of_source.clone()]
        made, dtype = super()._updated(sums), self._work.dtype
        totals = totals if self.layer.in_out else [totals[0] + totals[1]]
        pairs = zip(self.kept, totals, strict=True)
        assert all(torch.equal(kept, total.to(dtype)) for kept, total in pairs)
        copy = self.layer.graph.halo.converted.get(made)
        assert (copy is None) == (len(made) < len(self._nodes[0]) or dtype == made.dtype)
        assert copy is None or torch.equal(copy, made.to(dtype))
        return made


@pytest.fixture(autouse=True)
def few_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tiles in each part of a weight's gradient."""
    monkeypatch.setattr(schedule, "NODE_PARTS", 2)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_float32_is_exact(case: NodeCase) -> None:
    found = computed(case, FusedEdgePass, DEVICE)
    errors = found.errors(exact(case))
    assert max(errors.values()) < 1e-6, errors
    again = computed(case, FusedEdgePass, DEVICE)
    assert all(torch.equal(values, again.found[name]) for name, values in found.found.items())


@pytest.mark.parametrize(
    "case",
    [
        NodeCase(n_nodes=150, n_owned=130, dtype=torch.bfloat16),
        NodeCase(n_owned=70, in_out=False, dtype=torch.bfloat16),
        pytest.param(NodeCase(layers=3, dtype=torch.bfloat16), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_bfloat16_is_at_most_twice_as_far_off_as_plain_passes(case: NodeCase) -> None:
    found, plain = (computed(case, one, DEVICE) for one in (Checked, EdgePass))
    wanted = exact(case)
    off, of_plain = (fsum(one.errors(wanted).values()) for one in (found, plain))
    assert 0 < off <= 2 * of_plain
