"""Fitting a machine's constants to measured warm-ups: `bigtrk plan --calibrate`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean, median

import numpy as np
import torch

from bigtrk.console import follow
from bigtrk.cost.links import Link, Network
from bigtrk.cost.machine_constants import CPU, MachineConstants, default_machine
from bigtrk.disk.files import write_json
from bigtrk.errors import InputError
from bigtrk.machine import accelerator, machine, memory_bytes, open_cores, software
from bigtrk.parallel.process_group import process_group
from bigtrk.parallel.ranks import discover
from bigtrk.planning.calibration.fitting import (
    Sample,
    fit_rates,
    predicted_peak,
    relative_errors,
    without_corrections,
)
from bigtrk.planning.calibration.network import NO_LINKS, Links, measure_links
from bigtrk.planning.calibration.overlapping import fit_overlapping, transfer_rate
from bigtrk.planning.calibration.products import measure_products
from bigtrk.planning.calibration.warmup import Measured, measure_apart
from bigtrk.planning.calibration.warmup_cases import (
    AGAIN,
    CASES,
    CROWD,
    ENGINES,
    ENGINES_ON_ACCELERATOR,
    LONG,
    MEMORY,
    OFFLOADED,
    ON_ACCELERATOR,
    SHARED,
    SMALLEST,
    WAITED_FOR,
    Case,
)

# More ranks at once than this are not measured: each takes the memory of a process.
_MOST_TOGETHER = 4
_ROUNDS = 2


def calibrate_launched(path: Path) -> MachineConstants | None:
    """Measures the links of the ranks that a launcher started, if it did, and on the first of them
    the machine, as `calibrate`; returns None on the others.
    """
    ranks = discover()
    if ranks.world_size == 1:
        return calibrate(path)
    with process_group(ranks):
        links = measure_links(ranks)
    return calibrate(path, links) if ranks.is_first else None


def calibrate(path: Path, links: Links = NO_LINKS) -> MachineConstants:
    """Measures this machine, fits its constants and writes them to `path`.

    links: those between ranks that a launcher started; without one within this host, ranks that are
    started here measure it.

    Raises:
        InputError: a warm-up failed.
    """
    fitted = _on_accelerator(links) if torch.cuda.is_available() else _on_cpu(links)
    facts = {"machine": machine(), "software": software()}
    fitted = fitted.model_copy(
        update={
            "name": f"fitted on {machine()['host']}, {datetime.now(UTC):%Y-%m-%d}",
            "accelerator": machine()["accelerator"],
            "exceeded": {},
            "fit": {**fitted.fit, **facts},
        }
    )
    write_json(path, fitted.model_dump(mode="json"))
    return fitted


def _on_cpu(links: Links) -> MachineConstants:
    """Measures one rank alone, ranks that share the cores, and more of them than cores."""
    cores = open_cores()
    several = max(2, min(cores, _MOST_TOGETHER))
    constants = measure_memory(CPU.model_copy(update=measure_products()))
    cases = {ranks: [*CASES, *those_that_fit(LONG, ranks, constants)] for ranks in (1, several)}
    found, engines = measure_in_turns(cases, "warm-ups"), _engines(dict.fromkeys(cases, ENGINES))
    constants = _with_network(constants, links, found[several].link)
    steadiness = {"repeated": repeated(found.values())}
    constants = constants.model_copy(update={"ranks_together": several, **steadiness})
    samples = {ranks: [*found[ranks].samples, *engines.get(ranks, [])] for ranks in cases}
    constants = fit(samples[1], samples[several], constants)
    return constants.model_copy(update=_sharing(several, crowded=several >= cores))


def measure_in_turns(
    cases: Mapping[int, Sequence[Case]], label: str, rounds: int = _ROUNDS
) -> dict[int, Measured]:
    """Measures the cases of each number of ranks, in rounds in which these take turns, so that all
    meet a host that becomes faster or slower: measured one after the other, two ranks were then
    predicted to take up to 1.3 times as long as they did.
    """
    turns = [*cases] * rounds
    found = [measure_apart(cases[ranks], ranks) for ranks in follow(turns, len(turns), label)]
    return {ranks: _mean(found[i :: len(cases)]) for i, ranks in enumerate(cases)}


def _mean(rounds: Sequence[Measured]) -> Measured:
    """Returns the mean seconds of each case in all rounds, and its largest peak."""
    samples = [
        replace(
            alike[0],
            seconds=mean(one.seconds for one in alike),
            peak_bytes=max(one.peak_bytes for one in alike),
        )
        for alike in zip(*(found.samples for found in rounds), strict=True)
    ]
    pairs = zip(rounds[-1].samples, rounds[0].samples, strict=True)
    again = tuple(last.seconds / first.seconds for last, first in pairs)
    return Measured(samples, rounds[-1].link, again)


def repeated(found: Iterable[Measured]) -> float:
    """Returns by what fraction one in ten steps, or more, took longer or shorter in another round:
    no prediction is nearer to what a step will take.
    """
    apart = np.abs([ratio - 1 for measured in found for ratio in measured.again])
    return float(np.quantile(apart, 0.9))


def those_that_fit(cases: Sequence[Case], ranks: int, constants: MachineConstants) -> list[Case]:
    """Returns the cases that so many ranks train at once in half of this host's memory."""
    most = memory_bytes() / 2 / ranks
    return [case for case in cases if predicted_peak(case, constants) < most]


def _on_accelerator(links: Links) -> MachineConstants:
    """Measures one rank; the others have accelerators of their own. Steps are measured once."""
    assumed = default_machine(accelerator())
    base = _with_network(measure_memory(assumed, [SMALLEST]), links, None)
    turns = follow([ON_ACCELERATOR, AGAIN], 2, "warm-ups")
    samples, again = (measure_apart(cases).samples for cases in turns)
    engines = _engines({1: ENGINES_ON_ACCELERATOR}, rounds=1)
    first = {sample.case: sample.seconds for sample in samples}
    ratios = tuple(sample.seconds / first[sample.case] for sample in again)
    steadiness = {"repeated": repeated([Measured(again, None, ratios)])}
    [offloaded] = [sample for sample in samples if sample.case == OFFLOADED]
    transfer = {"transfer": transfer_rate(offloaded, base)}
    base = base.model_copy(update={**steadiness, **transfer})
    return fit([*samples, *engines.get(1, [])], [], base)


def _engines(cases: Mapping[int, Sequence[Case]], rounds: int = _ROUNDS) -> dict[int, list[Sample]]:
    """Measures steps of engines on numbers of ranks; none where an engine does not run."""
    try:
        found = measure_in_turns(cases, "engines", rounds)
    except InputError:
        return {}
    return {ranks: measured.samples for ranks, measured in found.items()}


def fit(
    alone: Sequence[Sample], together: Sequence[Sample], start: MachineConstants
) -> MachineConstants:
    """Fits the rates of one rank and of ranks together (those of one, if none were measured); other
    constants are `start`'s.

    `fit` of the result has the samples and the relative errors of the seconds predicted for them,
    with corrections and by what is counted alone.
    """
    rates_of = fit_rates if start.shared else fit_overlapping
    rates = rates_of(alone, start)
    shared = rates_of(together, start) if together else rates
    fitted = start.model_copy(update={"alone": rates, "together": shared})
    samples = [*alone, *together]
    facts = {
        "relative_errors": {
            "seconds": relative_errors(samples, fitted),
            "seconds_counted": relative_errors(samples, without_corrections(fitted)),
            **start.fit.get("relative_errors", {}),
        },
        "samples": [asdict(sample) for sample in samples],
    }
    return fitted.model_copy(update={"fit": facts})


def _with_network(base: MachineConstants, links: Links, own: Link | None) -> MachineConstants:
    """Returns the constants with the links that were measured, by a launcher's ranks or here."""
    within = links.within or own or base.network.within
    between = links.between or base.network.between
    return base.model_copy(update={"network": Network(within=within, between=between)})


def measure_memory(base: MachineConstants, cases: Sequence[Case] = MEMORY) -> MachineConstants:
    """Returns the constants with the bytes of a process of this machine and, on a CPU, of its
    engines' modules.
    """
    samples = [measure_apart([case]).samples[0] for case in cases]
    bare = base.model_copy(update={"private_bytes": 0})
    beyond = [sample.peak_bytes - predicted_peak(sample.case, bare) for sample in samples]
    process = max(0, int(median(beyond)))
    modules = _modules_bytes(samples[0]) if base.shared else {}
    fitted = base.model_copy(update={"private_bytes": process, **modules})
    errors = [predicted_peak(s.case, fitted) / s.peak_bytes - 1 for s in samples]
    return fitted.model_copy(update={"fit": {"relative_errors": {"memory": errors}}})


def _modules_bytes(alone: Sample) -> dict[str, int]:
    """Measures what the modules of engines add to a process; nothing where they do not run."""
    try:
        plain, zero, fsdp2 = (
            measure_apart([replace(SMALLEST, engine=engine)]).samples[0].peak_bytes
            for engine in ("zero0", "zero1", "fsdp2")
        )
    except InputError:
        return {}
    return {
        "fsdp2_bytes": max(0, fsdp2 - alone.peak_bytes),
        "deepspeed_bytes": max(0, plain - alone.peak_bytes),
        "zero_bytes": max(0, zero - plain),
    }


def _sharing(several: int, crowded: bool) -> dict[str, float]:
    """Measures what a rank gains where the others wait for it and, if they are `crowded`, what all
    lose where twice as many take turns on the cores, and what more where they exchange rows.

    All are set against the same steps of `several` ranks, in turns. Against what the rates told
    crowding was 1.01 on a host that had become 4 % faster since these were measured; by steps side
    by side it was 1.06 in the next calibration, and 1.13 by hand in 16 cases.
    """
    in_sectors = [replace(case, parts=2 * several) for case in SHARED]
    cases = {several: [*CROWD, *WAITED_FOR]}
    if crowded:
        cases = {several: [*cases[several], *in_sectors], 2 * several: [*CROWD, *in_sectors]}
    found = measure_in_turns(cases, "shared cores")
    number, samples = len(CROWD), found[several].samples
    alike, waited_for = samples[:number], samples[number : 2 * number]
    shared = {"waited_for": min(1.0, _ratio(waited_for, alike))}
    if crowded:
        more = found[2 * several].samples
        shared["crowding"] = _ratio(more[:number], alike) / 2
        # As many sectors, so as much to compute, but more exchange than before.
        longer = _ratio(more[number:], samples[2 * number :])
        shared["crowded_exchange"] = max(1.0, longer / shared["crowding"])
    return shared


def _ratio(samples: Sequence[Sample], others: Sequence[Sample]) -> float:
    """Returns the median ratio of the seconds of some cases to those of others, in their order."""
    pairs = zip(samples, others, strict=True)
    return median(sample.seconds / other.seconds for sample, other in pairs)
