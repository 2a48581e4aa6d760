"""Tracks of the pixel volumes alone, judged as HEPTv2's table does (and acorn's line in it).

Only hits of volumes 7 to 9 are looked at; particles above 0.9 GeV, with |eta| below 4 and three
such hits are to be found, by double majority: two-way matching.
"""

from pathlib import Path

import numpy as np

from bigtrk.events.event import Columns, Event
from bigtrk.events.reader import find_events, read_event
from bigtrk.events.truth import hit_particles, particle_kinematics
from bigtrk.events.writer import write_event
from bigtrk.tracks.files import HitTracks, event_number, open_tracks
from bigtrk.tracks.matching import Matching, Particles, TrackMetrics, match_tracks, pooled

VOLUMES = (7, 8, 9)
ETA_MAX = 4.0
MATCHING = Matching("two_way", "strict", pt_min=0.9, min_track_length=3, hits_min=3)


def write_pixel_events(events: Path, out: Path) -> None:
    """Writes the events of a folder to `out` without the hits of other volumes; those that are
    there stay.
    """
    there = {path.name for path in out.glob("*-hits.csv.gz")}
    for name in find_events(events):
        if f"{name}-hits.csv.gz" not in there:
            write_event(pixel_event(read_event(events, name)), out)


def pixel_event(event: Event) -> Event:
    """Takes the hits of the pixel volumes, their cells and their truth."""
    hits = _rows(event.hits, np.isin(event.hits["volume_id"], VOLUMES))

    def of_hits(table: Columns | None) -> Columns | None:
        return table and _rows(table, np.isin(table["hit_id"], hits["hit_id"]))

    # The number of a particle's hits is another now; readers count them.
    particles = event.particles and {
        name: column for name, column in event.particles.items() if name != "nhits"
    }
    return Event(event.name, hits, of_hits(event.cells), particles, of_hits(event.truth))


def _rows(table: Columns, chosen: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Columns:
    return {name: column[chosen] for name, column in table.items()}


def judge_pixels(tracks: Path, events: Path) -> dict[str, float | None]:
    """Judges the pixel hits of tracks by the truth of `events`, whole ones or pixel events; all
    together: efficiency and fakes.
    """
    source = open_tracks(tracks)
    total = pooled(
        [
            metrics(read_event(events, name), source.read(event_number(name)))
            for name in find_events(events)
        ]
    )
    return {"efficiency": total.efficiency, "fake": total.fake_rate}


def metrics(event: Event, tracks: HitTracks) -> TrackMetrics:
    """Matches the pixel hits of one event's tracks, where these are three or more. A track of a
    particle that need not be found is no fake.
    """
    track_of_hit = tracks.of_hits(event.hits["hit_id"].astype(np.int64))
    track_id = track_of_hit[np.isin(event.hits["volume_id"], VOLUMES)]
    event = pixel_event(event)
    table = particle_kinematics(event)
    central = np.abs(table["eta"].astype(np.float64)) < ETA_MAX
    particles = Particles(
        table["particle_id"].astype(np.int64)[central],
        table["pt"].astype(np.float64)[central],
        table["nhits"].astype(np.int64)[central],
    )
    return match_tracks(track_id, hit_particles(event), particles, MATCHING).metrics
