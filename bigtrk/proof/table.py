"""The table of `bigtrk check-model`."""

from rich.console import Console

from bigtrk.proof.prove import TOLERANCE
from bigtrk.proof.result import Proof
from bigtrk.reports.document import Table
from bigtrk.reports.terminal import at_width, show_table

_NOTE = (
    "Largest differences between the whole graph and its sectors, relative to the largest value; "
    f"exact: at most {max(TOLERANCE.values()):.0e} where the model computes in float32 whatever it "
    f"is given, else {min(TOLERANCE.values()):.0e}."
)


def show_proof(proof: Proof, console: Console) -> None:
    """Prints each graph and number of sectors with its differences, and what follows from them."""
    out = at_width(console)
    rows = tuple(
        (trial.graph, str(trial.sectors), f"{trial.rows:.1e}", f"{trial.gradients:.1e}")
        for trial in proof.trials
    )
    columns = ("graph", "sectors", "results", "gradients")
    show_table(Table(f"Proof of {proof.model}", columns, rows, (_NOTE,)), out)
    out.print(_verdict(proof), highlight=False)


def _verdict(proof: Proof) -> str:
    if proof.first_difference is not None:
        return f"not exact: {proof.first_difference}"
    widths = ", ".join(map(str, proof.exchanges or ())) or "none"
    worst = f"{proof.worst:.1e} at most{_allowed(proof)}"
    return f"exact: differs by {worst}; widths of its exchanges: {widths}"


def _allowed(proof: Proof) -> str:
    """Says that more was allowed than rounding in float64 makes, where that was needed."""
    tight, loose = min(TOLERANCE.values()), max(TOLERANCE.values())
    if proof.worst is None or proof.worst <= tight:
        return ""
    return f" (allowed {loose:.0e} and not {tight:.0e}, since it computes in float32)"
