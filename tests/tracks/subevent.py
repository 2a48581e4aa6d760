"""The real sub-event and its golden submissions, read without the package's own readers."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigtrk.tracks.matching import Particles

SUBMISSIONS = (
    "truth",
    "alternate_split",
    "merged_pairs",
    "noisy_20pct",
    "random_500",
    "one_track",
    "singletons",
)


class Subevent(NamedTuple):
    hit_id: NDArray[np.int64]
    particle_id: NDArray[np.int64]
    weight: NDArray[np.float64]
    particles: Particles
    submissions: dict[str, NDArray[np.int64]]


def read_subevent(testdata: Path) -> Subevent:
    event = testdata / "data/trackml_subevent"
    truth = pd.read_csv(event / "event000000001-truth.csv.gz")
    particles = pd.read_csv(event / "event000000001-particles.csv.gz")
    tracks = {}
    for name in SUBMISSIONS:
        table = pd.read_csv(testdata / f"golden/trackml_score/{name}.csv.gz")
        tracks[name] = truth[["hit_id"]].merge(table, on="hit_id", validate="1:1")["track_id"]
    return Subevent(
        truth["hit_id"].to_numpy(),
        truth["particle_id"].to_numpy(),
        truth["weight"].to_numpy(),
        Particles(
            particles["particle_id"].to_numpy(),
            np.hypot(particles["px"], particles["py"]).to_numpy(),
            particles["nhits"].to_numpy(),
        ),
        {name: column.to_numpy() for name, column in tracks.items()},
    )
