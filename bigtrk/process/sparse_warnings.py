"""Silences torch's warnings of a process's first sparse matrix, which say nothing to users."""

import warnings

import torch


def silence_sparse_warnings() -> None:
    """Silences that such matrices are in beta and, in torch 2.11, that nobody chose whether they
    are checked, which it says even of one that is made without checks; a user's choice stands.

    It takes no memory: huge pages are asked for (parallel/host.py) before torch's first allocation.
    """
    checks = torch.sparse.check_sparse_tensor_invariants
    with warnings.catch_warnings(action="ignore"):
        torch.empty((1, 1), layout=torch.sparse_csr, device="meta")
        if not checks.is_enabled():
            checks.disable()
