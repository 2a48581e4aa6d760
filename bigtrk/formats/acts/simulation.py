"""Simulates events in TrackML's detector by Fatras, ACTS's fast simulation; writes CSV tables."""

import gzip
import json
import tempfile
import zlib
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from bigtrk.console import follow
from bigtrk.disk.files import write_atomically
from bigtrk.errors import InputError, one_line, reason
from bigtrk.events.event import event_name
from bigtrk.formats.acts.software import (
    PITCHES,
    GenericDetector,
    claim,
    generic_detector,
    load_acts,
)

RECORD = "simulation.json"
TABLES = ("cells", "particles_simulated", "hits", "measurement-simhit-map", "measurements")
# Soft and hard particles of a vertex: share, least pT and largest pT (GeV).
SPECTRUM = ((5 / 6, 0.15, 1.0), (1 / 6, 1.0, 10.0))
ETA = 3.0
BEAM = (0.0125, 0.0125, 55.5)  # mm; standard deviations of vertices
PARTICLES_OF_VERTEX = 44
# Charge's resolution, as a share, and thickness of silicon (mm), of clusters.
CHARGE, THICKNESS = 0.01, 0.15
MOST = 10**9  # particles of an event; also the largest seed

Digitization = Literal["smearing", "clusters"]


@dataclass(frozen=True)
class FatrasOptions:
    """Options of a simulation: the number of charged particles per event, shared among vertices, or
    a HepMC3 file, whose events are simulated one after another.
    """

    particles: int
    seed: int
    digitization: Digitization = "smearing"
    hepmc3: Path | None = None


def simulate_with_acts(out: Path, events: range, options: FatrasOptions) -> None:
    """Simulates the numbered events and writes them to `out`, except those it has from the same
    simulation. The same options give the same events. InputError if ACTS is not installed or fails,
    or `out` holds something else.
    """
    acts = load_acts()
    for name, value in (("particles", options.particles), ("seed", options.seed)):
        if value > MOST:
            raise InputError(f"--{name} {value}: is too large for ACTS; give at most {MOST:,}")
    if options.hepmc3:
        _check_hepmc3(options.hepmc3)
    claim(out, RECORD, asdict(options))
    detector = generic_detector()
    for number in follow(events, len(events), "simulate"):
        name = event_name(number)
        if not (out / f"{name}-measurements.csv.gz").exists():
            with tempfile.TemporaryDirectory(dir=out, prefix=".fatras") as folder:
                _simulate(acts, detector, Path(folder), number, options)
                _take(Path(folder), out, name)


def _check_hepmc3(path: Path) -> None:
    """Raises InputError for a file at which ACTS's reader would end the process."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; name a HepMC3 file")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as content:
            start = content.read(64)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read ({reason(error)}); write it again") from None
    is_packed = path.suffix in (".bz2", ".lzma", ".root", ".xz", ".zst")
    if not is_packed and not start.lstrip().startswith(b"HepMC::"):
        raise InputError(f"{path}: does not begin with 'HepMC::'; convert it to HepMC3 text")


def _simulate(
    acts: Any, detector: GenericDetector, folder: Path, number: int, options: FatrasOptions
) -> None:
    """Simulates event `number` and writes ACTS's tables of it to `folder`."""
    from acts.examples.simulation import addDigitization, addFatras

    examples, quiet = acts.examples, acts.logging.Level.ERROR
    sequencer = examples.Sequencer(
        skip=number,
        events=1,
        numThreads=1,
        logLevel=quiet,
        outputDir=str(folder),
        trackFpes=False,
    )
    random = examples.RandomNumbers(seed=options.seed)
    _add_particles(acts, sequencer, random, options)
    digitization = folder / "digitization.json"
    digitization.write_text(json.dumps(_digitization(detector, options.digitization)))
    addFatras(sequencer, detector.geometry, detector.field, rnd=random, outputDirCsv=folder)
    addDigitization(
        sequencer,
        detector.geometry,
        detector.field,
        digiConfigFile=digitization,
        rnd=random,
        outputDirCsv=folder,
    )
    try:
        sequencer.run()
    except RuntimeError as error:
        check = f"check that {options.hepmc3} is undamaged and holds this event"
        remedy = check if options.hepmc3 else "give another --seed or fewer --particles"
        said = f"event {number}: ACTS fails to simulate it ({one_line(str(error))})"
        raise InputError(f"{said}; {remedy}") from error


def _add_particles(acts: Any, sequencer: Any, random: Any, options: FatrasOptions) -> None:
    """Adds the particles to simulate to the sequencer: those of a HepMC3 file's events, or pions,
    from vertices along the beam.
    """
    from acts.examples.hepmc3 import HepMC3InputConverter, HepMC3Reader

    examples, level = acts.examples, acts.logging.Level.ERROR
    vertex = examples.GaussianVertexGenerator(
        mean=acts.Vector4(0, 0, 0, 0), stddev=acts.Vector4(*BEAM, 0)
    )
    made = {"level": level, "outputEvent": "generated", "randomNumbers": random}
    if options.hepmc3:
        reader = HepMC3Reader(
            inputPath=str(options.hepmc3), checkEventNumber=False, vertexGenerator=vertex, **made
        )
    else:
        vertices = max(1, round(options.particles / PARTICLES_OF_VERTEX))
        generators = [
            examples.EventGenerator.Generator(
                multiplicity=examples.FixedMultiplicityGenerator(n=vertices),
                vertex=vertex,
                particles=examples.ParametricParticleGenerator(
                    p=(low, high),
                    pTransverse=True,
                    pLogUniform=True,
                    eta=(-ETA, ETA),
                    etaUniform=True,
                    numParticles=max(1, round(share * options.particles / vertices)),
                    pdg=acts.PdgParticle.ePionPlus,
                    randomizeCharge=True,
                ),
            )
            for share, low, high in SPECTRUM
        ]
        reader = examples.EventGenerator(generators=generators, **made)
    sequencer.addReader(reader)
    sequencer.addAlgorithm(
        HepMC3InputConverter(
            level=level,
            inputEvent="generated",
            outputParticles="particles_generated",
            outputVertices="vertices_generated",
            mergePrimaries=options.hepmc3 is not None,
        )
    )
    sequencer.addWhiteboardAlias("particles", "particles_generated")
    sequencer.addWhiteboardAlias("particles_generated_selected", "particles_generated")


def _digitization(detector: GenericDetector, kind: Digitization) -> dict[str, Any]:
    """Returns ACTS's configuration of digitization, by which hits become measurements."""
    entries = []
    for (volume, layer), half in detector.layer_sizes().items():
        pitches = PITCHES[volume]
        if kind == "smearing":
            value: dict[str, Any] = {
                "smearing": [
                    {"index": i, "mean": 0.0, "stddev": pitch / 12**0.5, "type": "Gauss"}
                    for i, pitch in enumerate(pitches)
                ]
            }
        else:
            bins = [
                {
                    "bins": max(1, round(2 * length / pitch)),
                    "min": -length,
                    "max": length,
                    "option": "open",
                    "type": "equidistant",
                    "value": axis,
                }
                for length, pitch, axis in zip(half, pitches, ("binX", "binY"), strict=True)
            ]
            charge = {"mean": 0.0, "stddev": CHARGE, "type": "Gauss"}
            value = {
                "geometric": {
                    "digital": False,
                    "indices": [0, 1],
                    "segmentation": {"binningdata": bins},
                    "thickness": THICKNESS,
                    "threshold": 0.0,
                    "charge-smearing": charge,
                }
            }
        entries.append({"volume": volume, "layer": layer, "value": value})
    header = {"format-version": 0, "value-identifier": "digitization-configuration"}
    return {"acts-geometry-hierarchy-map": header, "entries": entries}


def _take(folder: Path, out: Path, name: str) -> None:
    """Moves an event's gzipped tables to `out`; measurements last, as they mark it whole."""
    for table in TABLES:
        content = (folder / f"{name}-{table}.csv").read_bytes()
        if table == "cells" and content.count(b"\n") < 2:
            continue  # smeared hits have none
        packed = gzip.compress(content, 4, mtime=0)
        path = out / f"{name}-{table}.csv.gz"
        write_atomically(path, partial(Path.write_bytes, data=packed))
