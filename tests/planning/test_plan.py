"""Plans: sectors that fit, edges in files, the command line, measured runs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from bigtrk.cost.event_size import EventSize
from bigtrk.cost.machines import A100, CPU, MACHINES
from bigtrk.errors import InputError
from bigtrk.planning.plan import Question, make_plan
from bigtrk.planning.scaling import as_measured
from bigtrk.planning.tables import show_plan
from bigtrk.records.metrics import MetricsRecord
from bigtrk.records.run_folder import read_run
from bigtrk.training.fitting import make_cost, memory_of_cut
from bigtrk.training.settings import Configuration
from tests.every_value import Value, every_value
from tests.programs import Run, output_of, refusal_of
from tests.reports.run_folders import epoch_record, run_record, run_writer, step_record

# Layers take time to count.
SHALLOW = {"model": {"layers": 2}}
SIZE = ["--nodes", "13000", "--edges", "47800"]
# What a prediction depends on.
PLANNED = [value for value in every_value() if value.key.startswith(("model.", "engine."))]


def test_fewest_sectors_are_one_on_a_rank_and_then_several() -> None:
    configuration = Configuration.model_validate({"model": {"layers": 2, "recompute": "layer"}})
    event = EventSize(40_000, 800_000)  # tensors of 16 sectors still come from the system
    asked = Question(configuration, [event], 2, 2, None, CPU)
    rows = make_plan(asked)["sectors"]
    assert [(row["parts"], row["ranks"]) for row in rows] == [(1, 1), (2, 2), (4, 2), (8, 2)]
    for row, per_rank in ((rows[1], 1), (rows[3], 4)):
        plan = make_plan(replace(asked, budget=row["total"]))
        assert (plan["smallest_parts"], plan["sectors_per_rank"]) == (row["parts"], per_rank)
    plan = make_plan(replace(asked, budget=rows[-1]["total"] - 1))
    assert (plan["smallest_parts"], plan["sectors_per_rank"]) == (16, 8)
    assert make_plan(replace(asked, budget=1e6))["smallest_parts"] is None


def test_a_disk_is_a_lever() -> None:
    """Memory and files of a spilled event are those that a training asks for and reserves."""
    configuration, event = Configuration.model_validate(SHALLOW), EventSize(20_000, 400_000)
    asked = Question(configuration, [event], 1, 1, None, CPU)
    levers = make_plan(asked)["levers"]
    spilled = {row["precision"]: row for row in levers if row["files"]}
    chunks = [row for row in levers if row["recompute"] == "chunk"]
    kept = {row["precision"]: row for row in chunks if not row["files"]}
    assert spilled.keys() == {"fp32", "bf16"}
    of_edges = {}
    for precision, row in spilled.items():
        away = replace(asked.cost(precision=precision), spills_beyond=0.0)
        assert row["total"] == away.memory(event, 1, 1).total < kept[precision]["total"]
        of_edges[precision] = away.away_bytes(event, 1, 1)
        assert row["files"] == of_edges[precision] + away.input_file_bytes(event, 1, 1)
    assert of_edges["fp32"] == pytest.approx(2 * of_edges["bf16"], rel=0.01)
    on_card = make_plan(replace(asked, machine=A100))["levers"]
    assert not any(row["files"] for row in on_card)


def test_files_are_in_the_answer_where_memory_alone_does_not_do(tmp_path: Path) -> None:
    """A training routes so, too: a small event in files takes more than in memory."""
    event = EventSize(200_000, 4_000_000)
    content = {**SHALLOW, "training": {"spill": str(tmp_path)}}
    configuration = Configuration.model_validate(content)
    cost = make_cost(configuration, 1, 1, CPU)
    enough, *cut = (cost.memory(event, parts, 1).total for parts in (1, 2, 4))
    least = min(enough, *cut)
    asked = Question(configuration, [event], 1, 1, enough, CPU)
    in_memory = make_plan(asked)
    assert (in_memory["smallest_parts"], in_memory["in_files"]) == (1, False)
    assert make_plan(replace(asked, budget=None))["in_files"] is False
    assert make_plan(replace(asked, budget=1e6))["in_files"] is False
    little = replace(asked, budget=least - 1e7)
    in_files = make_plan(little)
    assert (in_files["smallest_parts"], in_files["in_files"]) == (1, True)
    spilled = replace(cost, spills_beyond=little.budget)
    assert in_files["sectors"][0]["total"] == spilled.memory(event, 1, 1).total <= least - 1e7
    assert in_files["levers"] == [
        {**row, "smallest_parts": new["smallest_parts"]}
        for row, new in zip(in_memory["levers"], in_files["levers"], strict=True)
    ]
    for other in (replace(little, machine=A100), replace(little, configuration=bare())):
        assert [cost.spills_beyond for cost in other.costs] == [None]
    assert make_plan(replace(little, configuration=bare()))["smallest_parts"] is None


def bare() -> Configuration:
    return Configuration.model_validate(SHALLOW)


def test_the_command_prints_tables(run_program: Run) -> None:
    command = ["bigtrk", "plan", "--nodes", "1000", "--edges", "9000", "--ranks", "2"]
    command += ["--machine", "cpu", "model.layers=2"]
    out = output_of(run_program(command))
    assert "give --memory" in out
    assert "on two cores of an AMD EPYC (a roofline); real steps may take" in " ".join(out.split())


def _shallow(value: Value) -> list[str]:
    """Gives one layer to a model that is counted layer by layer, unless the value is of these."""
    model = value.value if value.key == "model.name" else value.needed.get("model.name")
    layered = model in {None, "interaction", "attention"} and value.key != "model.layers"
    return ["model.layers=1"] if layered else []


def test_every_default_is_planned(run_program: Run) -> None:
    """GPUs differ by their data sheets alone; an edge takes the less, the newer they are."""
    seconds = {}
    for machine in MACHINES:
        command = ["bigtrk", "plan", "--nodes", "100000", "--edges", "9000000", "--json"]
        status, out, err = run_program([*command, "--machine", machine])
        assert (status, err) == (0, "")
        seconds[machine] = json.loads(out)["sectors"][0]["seconds"]
    assert seconds["cpu"] > seconds["A100"] > seconds["H100"] >= seconds["H200"]


@pytest.mark.parametrize(
    ("value", "machine"), [(one, ("cpu", "A100")[i % 2]) for i, one in enumerate(PLANNED)], ids=str
)
def test_every_value_is_planned(value: Value, machine: str, run_program: Run) -> None:
    command = ["bigtrk", "plan", "--nodes", "1000", "--edges", "5000", "--ranks", "2"]
    command += ["--machine", machine, *value.overrides(), *_shallow(value), "--json"]
    status, out, err = run_program(command)
    assert (status, err) == (0, "")
    plan = json.loads(out)
    section, _, name = value.key.partition(".")
    assert section == "engine" or plan["model"][name] == value.value
    assert all(row["total"] > 0 and row["seconds"] > 0 for row in plan["sectors"])
    on_host = {row["recompute"] for row in plan["levers"] if row["host"]}
    offloads = machine != "cpu" and plan["model"]["name"] == "interaction"
    assert on_host == ({"offload"} if offloads else set())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "there are no events to plan for"),
        (["--nodes", "5"], "--nodes with --edges"),
        (["graphs", *SIZE], "both folders and sizes of events are given"),
        (["--nodes", "5", "--edges", f"{2**31}"], "less than or equal to 2147483647"),
        ([*SIZE, "sampling.method=shadow"], "bigtrk plan counts whole events"),
        ([*SIZE, "--memory", "inf"], "less than or equal to 1000000"),
        ([*SIZE, "--ranks", "1,x"], "write numbers"),
        ([*SIZE, "--ranks", "8192"], "from 1 to 4096"),
        ([*SIZE, "--ranks", "1,2"], "--ranks 1,2: must be one number"),
        ([*SIZE, "--machine", "none.json"], "--machine none.json: is unknown; use cpu, A100"),
        ([*SIZE, "model.hiden=3"], "model.hidden"),
    ],
)
def test_bad_questions_end_in_one_line(arguments: list[str], said: str, run_program: Run) -> None:
    assert said in refusal_of(run_program(["bigtrk", "plan", *arguments]))


def written(tmp_path: Path, world: int, *steps: MetricsRecord) -> Path:
    """A run whose record has these steps, and whose events are gone."""
    settings = {"data": {"train": ["nowhere"]}, **SHALLOW}
    config = Configuration.model_validate(settings).model_dump(mode="json")
    record, lines = run_record(world, config=config), [*steps, epoch_record(0)]
    return run_writer(tmp_path)("run", record=record, lines=lines)


def test_a_measured_step_slows_the_roofline_down(tmp_path: Path) -> None:
    """The seconds are predicted for the recorded routes, with events of the mean size."""
    steps = [step_record(i, routes={"a": 8}, ranks={"a": 2}, seconds=7.0) for i in range(3)]
    run = read_run(written(tmp_path, 2, *steps))
    cost = make_cost(Configuration.model_validate(SHALLOW), 2, 2, CPU)
    event = EventSize(2000, 8500)
    counted = cost.seconds(event, 8, 2) + cost.reduction_seconds(1, 4)
    measured = as_measured(CPU, run)
    assert measured.fp32 == pytest.approx(CPU.fp32 * counted / 7.0)
    assert measured.network == CPU.network


def test_a_plan_takes_the_seconds_of_a_measured_run(tmp_path: Path, run_program: Run) -> None:
    steps = [step_record(i, routes={"a": 1}, seconds=7.0) for i in range(3)]
    run = written(tmp_path, 1, *steps)
    command = ["bigtrk", "plan", "--nodes", "2000", "--edges", "8500", "--ranks", "1"]
    command += ["--machine", "cpu", "model.layers=2", "--measured", str(run), "--json"]
    plan = json.loads(run_program(command)[1])
    assert plan["sectors"][0]["seconds"] == pytest.approx(7.0)
    assert plan["measured_run"] == str(run)
    text = " ".join(run_program(command[:-1])[1].split())
    assert "slowed down until a step takes as long as in" in text


@pytest.mark.parametrize(
    ("world", "routes", "said"),
    [
        (1, {"a": 2}, r"trained on 2 ranks first and on 1 at its end"),
        (1, {}, "has fewer than two steps on whole events"),
    ],
)
def test_a_run_that_tells_no_step_is_refused(
    tmp_path: Path, world: int, routes: dict[str, int], said: str
) -> None:
    steps = [step_record(i, routes=routes, seconds=7.0) for i in range(2)]
    with pytest.raises(InputError, match=said):
        as_measured(CPU, read_run(written(tmp_path, world, *steps)))


@pytest.mark.parametrize("files", [False, True])
@pytest.mark.parametrize("size", [EventSize(40_000, 800_000), EventSize(1_000, 4_000)], ids=str)
def test_where_nothing_fits_the_least_that_would_do_is_told(
    size: EventSize, files: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The event fits the named memory in the named sectors, and less memory does not do."""
    training = {"training": {"spill": str(tmp_path)}} if files else {}
    configuration = Configuration.model_validate({"model": {"layers": 2}, **training})
    asked = Question(configuration, [size], 2, 2, 1e6, CPU)
    plan = make_plan(asked)
    least = plan["least"]
    fits = make_plan(replace(asked, budget=least["bytes"]))
    assert (fits["smallest_parts"], fits["least"]) == (least["parts"], None)
    # The edges of the small event take less memory than the blocks they would travel in.
    assert fits["in_files"] == (files and size.edges > 4_000)
    short = make_plan(replace(asked, budget=least["bytes"] - 1))
    assert (short["smallest_parts"], short["least"]) == (None, least)
    assert make_plan(replace(asked, budget=None))["least"] is None
    written = memory_of_cut(least["bytes"], least["parts"])
    show_plan(plan, Console())
    assert f"it needs at least {written}; --choose" in " ".join(capsys.readouterr().out.split())
