"""Registry of the graph, model and track formats of other software that bigtrk reads and writes.

A format is one file or folder with a line here for each of its functions (docs/adding/format.md).
Functions are named by text and imported when called, so `--help` does not wait for torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any, Literal

from bigtrk.errors import InputError

PtUnit = Literal["mev", "gev"]  # of particles' pT in a file


@dataclass(frozen=True)
class Format:
    """A format's function, named `module:name`, as a command calls it.

    help: text of its command. takes: its options on the command line; needs: those it requires.
    """

    function: str
    help: str = ""
    takes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    @property
    def options(self) -> tuple[str, ...]:
        return self.takes + self.needs

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Imports the function, calls it and returns its result."""
        return resolve_name(self.function)(*arguments, **options)


# Each is called as function(source, out, prefix=..., **options) and returns the folder's manifest.
GRAPH_READERS = {
    "heptrkx": Format("bigtrk.formats.heptrkx:import_heptrkx_folder", takes=("phi_sections",)),
    "pyg": Format("bigtrk.formats.pyg:import_pyg_folder", takes=("node_features", "edge_features")),
    "acorn": Format("bigtrk.formats.acorn.import_graphs:import_acorn_folder", takes=("pt_unit",)),
}
# A format may keep more of a graph than bigtrk reads, in a section of the graph's file and in keys
# of its record. function(opened, keep) thins the section to the edges `keep` [E] bool.
SECTION_THINNERS = {"acorn": Format("bigtrk.formats.acorn.export_graphs:thinned_section")}
KEPT_IN_RECORDS = ("acorn_folder",)
# function(graphs, out) returns the paths of the files; with `run`, scorer=... gives edges' scores.
GRAPH_WRITERS = {
    "heptrkx": Format(
        "bigtrk.formats.heptrkx:export_heptrkx_folder",
        "Write graphs as HEPTrkX's npz files.",
    ),
    "acorn": Format(
        "bigtrk.formats.acorn.export_graphs:export_acorn_folder",
        "Write graphs for acorn to train on or, with --run, to track.\n\n"
        "Graphs that came from acorn go back with its own columns, edges and their order.",
        takes=("run",),
    ),
    "acts-graphs": Format(
        "bigtrk.formats.track_files:write_gnn_graphs",
        "Write scored graphs for ACTS's CsvGnnGraphReader.",
        needs=("run",),
    ),
}
# function(file, out) writes a run.
MODEL_READERS = {"acorn": Format("bigtrk.formats.acorn.model_files:import_model")}
# function(run, out) returns what it wrote, in words; with `trained`, trained=stages_of loads it.
MODEL_WRITERS = {
    "acorn-model": Format(
        "bigtrk.formats.acorn.model_files:export_model",
        "Write a run's model as a checkpoint of acorn.\n\n"
        "It becomes acorn's InteractionGNN2, and must read the 12 node features of its models.",
    ),
    "acts": Format(
        "bigtrk.formats.acts.modules:export_run",
        "Write models for ACTS's GNN plugin: ONNX, TorchScript.",
        takes=("trained",),
    ),
}
# function(tracks, out, **options) returns the paths of the files.
TRACK_WRITERS = {
    "trackml": Format("bigtrk.tracks.files:copy_as_trackml"),
    "parquet": Format("bigtrk.formats.track_files:write_track_lists"),
    "acts": Format("bigtrk.formats.track_files:write_prototracks", needs=("events",)),
}


def options_of(
    formats: Mapping[str, Format], name: str, flag: str, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the options in `given` that were set, for format `name`, which `flag` chose.
    InputError if the format takes no such option, or lacks one that it needs.
    """
    chosen = formats.get(name)
    takes = () if chosen is None else chosen.options
    found = {option: value for option, value in given.items() if value}
    for option in sorted(found.keys() - takes):
        others = " or ".join(other for other, one in formats.items() if option in one.options)
        said = f"--{option.replace('_', '-')}"
        raise InputError(f"{said} needs {flag} {others}; choose that, or leave out {said}")
    for option in () if chosen is None else chosen.needs:
        if option not in found:
            raise InputError(f"{flag} {name} needs --{option}; add it")
    return found
