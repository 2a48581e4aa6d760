"""Muon for hidden matrices, AdamW for all else (Jordan et al. 2024; Liu et al. 2025)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.parameter import Parameter

from bigtrk.errors import InputError
from bigtrk.parallel.engines.pieces import adam_state
from bigtrk.parallel.settings import OptimizerSettings

# Matrices with fewer rows or columns are of features and scores: the first layers and the outputs.
NARROWEST = 16


class MuonAndAdamW(torch.optim.AdamW):
    """Updates hidden matrices by `torch.optim.Muon`, with steps as large as AdamW's, so that one
    rate and one weight decay are for both.

    State has the form of AdamW's for all parameters, and so have checkpoints: Muon's momentum lies
    in `exp_avg`, and `exp_avg_sq` of a matrix stays zero.
    """

    def __init__(self, groups: Sequence[dict[str, Any]], settings: OptimizerSettings) -> None:
        """Raises InputError: there is no hidden matrix."""
        super().__init__(groups, lr=settings.lr, weight_decay=settings.weight_decay)
        self._matrices = [
            [one for one in group["params"] if _is_hidden(one)] for group in self.param_groups
        ]
        if not any(self._matrices):
            raise InputError(
                f"optimizer.name=muon: no matrix of the model has at least {NARROWEST} rows and "
                f"columns; raise model.hidden, or set optimizer.name=adamw"
            )
        self._muon = torch.optim.Muon(
            [{"params": matrices} for matrices in self._matrices],
            lr=settings.lr,
            weight_decay=settings.weight_decay,
            adjust_lr_fn="match_rms_adamw",
        )

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Updates all parameters that have a gradient, and clears that of matrices."""
        groups = zip(self.param_groups, self._muon.param_groups, self._matrices, strict=True)
        for own, of_muon, matrices in groups:
            of_muon["lr"] = own["lr"]
            for matrix in matrices:
                if matrix.grad is not None:
                    state = adam_state(self, matrix)
                    self._muon.state[matrix]["momentum_buffer"] = state["exp_avg"]
                    state["step"] += 1
        self._muon.step()
        for matrix in (one for matrices in self._matrices for one in matrices):
            matrix.grad = None  # AdamW leaves out what has none
        return super().step(closure)


def _is_hidden(parameter: Parameter) -> bool:
    return parameter.ndim == 2 and min(parameter.shape) >= NARROWEST
