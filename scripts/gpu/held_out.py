"""Measures how well a GPU's calibration tells steps that were left out of it.

    python scripts/gpu/held_out.py CALIBRATION [--output FILE] [--publish]

CALIBRATION is a file that `bigtrk plan --calibrate` wrote on a machine with a GPU, of which this
needs none. It leaves out each fifth of the steps in turn, fits to the others and predicts it.
Steps that alone tell what engines take, and how fast edges travel to the host, stay in.

The last line is one JSON object: the median and the 90th percentile of the absolute relative
errors, and `repeated` of the calibration, by which one in ten steps differed when it was measured
again.
"""

import argparse
import random
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from bigtrk.console import exit_on_bad_input
from bigtrk.cost.machine_constants import MachineConstants, default_machine
from bigtrk.errors import InputError
from bigtrk.planning.calibration.fitting import Sample, predicted_seconds
from bigtrk.planning.calibration.overlapping import fit_overlapping
from bigtrk.planning.calibration.warmup_cases import ENGINES_ON_ACCELERATOR, OFFLOADED, Case
from bigtrk.training.costs import load_constants
from scripts.results import Results, add_options

_FOLDS = 5


def samples_of(machine: MachineConstants) -> list[Sample]:
    """Returns the samples of a calibration."""
    return [
        Sample(**{**sample, "case": Case(**sample["case"])}) for sample in machine.fit["samples"]
    ]


def predictions(samples: Sequence[Sample], machine: MachineConstants) -> dict[int, float]:
    """Predicts the seconds of each sample that may be left out, by its place, from the others."""
    assumed = default_machine(machine.accelerator)
    kept = {*ENGINES_ON_ACCELERATOR, OFFLOADED}
    places = [i for i, sample in enumerate(samples) if sample.case not in kept]
    random.Random(0).shuffle(places)
    found: dict[int, float] = {}
    for fold in range(_FOLDS):
        left_out = places[fold::_FOLDS]
        others = [sample for i, sample in enumerate(samples) if i not in left_out]
        rates = fit_overlapping(others, assumed)
        fitted = machine.model_copy(update={"alone": rates, "together": rates})
        found |= {i: predicted_seconds(samples[i], fitted) for i in left_out}
    return found


def measure(arguments: argparse.Namespace) -> None:
    results = Results("gpu_steps", arguments)
    machine = load_constants(arguments.calibration)
    if machine.shared or not machine.calibrated:
        raise InputError(f"{arguments.calibration}: is no calibration of a machine with a GPU")
    samples = samples_of(machine)
    found = predictions(samples, machine)
    errors = np.abs([predicted / samples[i].seconds - 1 for i, predicted in found.items()])
    summary = {
        "steps": len(errors),
        "time_median": float(np.median(errors)),
        "time_p90": float(np.quantile(errors, 0.9)),
        "repeated": machine.repeated,
    }
    rows = [{**asdict(one), "held_out_seconds": found.get(i)} for i, one in enumerate(samples)]
    rates = fit_overlapping(samples, default_machine(machine.accelerator))
    facts = {name: machine.fit[name] for name in ("machine", "software")}
    constants = machine.model_copy(update={"alone": rates, "together": rates, "fit": {}})
    results.write(
        summary, measured_on=facts, constants=constants.model_dump(mode="json"), samples=rows
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("calibration", type=Path)
    add_options(parser)
    arguments = parser.parse_args()
    exit_on_bad_input("held_out.py", lambda: measure(arguments))


if __name__ == "__main__":
    main()
