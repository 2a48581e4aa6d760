"""The tracker of the Open Data Detector, in which the events of ColliderML were simulated.

Radii, lengths, disc positions and numbers of modules are those of its description (DOI
10.5281/zenodo.4674401, xml/OpenData{Pixels,ShortStrips,LongStrips}.xml), cells those that
ColliderML digitises with (OpenDataDetector/ColliderML-Production, odd-full-geo-digi-config.json),
numbers of volumes those of ACTS.

Simplified, as all that is simulated here: modules are parts of cylinders and discs, without tilt
and stereo angle, the rings of a disc lie in one plane and have as many modules as each other, and
the space between the modules of a row is theirs.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from bigtrk.events.geometry import Volume, barrel, end_caps, layers_of

# Pixels, short and long strips, each the end cap at negative z, the barrel, the other end cap.
VOLUMES: Final = (16, 17, 18, 23, 24, 25, 28, 29, 30)
# TrackML has volumes 16, 17 and 18, too.
_ITS_OWN = VOLUMES[3:]

# Of ColliderML's events, the same repository's configs_production (mm); ten times TrackML's.
ODD_BEAM_SIGMA_Z: Final = 55.5
# Supports, cooling, boards and cables per sensor, as silicon of so many mm: summed over the shapes
# of the description, spread over the layer. The beam pipe and the pixels' support tube are left
# out, as for TrackML's detector.
ODD_STRUCTURE: Final = {
    **dict.fromkeys((16, 18), 1.0),
    17: 1.1,
    **dict.fromkeys((23, 25), 0.8),
    24: 1.6,
    **dict.fromkeys((28, 30), 0.9),
    29: 1.2,
}

_PIXEL_DISCS = (620.0, 720.0, 840.0, 980.0, 1120.0, 1320.0, 1520.0)
_SHORT_DISCS = (1300.0, 1550.0, 1850.0, 2200.0, 2550.0, 2950.0)
_LONG_DISCS = (1300.0, 1600.0, 1900.0, 2250.0, 2600.0, 3000.0)
# Thickness, pitch along phi, and along the row; mm.
_PIXELS = (0.125, 0.05, 0.05)
_SHORT_STRIPS = (0.2, 0.08, 0.4)
# A barrel's modules are tilted by 0.12 (pixels) and 0.15 rad: so much staggered, neighbours are as
# far apart where they overlap. Long strips are double-sided. Two of them make a module of a barrel,
# three one of a disc.
_BARRELS = (
    barrel(17, (34, 70, 116, 172), 507.25, (16, 32, 52, 78), 14, 0.8, *_PIXELS),
    barrel(24, (260, 360, 500, 660), 1139.25, (40, 56, 78, 102), 21, 3.0, *_SHORT_STRIPS),
    barrel(29, (820, 1020), 1139.25, (60, 80), 21, 6.0, 0.25, 0.125, 54.25, (-3.3, 3.3)),
)
# 24 and 36 modules make the rings of a pixel disc.
_END_CAPS = (
    *end_caps(16, Volume(18, False, _PIXEL_DISCS, 42, 178, (30,) * 7, 2, 0.6, *_PIXELS)),
    *end_caps(23, Volume(25, False, _SHORT_DISCS, 240, 700, (42,) * 6, 3, 2.5, *_SHORT_STRIPS)),
    *end_caps(
        28,
        Volume(
            30, False, _LONG_DISCS, 742, 1068, (48,) * 6, 2, 8.0, 0.25, 0.125, 163 / 3, (-2.5, 2.5)
        ),
    ),
)
ODD_LAYERS = layers_of((*_BARRELS, *_END_CAPS), ODD_STRUCTURE)


def is_open_data_detector(volume_id: NDArray[np.int64]) -> bool:
    """Says whether hits or modules in these volumes, [N], are the Open Data Detector's: all in
    volumes of it, and some in one that TrackML's detector lacks.
    """
    volumes = np.unique(volume_id)
    known = np.isin(volumes, VOLUMES).all()
    return bool(known and np.isin(volumes, _ITS_OWN).any())
