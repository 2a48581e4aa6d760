"""The warnings of a process's first sparse matrix: none of bigtrk's, and a user's choice stands."""

import subprocess
import sys

import pytest

MATRICES = """
ends = torch.zeros(2, 1, dtype=torch.int64)
torch.sparse_coo_tensor(ends, torch.ones(1), (2, 2))
torch.sparse_csr_tensor(torch.tensor([0, 1, 1]), ends[0], torch.ones(1), (2, 2))
"""


def checked(module: str, choice: str) -> str:
    """Whether matrices are checked, in a process that imports a module after a user's choice."""
    checks = "torch.sparse.check_sparse_tensor_invariants"
    lines = ["import torch", choice.format(checks), f"import {module}", MATRICES]
    program = "\n".join([*lines, f"print({checks}.is_enabled())"])
    command = [sys.executable, "-W", "error::UserWarning", "-c", program]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("module", ["bigtrk.models.attention_gnn", "bigtrk.sampling.products"])
def test_sparse_matrices_warn_of_nothing(module: str) -> None:
    assert checked(module, "") == "False"
    assert checked(module, "{}.enable()") == "True"
