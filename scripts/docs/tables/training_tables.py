"""Tables of the learning: mini-batches and physics."""

from typing import Any

from scripts.docs.table import Table, percent

MODELS = {
    "interaction": "Interaction GNN",
    "attention": "attention network",
    "mlp": "MLP without message passing",
    "GAT": "two GATv2Conv",
    "GCN": "two GCNConv",
    "SAGE": "two SAGEConv",
}
LOSSES = {
    "found": "found",
    "no_true_edges": "graph: none of its true edges is there",
    "too_few_true_edges": "graph: too few of them",
    "true_edges_cut": "model: true edges cut",
    "merged": "model: merged by false edges",
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
    columns = ("", "mini-batches per second", "slowest round", "fastest", "edges of one")
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


def physics_full(found: Any) -> Table:
    """Lists edges and tracks on simulated events and a real one."""
    rows = []
    for name, one in found["evaluations"].items():
        edges = one["edge_metrics"]
        shown = [
            percent(edges["efficiency"], 1),
            percent(edges["purity"], 1),
            f"{edges['auc']:.4f}",
        ]
        for row in sorted(
            one["tracks"]["matching"], key=lambda row: str(row["mode"]), reverse=True
        ):
            if row["style"] == "ATLAS":
                rates = (row["efficiency"], row["fake_rate"], row["duplicate_rate"])
                tracks = [percent(rate, 1) for rate in rates]
                rows.append([_events(name, one), row["mode"], *shown, *tracks])
    columns = (
        "", "mode", "edge efficiency", "purity", "AUC", "track efficiency", "fakes", "duplicates",
    )  # fmt: skip
    return Table(columns, rows, texts=2)


def _events(name: str, evaluation: Any) -> str:
    if name == "real_graphs":
        return "event 1000"
    return f"simulated ({evaluation['events']} events)"


def _found(tracks: Any) -> float:
    """Returns the efficiency by ATLAS matching in strict mode."""
    rows = tracks["matching"]
    row = next(row for row in rows if (row["style"], row["mode"]) == ("ATLAS", "strict"))
    return float(row["efficiency"])


def physics_losses(found: Any) -> Table:
    """Lists what became of reconstructable particles."""
    evaluations = found["evaluations"]
    losses = [one["tracks"]["losses"] for one in evaluations.values()]
    totals = [sum(loss.values()) for loss in losses]
    rows = [
        [
            label,
            *(percent(loss[name] / total, 1) for loss, total in zip(losses, totals, strict=True)),
        ]
        for name, label in LOSSES.items()
    ]
    rows.append(["all", *(f"{total:,}" for total in totals)])
    perfect = [_found(one["tracks"]["perfect"]) for one in evaluations.values()]
    rows.append(["found with perfect scores", *(percent(found, 1) for found in perfect)])
    names = [_events(name, one) for name, one in evaluations.items()]
    return Table(("reconstructable particles", *names), rows)
