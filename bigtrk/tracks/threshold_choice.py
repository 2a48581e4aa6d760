"""The threshold of track quality, chosen by the rate of fakes that it leaves.

Shapes: N hits, C candidates.
"""

from collections.abc import Mapping, Sequence

from bigtrk.tracks.builders.merge_tree import take_tracks
from bigtrk.tracks.builders.trees.known_event import MIN_HITS, KnownEvent
from bigtrk.tracks.builders.trees.quality import Quality
from bigtrk.tracks.builders.trees.quality_training import train_quality
from bigtrk.tracks.matching import Matching, Particles, TrackMetrics, match_tracks, pooled

UNCHOSEN = 0.5  # of two errors, a fake and a particle lost, neither is the worse
THRESHOLDS = tuple(step / 40 for step in range(1, 40))
PT_MIN = 1.0  # GeV
# A track and a particle match as in the first lines of `bigtrk score`.
MATCHING = Matching("ATLAS", "strict", pt_min=PT_MIN, min_track_length=MIN_HITS, hits_min=MIN_HITS)

Scan = dict[float, TrackMetrics]  # of the tracks at each threshold


def scan_thresholds(event: KnownEvent, particles: Particles, quality: Quality) -> Scan:
    """Judges the tracks of an event at each of THRESHOLDS; its tree is grown once for all."""
    probability = quality(event.candidates.features)
    scan = {}
    for threshold in THRESHOLDS:
        gain = probability - threshold
        track_id = take_tracks(event.tree, event.candidates, gain, MIN_HITS)
        scan[threshold] = match_tracks(track_id, event.particle_id, particles, MATCHING).metrics
    return scan


def cross_fitted_scan(events: Sequence[tuple[KnownEvent, Particles]], seed: int) -> Scan:
    """Adds up the scans of events, each by a quality that was taught on the others: one that was
    taught on the event itself would know its tracks, and leave fewer fakes than elsewhere.

    Raises:
        InputError: an event's others teach nothing (`train_quality`), as none does of one alone.
    """
    scans = []
    for left_out, (event, particles) in enumerate(events):
        others = [known for row, (known, _) in enumerate(events) if row != left_out]
        scans.append(scan_thresholds(event, particles, train_quality(others, seed)))
    return {threshold: pooled([scan[threshold] for scan in scans]) for threshold in THRESHOLDS}


def choose_threshold(scan: Mapping[float, TrackMetrics], fakes: float) -> float:
    """Returns the threshold that finds most particles, of those at which at most a share `fakes` of
    the tracks match none; of equal ones the highest.

    Where none leaves so few, that of the lowest rate of fakes; UNCHOSEN where there are no tracks.
    """
    made = {threshold: found for threshold, found in scan.items() if found.n_tracks}
    n_fakes = {threshold: found.n_tracks - found.n_matched for threshold, found in made.items()}
    within = [at for at, found in made.items() if n_fakes[at] <= fakes * found.n_tracks]
    if within:
        return max(within, key=lambda at: (made[at].n_reconstructed, at))
    return min(made, key=lambda at: (n_fakes[at] / made[at].n_tracks, at), default=UNCHOSEN)
