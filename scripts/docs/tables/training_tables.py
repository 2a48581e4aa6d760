"""Tables of the learning: mini-batches and physics."""

from typing import Any

from scripts.docs.table import Table

MODELS = {
    "interaction": "Interaction GNN",
    "attention": "attention network",
    "mlp": "MLP without message passing",
    "GAT": "two GATv2Conv",
    "GCN": "two GCNConv",
    "SAGE": "two SAGEConv",
}


def study(found: Any) -> Table:
    """Lists ways to make mini-batches at equal time and, where all finished one, equal epochs."""
    columns = ["", "work", "AUC %", "efficiency %", "purity %"]
    if found["epochs"]:
        columns += [f"AUC % after {found['epochs']} epochs", "efficiency %", "purity %"]
    rows = []
    for name, method in found["methods"].items():
        metrics = _edges(method["at_equal_time"])
        if found["epochs"]:
            metrics += _edges(method["at_equal_epochs"])
        rows.append([name, f"{method['work']:.1f}", *metrics])
    return Table(columns, rows)


def _edges(metrics: Any) -> list[str]:
    digits = {"auc": 2, "efficiency": 1, "purity": 1}
    return [f"{100 * metrics[name]:.{n}f}" for name, n in digits.items()]


def sampling(found: Any) -> Table:
    """Lists mini-batches per second, by engine and by how many are sampled at once."""
    names = ("batches_per_second", "slowest_round", "fastest_round")
    rows = [
        [side, *(f"{row[name]:.0f}" for name in names), f"{row['edges_per_batch']:,.0f}"]
        for side, row in found["rows"].items()
    ]
    rates = ("mini-batches per second", "slowest round", "fastest round")
    columns = ("", *rates, "edges per mini-batch")
    return Table(columns, rows)


def shadow_epochs(found: Any) -> Table:
    """Lists the seconds of an epoch, by ranks p and mini-batches sampled at once k."""
    parts = ("epoch", "waiting", "sampling", "reduce")
    rows = [
        [p, k, *(f"{row[part]:.2f} s" for part in parts)]
        for p, by_bulk in found["epoch_seconds"].items()
        for k, row in by_bulk.items()
    ]
    return Table(("p", "k", "epoch", "waiting", "sampling alone", "reducing"), rows, texts=0)


def physics_heptrkx(found: Any) -> Table:
    """Lists edge metrics of each model on real graphs, means and deviations over seeds."""
    rows = [
        [
            f"{MODELS[name]} ({_size(found['settings']['models'][name])})",
            f"{row['parameters']:,}",
            *(
                f"{row[metric]['mean']:.5f} ± {row[metric]['deviation']:.5f}"
                for metric in ("auc", "efficiency", "purity")
            ),
            f"{row['training_seconds']:.0f} s",
        ]
        for name, row in found["models"].items()
    ]
    return Table(("", "parameters", "AUC", "efficiency", "purity", "training"), rows)


def _size(settings: list[str]) -> str:
    values = dict(setting.removeprefix("model.").split("=") for setting in settings)
    if "options.module" in values:
        return f"`{values['options.module']}`"
    layers = [f"{values['layers']} layers"] if "layers" in values else []
    return ", ".join([f"hidden {values['hidden']}", *layers])
