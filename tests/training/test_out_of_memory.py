"""Messages when memory runs out: the host's, and a GPU's, which is a stand-in."""

import pytest
import torch

from bigtrk.errors import RankError
from bigtrk.tracing import traced
from bigtrk.training.guards import report_out_of_memory

ON_HOST = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 20 GiB")


def fail(error: Exception) -> None:
    with report_out_of_memory("rank 3", "take more ranks"), traced("layer 2 edge"):
        raise error


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory."), ON_HOST, MemoryError("lacks 20 GiB")]
)
def test_rank_place_and_remedy_are_said(error: Exception) -> None:
    with pytest.raises(RankError) as raised:
        fail(error)
    said = str(raised.value)
    assert said.startswith("rank 3 ran out of memory in 'layer 2 edge' (")
    assert said.endswith("; take more ranks")


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="shapes do not match") as raised:
        fail(RuntimeError("shapes do not match"))
    assert "memory" not in str(raised.value)
