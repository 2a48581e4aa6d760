"""ACTS itself: an event of 500 particles through simulation, baseline and fit."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigtrk.config import load_settings
from bigtrk.errors import InputError
from bigtrk.events.event import Event
from bigtrk.events.reader import read_event
from bigtrk.events.truth import hit_particles, particle_kinematics
from bigtrk.formats.acts.finding import DEFAULT, ChainSettings, find_tracks
from bigtrk.formats.acts.fit import fit_folder, fit_tracks
from bigtrk.formats.acts.simulation import FatrasOptions, simulate_with_acts
from bigtrk.formats.acts.software import claim, generic_detector, load_acts
from bigtrk.records.run_folder import read_run
from bigtrk.shipped import shipped
from bigtrk.tracks.files import open_tracks, write_tracks
from bigtrk.tracks.fits import PARAMETERS
from bigtrk.tracks.matching import majority_particles
from tests.programs import CHECKOUT, Run, refusal_of, run_in_one, run_shell

pytest.importorskip("acts", reason="pyacts is not installed: its wheels need glibc 2.34")
OPTIONS = FatrasOptions(particles=500, seed=5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fatras")
    simulate_with_acts(folder, range(1), OPTIONS)
    return folder


@pytest.fixture(scope="module")
def event(folder: Path) -> Event:
    return read_event(folder)


def kinematics(event: Event) -> dict[str, np.ndarray[Any, Any]]:
    return dict(particle_kinematics(event))


def test_the_same_numbers_twice(folder: Path, tmp_path: Path) -> None:
    simulate_with_acts(tmp_path, range(2), OPTIONS)
    for file in folder.iterdir():
        if file.suffix == ".gz":
            assert (tmp_path / file.name).read_bytes() == file.read_bytes()
    with pytest.raises(InputError, match="were made with other options"):
        simulate_with_acts(tmp_path, range(1), FatrasOptions(particles=500, seed=6))


def test_what_failed_at_once_leaves_a_folder_that_others_may_take(tmp_path: Path) -> None:
    claim(tmp_path, "record.json", {"seed": 1})
    claim(tmp_path, "record.json", {"seed": 2})
    (tmp_path / "event000000000-tracks.parquet").touch()
    claim(tmp_path, "record.json", {"seed": 2})
    with pytest.raises(InputError, match="were made with other options"):
        claim(tmp_path, "record.json", {"seed": 1})
    with pytest.raises(InputError, match="is not empty; name a new folder, or an empty one"):
        claim(tmp_path, "other.json", {"seed": 2})


def test_clusters_have_cells(tmp_path: Path) -> None:
    simulate_with_acts(tmp_path, range(1), FatrasOptions(60, 1, "clusters"))
    event = read_event(tmp_path)
    assert event.cells is not None
    assert np.isin(event.hits["hit_id"], event.cells["hit_id"]).all()


def test_hits_lie_on_the_modules_that_acts_gave_them(event: Event) -> None:
    detector = generic_detector()
    surface, _, _ = detector.measure(event.hits, "here")
    ids = [detector.ids[row] for row in surface]
    assert [i.sensitive for i in ids] == event.hits["module_id"].tolist()
    assert [i.layer for i in ids] == event.hits["layer_id"].tolist()


def test_modules_of_real_hits_are_found(testdata: Path) -> None:
    """TrackML's endcaps number modules otherwise: their hits lie on ACTS's modules all the same."""
    event = read_event(testdata / "data" / "trackml_event1000", with_truth=False)
    detector = generic_detector()
    surface, local, _ = detector.measure(event.hits, "here")
    layers = np.array([i.layer for i in detector.ids])[surface]
    np.testing.assert_array_equal(layers, event.hits["layer_id"])
    assert (np.abs(local[:, 0]) < 100).all()


def test_the_baseline_finds_the_particles(event: Event) -> None:
    settings = load_settings(ChainSettings, shipped(DEFAULT))
    track_id = find_tracks(event, settings, "here")
    particle = hit_particles(event)
    known = kinematics(event)
    target = known["particle_id"][(known["pt"] > 1) & (known["nhits"] >= 6)]
    found = np.unique(majority_particles(track_id, particle)[track_id >= 0])
    assert np.isin(target, found).mean() > 0.93


def test_fits_have_unit_pulls(event: Event) -> None:
    particle, known = hit_particles(event), kinematics(event)
    born_on_beam = np.hypot(known["vx"], known["vy"]) < 0.1
    chosen = np.flatnonzero((known["pt"] > 0.5) & (known["nhits"] >= 6) & born_on_beam)
    ids = known["particle_id"][chosen]
    place = np.searchsorted(ids, particle)
    is_chosen = np.isin(particle, ids)
    fitted = fit_tracks(event, np.where(is_chosen, place, -1), "here")
    assert fitted.converged.mean() > 0.98
    phi, vx, vy = (known[name][chosen] for name in ("phi", "vx", "vy"))
    theta = 2 * np.arctan(np.exp(-known["eta"][chosen]))
    truth = {"d0": vy * np.cos(phi) - vx * np.sin(phi), "z0": known["vz"][chosen]}
    truth |= {"phi": phi, "theta": theta}
    for column, name in enumerate(PARAMETERS[:4]):
        off = fitted.parameters[:, column] - truth[name]
        off = (off + np.pi) % (2 * np.pi) - np.pi if name == "phi" else off
        pull = off / np.sqrt(fitted.covariance[:, column, column])
        low, high = np.nanpercentile(pull, [15.87, 84.13])
        assert 0.8 < (high - low) / 2 < 1.2, name


def test_tracks_of_pixel_end_caps_alone_are_fitted(testdata: Path) -> None:
    event = read_event(testdata / "data" / "trackml_event1000")
    particle = hit_particles(event)
    forward = np.isin(event.hits["volume_id"], (7, 9)) & (particle != 0)
    layers = np.unique(np.stack([particle, event.hits["layer_id"]])[:, forward], axis=1)
    ids, n_layers = np.unique(layers[0], return_counts=True)
    chosen = forward & np.isin(particle, ids[n_layers > 3])
    track_id = np.where(chosen, np.searchsorted(ids, particle), -1)
    assert fit_tracks(event, track_id, "here").converged.mean() > 0.995


@pytest.mark.parametrize(("listed", "n"), [([], 0), ([3], 1), ([0, 1], 1)])
def test_tracks_too_short_for_a_fit_are_kept(event: Event, listed: list[int], n: int) -> None:
    track_id = np.full(len(event.hits["hit_id"]), -1)
    track_id[listed] = 7
    fitted = fit_tracks(event, track_id, "here")
    assert fitted.track_id.tolist() == [7] * n
    assert not fitted.converged.any()
    np.testing.assert_array_equal(fitted.parameters, np.full((n, 5), np.nan))
    assert len(fitted.columns()["cov_d0_d0"]) == n


@pytest.mark.parametrize(
    "options",
    ["--clusters", "--with acts --no-truth", "--with acts --detectors odd"],
)
def test_options_of_the_other_simulator_are_refused(options: str, run_program: Run) -> None:
    command = ["bigtrk", "simulate", "nowhere", *options.split()]
    assert "--with acts" in refusal_of(run_program(command))
    assert not Path("nowhere").exists()


def test_another_detector_is_refused(testdata: Path) -> None:
    event = read_event(testdata / "data" / "colliderml_production", "event000000000", False)
    with pytest.raises(InputError, match="TrackML's detector does not have"):
        find_tracks(event, load_settings(ChainSettings, shipped(DEFAULT)), "here")


def test_acts_reads_the_table_of_parameters(folder: Path, tmp_path: Path) -> None:
    acts = load_acts()
    event = read_event(folder)
    hit_id = event.hits["hit_id"].astype(np.int64)
    track_id = find_tracks(event, load_settings(ChainSettings, shipped(DEFAULT)), "here")
    write_tracks(tmp_path / "tracks", event.name, hit_id, track_id)
    counts = fit_folder(tmp_path / "tracks", folder, tmp_path / "fit", chi2_max=3.0, csv=True)
    assert 0 < counts.kept < counts.converged <= counts.tracks
    kept = open_tracks(tmp_path / "fit").read(0).in_tracks()
    assert len(np.unique(kept.track_id)) == counts.kept
    level = acts.logging.Level.WARNING
    sequencer = acts.examples.Sequencer(events=1, numThreads=1, logLevel=level, trackFpes=False)
    sequencer.addReader(
        acts.examples.CsvTrackParameterReader(
            level=level,
            inputDir=str(tmp_path / "fit"),
            inputStem="track_parameters",
            outputTrackParameters="parameters",
        )
    )
    sequencer.run()


def test_commands_from_collisions_to_fits(tmp_path: Path) -> None:
    write_hepmc3(tmp_path / "collisions.hepmc3")
    said = run_in_one(
        [
            "bigtrk simulate events --with acts --particles 60 --events 2 --clusters",
            "bigtrk simulate collisions --with acts --events 2 --hepmc3 collisions.hepmc3",
            "bigtrk build events graphs --from acts",
            "bigtrk baseline events kalman finding.pt_min=0.4 --json",
            "bigtrk fit kalman events fitted --chi2-max 3 --csv --json",
            "bigtrk score fitted events --html fits.html",
            "bigtrk score kalman events --json",
            "bigtrk baseline events kalman finding.pt_min=0.4",  # keeps what is there
        ],
        tmp_path,
    )
    assert "there already are kept" in said
    # The same names, other hits: tracks there are of other events.
    again = [f"bigtrk baseline {events} other" for events in ("collisions", "events")]
    assert "kept" not in run_in_one(again, tmp_path)
    counts = [len(open_tracks(tmp_path / "other").read(event).hit_id) for event in (0, 1)]
    events = [len(read_event(tmp_path / "events", f"event{n:09d}").hits["x"]) for n in (0, 1)]
    assert counts == events
    with pytest.raises(InputError, match="holds tracks, not a run; 'bigtrk score"):
        read_run(tmp_path / "kalman")
    assert "Resolution of d0" in (tmp_path / "fits.html").read_text()
    assert len(read_event(tmp_path / "collisions", "event000000001").hits["x"]) > 10


def test_what_is_no_hepmc3_is_refused(tmp_path: Path) -> None:
    """ACTS's reader ends the process at it."""
    write_hepmc3(tmp_path / "two.hepmc3")
    (tmp_path / "bad.hepmc3").write_text("garbage\n")
    (tmp_path / "bad.hepmc3.gz").write_bytes(b"garbage")
    for name, events, told in (
        ("bad.hepmc3", range(1), "does not begin with 'HepMC::'"),
        ("bad.hepmc3.gz", range(1), "cannot be read"),
        ("none.hepmc3", range(1), "no such file"),
        ("two.hepmc3", range(2, 3), "two.hepmc3 is undamaged and holds this event"),
    ):
        options = FatrasOptions(40, 1, hepmc3=tmp_path / name)
        with pytest.raises(InputError, match=told):
            simulate_with_acts(tmp_path / "out", events, options)
        assert (tmp_path / "out").exists() == (name == "two.hepmc3")


@pytest.mark.slow
def test_the_commands_of_the_page(tmp_path: Path) -> None:
    """Those of docs/kalman_filter.md, on smaller events."""
    page = (CHECKOUT / "docs" / "kalman_filter.md").read_text()
    _install, *blocks = re.findall(r"```sh\n(.*?)```", page, flags=re.DOTALL)
    commands = "".join(blocks).splitlines()
    assert len(commands) >= 12
    for command in commands:
        small = command.replace("--particles 1000", "--particles 300")
        printed = run_shell(small, tmp_path)
        assert "TrackML" in printed or "--rules" not in command
    shared = "-m bigtrk reconstruct pipeline test shared --fit"
    printed = run_shell(f"torchrun --standalone --nproc-per-node 2 {shared}", tmp_path)
    assert "tracks in 2 events are in shared" in printed
    for name in ("event000000008-parameters.parquet", "event000000009-parameters.parquet"):
        whole, part = (tmp_path / folder / name for folder in ("tracks", "shared"))
        assert part.read_bytes() == whole.read_bytes()


def write_hepmc3(path: Path) -> None:
    """Two collisions of the generator of pions."""
    acts = load_acts()
    from acts.examples.hepmc3 import HepMC3Writer

    from bigtrk.formats.acts import simulation

    level = acts.logging.Level.WARNING
    sequencer = acts.examples.Sequencer(events=2, numThreads=1, logLevel=level, trackFpes=False)
    random = acts.examples.RandomNumbers(seed=1)
    simulation._add_particles(acts, sequencer, random, FatrasOptions(40, 1))
    sequencer.addWriter(HepMC3Writer(level=level, inputEvent="generated", outputPath=str(path)))
    sequencer.run()
