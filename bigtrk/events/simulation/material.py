"""The detector's material: how thick it is, how it deflects particles and slows them down.

Formulas are those of the PDG review "Passage of particles through matter" (R. L. Workman et al.,
Prog. Theor. Exp. Phys. 2022, 083C01, chapter 34), for pions, with all material taken for silicon.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

PION_MASS = 0.13957039  # GeV
# Support, cooling and cables of a layer, by volume_id, as silicon of so many mm: what the generic
# detector of ACTS has, of which TrackML's is one (Examples/Detectors/GenericDetector). Its beam
# pipe (0.2 % of a radiation length) and pixel support tube (0.5 %) are left out.
STRUCTURE = {7: 1.5, 8: 1.5, 9: 1.5, 12: 2.5, 13: 2.0, 14: 2.5, 16: 3.5, 17: 2.5, 18: 3.5}
STRUCTURE_PER_SENSOR = (
    10.0  # of other volumes: the ratio to the sensor's thickness in most of these
)
RADIATION_LENGTH = 93.7  # mm, of silicon
RADIATION_MASS = 21.82  # g/cm^2, the same
# Silicon's Z/A (mol/g) and mean excitation energy, the electron's mass, and 4 pi N_A r_e^2 m_e c^2.
Z_OVER_A, EXCITATION, ELECTRON_MASS, BETHE = (
    0.49848,
    173e-9,
    0.51099895e-3,
    0.307075e-3,
)  # GeV, cm^2


def layer_thickness(
    volume_id: int, sensor: float, structure: Mapping[int, float] = STRUCTURE
) -> float:
    """Returns the radiation lengths of a layer met at right angles; sensor: its thickness in mm."""
    return (sensor + structure.get(volume_id, STRUCTURE_PER_SENSOR * sensor)) / RADIATION_LENGTH


def scattering_angle(momentum: Float64, thickness: Float64) -> Float64:
    """Returns the rms angle in a plane by which material deflects pions, [M] (rad).

    momentum [M] (GeV), thickness [M] (radiation lengths, more than 0). Highland's formula in the
    form of Lynch and Dahl, equation 34.16.
    """
    beta = momentum / np.hypot(momentum, PION_MASS)
    logarithm = np.log(thickness / beta**2)
    angle: Float64 = 0.0136 / (beta * momentum) * np.sqrt(thickness) * (1 + 0.038 * logarithm)
    return angle


def energy_loss(momentum: Float64, thickness: Float64) -> Float64:
    """Returns the mean energy that pions lose by ionisation, [M] (GeV).

    momentum [M] (GeV), thickness [M] (radiation lengths). Bethe's equation, 34.5, at the momentum
    before the material, without the density effect, which would take off 4 % at 1 GeV.
    """
    energy = np.hypot(momentum, PION_MASS)
    beta_gamma2 = (momentum / PION_MASS) ** 2
    beta2 = (momentum / energy) ** 2
    ratio = ELECTRON_MASS / PION_MASS
    most = 2 * ELECTRON_MASS * beta_gamma2 / (1 + 2 * energy / PION_MASS * ratio + ratio**2)
    logarithm = np.log(2 * ELECTRON_MASS * beta_gamma2 * most / EXCITATION**2) / 2
    loss: Float64 = BETHE * Z_OVER_A / beta2 * (logarithm - beta2)
    return loss * thickness * RADIATION_MASS


def slowed(momentum: Float64, thickness: Float64) -> Float64:
    """Returns the momentum of pions after the mean energy loss, [M] (GeV); NaN where they stop."""
    energy = np.hypot(momentum, PION_MASS) - energy_loss(momentum, thickness)
    return np.sqrt(np.where(energy > PION_MASS, energy**2 - PION_MASS**2, np.nan))
