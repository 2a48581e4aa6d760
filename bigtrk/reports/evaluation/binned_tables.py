"""An evaluation's efficiencies, fakes and purity in bins of pT and eta, as tables."""

from collections.abc import Sequence

from bigtrk.records.evaluation import Binned, EvaluationRecord, Judged, TrackRecord
from bigtrk.reports.elements.binned import BINNED_RULE, bin_rows
from bigtrk.reports.elements.layout import Table

TRACKS_RULE = (
    "Tracks: ATLAS matching. perfect: found with perfect scores, strict mode. twice: of the found, "
    "those with more than one track, strict mode. fake: tracks of no particle, strict mode, by the "
    "mean eta of their hits."
)
EDGES_RULE = (
    "Edge eff.: by the particle of a target edge. Edge purity: by the mean eta of its hits."
)

Columns = Sequence[tuple[str, Binned | None]]


def binned_tables(name: str, record: EvaluationRecord) -> list[Table]:
    """Makes tables by pT and by eta, none without bins. `name` goes into their titles."""
    edges, tracks = record.edge_bins, record.tracks or TrackRecord()
    strict, acorn = tracks.bins("strict"), tracks.bins("acorn")
    perfect = (tracks.perfect or Judged()).bins("strict")
    by_pt = (
        ("eff. % strict", strict.efficiency_by_pt),
        ("eff. % acorn", acorn.efficiency_by_pt),
        ("eff. % perfect", perfect.efficiency_by_pt),
        ("twice %", strict.duplicates_by_pt),
        ("edge eff. %", edges.efficiency_by_pt),
    )
    by_eta = (
        ("eff. % strict", strict.efficiency_by_eta),
        ("eff. % acorn", acorn.efficiency_by_eta),
        ("eff. % perfect", perfect.efficiency_by_eta),
        ("fake %", strict.fakes_by_eta),
        ("edge eff. %", edges.efficiency_by_eta),
        ("edge purity %", edges.purity_by_eta),
    )
    whose = f" of {name}" if name else ""
    tables = [
        _table(f"Evaluation{whose} by pT", "pT, GeV", by_pt),
        _table(f"Evaluation{whose} by eta", "eta", by_eta),
    ]
    return [table for table in tables if table.rows]


def _table(title: str, axis: str, columns: Columns) -> Table:
    """Makes a row per bin that counts anything, a column per ratio that is known."""
    known = [(name, binned) for name, binned in columns if binned]
    if not known:
        return Table(title, (), ())
    rows = bin_rows([binned for _, binned in known])
    first = "particles" if "eff. % strict" in dict(known) else "target edges"
    names = tuple(name for name, _ in known)
    rules = (TRACKS_RULE, EDGES_RULE) if first == "particles" else (EDGES_RULE,)
    return Table(title, (axis, first, *names), rows, (*rules, BINNED_RULE))
