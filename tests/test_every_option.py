"""Every option of the programs runs, and every value of those that have a list of them."""

import inspect
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, get_args

import torch
import typer
from torch_geometric.data import Data

from bigtrk import cli
from bigtrk.cost.machines import MACHINES
from partition import cli as partition_cli
from tests.formats.acorn.events import columns
from tests.formats.acorn.events import write as write_acorn
from tests.programs import run_in_one
from tests.test_bad_input import write_heptrkx

COMMANDS = [
    "bigtrk simulate events --events 2 --particles 40 --seed 3",
    "bigtrk simulate more --events 1 --first-event 2 --particles 40 "
    "--detectors events/detectors.csv.gz",
    "bigtrk simulate hits --events 1 --particles 40 --no-truth",
    "bigtrk simulate sample --events 2 --particles 40 --format colliderml",
    "bigtrk simulate csv --events 1 --particles 40 --format trackml",
    "bigtrk build sample parquet --from colliderml --events 0-0",
    "bigtrk simulate odd --events 1 --particles 40 --detectors odd",
    "bigtrk build odd odd_graphs --windows odd --prefix odd-",
    "bigtrk build events learned --learn-windows --pt-min 0.5",
    "bigtrk build events graphs --from trackml --windows learned/windows.yaml --json",
    "bigtrk build events mapped --learn-module-map",
    "bigtrk build events likewise --module-map mapped/module_map.safetensors",
    "bigtrk build npz heptrkx --from heptrkx --phi-sections 1",
    "bigtrk build data pyg --from pyg --node-features r,phi,z --edge-features dr",
    "bigtrk build stage acorn --from acorn --pt-unit mev",
    "bigtrk build stage acorn --from acorn --pt-unit gev",
    "bigtrk export acorn acorn back",
    "bigtrk-partition graphs sectors --parts 2 --method metis --seed 1 --workers 1",
    "bigtrk-partition graphs wedges --max-edges 50 --method wedges --json",
    "bigtrk/train.py data.train=[graphs] model.hidden=8 model.layers=1 training.epochs=1",
    "bigtrk resume runs/0001 training.epochs=2 --code own_code",
    "bigtrk evaluate runs/0001 graphs --tracks --score-cut 0.3 --hits-min 4 --pt-min 0.5",
    "bigtrk evaluate runs/0001 graphs --tracks --builder walk --scan-cuts --spill .",
    "bigtrk evaluate runs/0001 graphs --html evaluation.html --code own_code --json",
    "bigtrk display runs/0001 graphs display.html --builder walk --score-cut 0.3",
    "bigtrk display runs/0001 graphs display.html --event event000000001 --hits-min 4 "
    "--pt-min 0.5 --parts 2 --code own_code",
    "bigtrk score mine.csv events --pt-min 0.5 --hits-min 4 --matching-fraction 0.75 --json",
    "bigtrk score mine.csv events --task colliderml --no-track 0 --rules all --html score.html",
    "bigtrk submit mine.csv events mine.parquet --majority-particles --code own_code --json",
    "bigtrk report runs/0001 --html report.html --json",
    "bigtrk watch runs/0001",
    "bigtrk build events truth --true-edges",
    "bigtrk/train.py data.train=[truth] model.name=embedding model.hidden=8 training.epochs=1",
    "bigtrk build events near --embedding runs/0002 --efficiency 0.95 --code own_code",
    "bigtrk build events nearer --embedding runs/0002 --radius 0.01",
    "bigtrk filter runs/0001 graphs thinned --efficiency 0.99 --code own_code",
    "bigtrk filter runs/0001 graphs cut --score-cut 0.4 --json",
    "bigtrk export acorn graphs scored --run runs/0001 --code own_code",
    "bigtrk infer runs/0001 graphs tracks --builder walk --score-cut 0.2 --hits-min 4 --json",
    "bigtrk infer runs/0001 graphs tracks --builder components --max-edges 1000000",
    "bigtrk infer runs/0001 graphs tracks --builder junction_removal --precision float64",
    "bigtrk infer runs/0001 graphs tracks --builder fast_walk --precision bf16",
    "bigtrk infer runs/0001 graphs tracks --precision fp32 --code own_code --spill .",
    "bigtrk plan graphs sectors --ranks 2 --ranks-per-node 2 --memory 1 model.layers=1",
    *(f"bigtrk plan --nodes 500 --edges 900 --machine {one} model.layers=1" for one in MACHINES),
    "bigtrk plan --nodes 500 --edges 900 model.layers=1 --json",
    "bigtrk plan graphs --measured runs/0001 --code own_code model.layers=1",
    "bigtrk plan --choose graphs --ranks 2 --memory 4 model.layers=1",
    "bigtrk plan --choose --try graphs --ranks 1 --memory 4 model.layers=1 model.recompute=chunk",
    "bigtrk check-model mlp model.hidden=4 --json",
    "bigtrk doctor --json",
]
# What takes minutes or starts ranks of its own, and the tests of it.
ELSEWHERE = {
    **dict.fromkeys(
        (*("baseline", "fit", "simulate --with", "simulate --hepmc3"), "simulate --clusters"),
        "tests/formats/acts/test_chain.py",
    ),
    "build --from acts": "tests/formats/acts/test_chain.py",
    "export acts": "tests/formats/acts/test_export.py",
    "pipeline train": "tests/pipeline/test_pipeline.py",
    "export tracks": "tests/formats/test_track_exports.py",
    "export acts-graphs": "tests/formats/test_acts_graphs.py",
    "export acorn-model": "tests/formats/acorn/test_export_model.py",
    "export heptrkx": "tests/formats/test_heptrkx_export.py",
    "reconstruct": "tests/pipeline/test_pipeline.py",
    "demo": "tests/test_make_demo.py",
    "scale": "tests/studies/scaling/test_series.py",
    "search": "tests/studies/search",
    "submit --max-edges": "tests/pipeline/test_spilling.py",
    "submit --spill": "tests/pipeline/test_spilling.py",
}


def options(app: typer.Typer) -> Iterator[tuple[str, list[str]]]:
    """Yields each command's options, those of few values with each of these."""
    program: Any = typer.main.get_command(app)
    alone = app.registered_commands[0].name or "partition"
    commands = dict(getattr(program, "commands", {alone: program}))
    for group in app.registered_groups:
        # Their commands are tested as those of a program: "pipeline train".
        assert group.typer_instance is not None
        assert group.name is not None
        del commands[group.name]
        for name, own in options(group.typer_instance):
            yield f"{group.name} {name}", own
    for (name, command), given in zip(commands.items(), app.registered_commands, strict=True):
        assert given.callback is not None
        kinds = inspect.signature(given.callback, eval_str=True).parameters
        yield (
            name,
            [
                option
                for parameter in command.params
                if parameter.opts[0].startswith("--") and parameter.name in kinds
                for option in _with_values(parameter.opts[0], kinds[parameter.name].annotation)
            ],
        )


def _with_values(flag: str, annotation: Any) -> list[str]:
    kind = get_args(annotation)[0]
    for each in (kind, *get_args(kind)):
        if isinstance(each, type) and issubclass(each, Enum):
            return [f"{flag} {one.value}" for one in each]
    return [flag]


def test_no_option_is_left_out() -> None:
    """Each option runs with its command, and each value with one of the commands."""
    used = [f"{line.replace('bigtrk-partition', 'bigtrk partition', 1)} " for line in COMMANDS]
    for command, wanted in (*options(cli.app), *options(partition_cli.app)):
        lines = " ".join(line for line in used if line.startswith(f"bigtrk {command} "))
        for option in wanted:
            if command not in ELSEWHERE and f"{command} {option}" not in ELSEWHERE:
                assert f" {option.split()[0]} " in lines, f"{command} {option} runs in no test"
                assert f" {option} " in " ".join(used), f"{option} runs in no test"


def write_pyg(folder: Path) -> None:
    folder.mkdir()
    edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
    torch.save(Data(torch.ones(4, 3), edges, torch.ones(3, 1)), folder / "event000000001.pt")


def test_every_option_runs(tmp_path: Path) -> None:
    write_heptrkx(tmp_path / "npz")
    write_pyg(tmp_path / "data")
    write_acorn(tmp_path / "stage" / "event000000001.pyg", columns())
    (tmp_path / "mine.csv").write_text("event_id,hit_id,track_id\n0,1,0\n0,2,0\n")
    run_in_one(COMMANDS, tmp_path)
    for page in ("report.html", "evaluation.html", "display.html"):
        assert 'class="plot"' in (tmp_path / page).read_text()
