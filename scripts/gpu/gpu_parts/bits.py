"""Trainings that are repeated: their weights have the same bits."""

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from bigtrk.models.interaction_gnn import InteractionGNN
from bigtrk.models.protocol import no_exchange
from scripts.bench.bench_hot_path import F, G
from scripts.gpu.gpu_parts.extent import EVENT_1000, Edges, Extent, Row
from scripts.gpu.gpu_parts.steps import config_of

STEPS = 3


def repeated(extent: Extent) -> Row:
    """Trains twice in each precision."""
    edges = extent.graph(EVENT_1000)
    torch.use_deterministic_algorithms(True)
    rows = []
    for precision in ("fp32", "bf16"):
        one, other = (trained(precision, edges, extent) for _ in range(2))
        same = all(torch.equal(weight, again) for weight, again in zip(one, other, strict=True))
        rows.append({"precision": precision, "steps": steps_of(extent), "same_bits": same})
    return {"origin": edges.origin, "rows": rows}


def steps_of(extent: Extent) -> int:
    return 1 if extent.dry else STEPS


def trained(precision: str, edges: Edges, extent: Extent) -> list[torch.Tensor]:
    """Returns the weights after some steps, on the CPU."""
    torch.manual_seed(0)
    device, edge_index = extent.device, edges.edge_index.to(extent.device)
    n_edges = edge_index.shape[1]
    x, edge_features = (
        torch.randn(n, width).to(device) for n, width in ((edges.n_nodes, F), (n_edges, G))
    )
    labels = (torch.arange(n_edges, device=device) % 3 == 0).float()
    model = InteractionGNN(config_of(extent.widths[0], precision, extent), F, G).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with extent.as_on_card():
        for _ in range(steps_of(extent)):
            logits = model(x, edge_features, edge_index, edges.n_nodes, no_exchange)
            binary_cross_entropy_with_logits(logits, labels).backward()
            optimizer.step()
            optimizer.zero_grad()
    return [parameter.detach().cpu() for parameter in model.parameters()]
