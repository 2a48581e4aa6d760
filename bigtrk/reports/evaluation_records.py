"""`evaluation.json`, as `bigtrk evaluate` writes it; what it does not know is None."""

from pydantic import Field

from bigtrk.reports.records import EdgeMetrics, Record


class Binned(Record):
    """Counts of a ratio, `part` of `whole`, in B bins between B + 1 `edges`; pairs of part and
    whole for values `outside` the bins and `unknown` ones.
    """

    edges: tuple[float, ...]
    part: tuple[int, ...]
    whole: tuple[int, ...]
    outside: tuple[int, int] = (0, 0)
    unknown: tuple[int, int] = (0, 0)


class EdgeBins(Record):
    """Edge efficiency by the particle's pT (GeV) and eta, purity by the mean eta of the hits."""

    efficiency_by_pt: Binned | None = None
    efficiency_by_eta: Binned | None = None
    purity_by_eta: Binned | None = None


class TrackBins(Record):
    """Particles found, those of them found by more than one track, and fake tracks."""

    efficiency_by_pt: Binned | None = None
    efficiency_by_eta: Binned | None = None
    duplicates_by_pt: Binned | None = None
    duplicates_by_eta: Binned | None = None
    fakes_by_eta: Binned | None = None


class Matching(Record):
    """Track matching in one style ("ATLAS", "one_way", "two_way") and mode ("acorn", "strict")."""

    style: str
    mode: str
    efficiency: float | None = None
    fake_rate: float | None = None
    duplicate_rate: float | None = None
    n_particles: int | None = None
    n_reconstructed: int | None = None
    n_tracks: int | None = None
    n_matched: int | None = None
    bins: TrackBins | None = None


class Judged(Record):
    """Tracks from one set of scores."""

    trackml_score: float | None = None
    matching: tuple[Matching, ...] = ()

    def bins(self, mode: str) -> TrackBins:
        """Those of the one style that has bins; empty where there are none."""
        known = (match.bins for match in self.matching if match.mode == mode and match.bins)
        return next(known, TrackBins())


class TrackRecord(Judged):
    """Tracks made from edges with a score above `score_cut`; `pt_min` in GeV.

    perfect: tracks of perfect scores. losses: reconstructable particles by what became of them,
    and loss_bins the same by pT and eta, as "merged_by_pt" (`tracks/losses.py` defines them).
    """

    score_cut: float | None = None
    min_hits: int | None = None
    pt_min: float | None = None
    matching_fraction: float | None = None
    perfect: Judged | None = None
    losses: dict[str, int] = Field(default_factory=dict)
    loss_bins: dict[str, Binned] = Field(default_factory=dict)


class EvaluationRecord(Record):
    """`evaluation.json`."""

    data: str | None = None
    events: int | None = None
    events_trained_on: int = 0
    events_left_out: int = 0
    edges: int | None = None
    edge_metrics: EdgeMetrics = EdgeMetrics()
    edge_bins: EdgeBins = EdgeBins()
    tracks: TrackRecord | None = None
