"""Readers of files from elsewhere, for fuzzing and property tests: valid inputs, and one call each.

`read(folder, content)` lays `content` where the reader looks for it and returns what it read. A
first byte chooses how, where there are several ways.
"""

from pathlib import Path

from bigtrk.config import load_settings
from bigtrk.graphs.builders.windows import read_windows
from bigtrk.shipped import DEFAULT
from bigtrk.training.settings import Configuration
from tests.hostile.event_files import EVENT_READERS
from tests.hostile.foreign_files import FOREIGN_READERS
from tests.hostile.reader import Reader
from tests.hostile.stored_files import STORED_READERS


def read_configuration(folder: Path, content: bytes) -> object:
    """First byte: 0 a configuration, 1 windows; others lines of overrides."""
    kind, content = content[:1], content[1:]
    if kind and kind[0] > 1:
        lines = content.decode("utf-8", "surrogateescape").split("\n")
        return load_settings(Configuration, DEFAULT, lines)
    path = folder / "settings.yaml"
    path.write_bytes(content)
    return read_windows(path) if kind == b"\1" else load_settings(Configuration, path)


def configuration_seeds() -> list[bytes]:
    windows = b"made: x\npairs:\n- {inner: [8, 2], outer: [8, 4], edges: 3, phi_slope: 0.1, "
    windows += b"dphi: 0.2, z0: [-1.0, 1.0], deta: [-1, 1]}\n"
    aliased = b"model: &m {hidden: 8}\ntraining: {<<: {epochs: 2}, seed: 130}\n"
    overrides = b"\2model.hidden=16\ndata.train=[a, b]\nrun.folder=null\ntraining.seed=0x1f"
    return [b"\0" + DEFAULT.read_bytes(), b"\0" + aliased, b"\1" + windows, overrides]


READERS = {
    **EVENT_READERS,
    **STORED_READERS,
    "configuration": Reader(configuration_seeds, read_configuration),
    **FOREIGN_READERS,
}
