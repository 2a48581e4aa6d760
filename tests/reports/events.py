"""Events to display, made without physics: straight tracks from the origin."""

import numpy as np

from bigtrk.reports.display import EventPicture

LENGTH = 10  # hits of a particle


def straight_event(n_particles: int, seed: int = 0, parts: int = 2) -> EventPicture:
    """Makes particles of LENGTH hits, each joined by its edges and to the next one by a false edge;
    each is a track, every tenth is lost, and every twentieth track is a fake.
    """
    draw = np.random.default_rng(seed)
    phi, z = draw.uniform(-np.pi, np.pi, n_particles), draw.normal(0, 2, n_particles)
    r = np.linspace(32, 1000, LENGTH)
    position = np.stack(
        [np.outer(np.cos(phi), r), np.outer(np.sin(phi), r), np.outer(z, r)], axis=2
    ).reshape(-1, 3)
    hits = np.arange(len(position)).reshape(n_particles, LENGTH)
    true = np.stack([hits[:, :-1].ravel(), hits[:, 1:].ravel()])
    false = np.stack([hits[:-1, 4], hits[1:, 5]])
    edge_index = np.concatenate([true, false], axis=1)
    good, bad = draw.uniform(0.6, 1, true.shape[1]), draw.uniform(0, 0.6, false.shape[1])
    ids = np.arange(n_particles)
    return EventPicture(
        position=position,
        edge_index=edge_index,
        scores=np.concatenate([good, bad]),
        track_id=np.repeat(ids, LENGTH),
        sector=(position[:, 0] > 0).astype(np.int64) % parts,
        particle_id=np.repeat(ids + 1, LENGTH),
        found=ids[ids % 10 > 0] + 1,
        lost=ids[ids % 10 == 0] + 1,
        fake=ids[ids % 20 == 0],
    )
