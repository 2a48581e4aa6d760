"""Facts of a run: model, data, engine and machine, its speed, and where its time goes."""

from collections.abc import Iterable, Sequence
from statistics import fmean, median

from bigtrk.errors import number_of
from bigtrk.records.metrics import Shares
from bigtrk.records.record import Record
from bigtrk.records.run import RunRecord
from bigtrk.records.run_folder import Run, labels
from bigtrk.reports import figures
from bigtrk.reports.document import Bars, Facts, Plot

TIMING_RULE = (
    "Times are medians over the epochs after the first, which warms up (shares: means; peak "
    "memory: the largest of all). Validation is not counted."
)
TIME_SHARES = "Where the time goes"
TIME_SHARES_NOTE = (
    "Exchange: halo rows between ranks. Reduction: gradients. Data: reading events. "
    "Imbalance: compute time of the slowest rank over the mean."
)
ACTIVITIES = {"compute": "compute", "exchange": "exchange", "reduce": "reduction", "data": "data"}
UNEVEN = 1.1  # imbalance above which the report mentions the slowest rank


def engine_name(record: RunRecord) -> str:
    """Returns the engine's name for people, such as "DeepSpeed ZeRO-1"."""
    return record.engine_detail or record.engine


def facts(run: Run) -> dict[str, str]:
    """Returns the facts of a training (model, data, engine, machine), texts by label."""
    record, data, machine = run.record, run.record.data, run.record.machine
    settings = record.section("model")
    own = figures.settings({x: y for x, y in settings.items() if not x.startswith("init_")})
    start = settings.get("init_from")
    started = f"; started from {start}" if start else ""
    model = f"{figures.count(record.parameters)} parameters: {own}{started}"
    if record.ended == "imported":  # its configuration's training settings are only defaults
        labels = ("model", "trained on", "target", "validated on", "engine", "machine")
        known = {"model": model, "software": software(record), "progress": engine_name(record)}
        return {**dict.fromkeys(labels, figures.DASH), **known}
    ranks = figures.count_of(record.world_size, "rank")
    launched = f", started by {record.launcher}" if record.launcher else ""
    size = f"{figures.count_of(data.nodes, 'node')}, {figures.count_of(data.edges, 'edge')}"
    folders = record.section("data").get("train")
    names = f" of {', '.join(map(str, folders))}" if isinstance(folders, list) and folders else ""
    accelerator = None if machine.accelerator == "cpu" else machine.accelerator
    cores = None if machine.cores is None else figures.count_of(machine.cores, "core")
    return {
        "model": model,
        "trained on": f"{figures.count_of(data.train_events, 'event')}{names} ({size})",
        "target": figures.settings(record.section("target")),
        "validated on": figures.count_of(data.validation_events, "event"),
        "engine": f"{engine_name(record)} on {ranks}{launched}",
        "machine": ", ".join(filter(None, (machine.host, accelerator, machine.cpu, cores))) or "-",
        "software": software(record),
        "progress": _progress(run),
    }


def sentence(run: Run) -> str:
    """Writes a sentence on a training: its model, data and length."""
    record, known = run.record, facts(run)
    name = record.section("model").get("name")
    kind = f"{name} model" if isinstance(name, str) else "model"
    trained = f"trained on {known['trained on']} with {known['engine']}; {known['progress']}"
    if record.ended == "imported":
        trained = f"{known['progress']}; what it was trained on is not known"
    return (
        f"Run {run.folder.resolve().name}: {kind} of {figures.count(record.parameters)} "
        f"parameters, {trained}."
    )


def headers(runs: Sequence[Run]) -> list[Facts]:
    """Makes blocks of facts; for several runs, first the common facts, then each run's own."""
    names, known = labels(runs), [facts(run) for run in runs]
    if len(runs) == 1:
        return [Facts(f"Run {names[0]}", known[0])]
    common = {x: y for x, y in known[0].items() if all(other[x] == y for other in known)}
    own = {
        name: "; ".join(f"{label}: {x}" for label, x in one.items() if label not in common)
        for name, one in zip(names, known, strict=True)
    }
    return [Facts(f"All {len(runs)} runs", common), Facts("Each run", own)]


def software(record: RunRecord) -> str:
    """Writes the software of a run and its versions, with the user's own code."""
    git = f" (git {record.git[:12]})" if record.git else ""
    others = [f"{name} {x}" for name, x in record.software.items() if x and name != "bigtrk"]
    newest = record.newest_code()
    own = [f"{name} {code.version[:12]}" for name, code in newest.items() if code.version]
    return ", ".join([f"bigtrk {figures.text(record.bigtrk)}{git}", *others, *own])


def _progress(run: Run) -> str:
    planned = run.record.section("training").get("epochs")
    steps = figures.count_of(len(run.steps), "step")
    since = f" since {run.record.started}" if run.record.started else ""
    of = f" of {planned}" if planned else ""
    epochs = number_of(planned or len(run.epochs), "epoch", f"{len(run.epochs)}{of}")
    told = [f"{epochs}, {steps}{since}"]
    if not run.epochs:
        told.append("no epoch has finished yet")
    if best := run.best:
        told.append(f"best in {best.metric} ({best.value:.5g}): epoch {best.epoch + 1}")
    if run.record.ended == "patience":
        told.append("no better epoch came, which ended it")
    return "; ".join(told)


class Timing(Record):
    """A run's speed, over `epochs` epochs."""

    epochs: int
    epoch_seconds: float | None
    batch_seconds: float | None
    edges_per_second: float | None
    shares: Shares | None
    imbalance: float | None
    peak_memory_bytes: int | None


def time_run(run: Run) -> Timing:
    """Returns the speed of a run, computed by `TIMING_RULE`."""
    epochs = run.epochs[1:] or run.epochs
    return Timing(
        epochs=len(epochs),
        epoch_seconds=_median(e.seconds for e in epochs),
        batch_seconds=_median(e.batch_seconds for e in epochs),
        edges_per_second=_median(e.edges_per_second for e in epochs),
        shares=mean_shares(epoch.shares for epoch in epochs),
        imbalance=_median(e.imbalance for e in epochs),
        peak_memory_bytes=max((e.peak_memory_bytes for e in run.epochs), default=None),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def mean_shares(shares: Iterable[Shares | None]) -> Shares | None:
    """Returns the mean of the shares that are known; None if none is known."""
    known = [share for share in shares if share is not None]
    if not known:
        return None
    return Shares(**{name: fmean(getattr(share, name) for share in known) for name in ACTIVITIES})


def share_cells(shares: Shares | None) -> dict[str, str]:
    """Returns the cells of the shares by column."""
    return {
        f"{what} %": figures.percent(getattr(shares, name, None), 1)
        for name, what in ACTIVITIES.items()
    }


def shares_plot(named: Iterable[tuple[str, Shares | None]]) -> Plot:
    """Makes a bar plot of the shares of time, one bar per run or series."""
    known = [(name, shares) for name, shares in named if shares]
    bars = [
        Bars(what, [name for name, _ in known], [getattr(x, key) for _, x in known], number, "%")
        for number, (key, what) in enumerate(ACTIVITIES.items())
    ]
    return Plot("", ("%",), bars if known else (), bars="stack")


def time_limit(timing: Timing) -> list[str]:
    """Returns a sentence on where most of the time goes; [] if the shares are unknown."""
    if timing.shares is None:
        return []
    shares = {what: getattr(timing.shares, key) for key, what in ACTIVITIES.items()}
    first, *others = sorted(shares, key=lambda name: -shares[name])
    rest = ", ".join(f"{name} {figures.percent(shares[name], 1)} %" for name in others)
    uneven = timing.imbalance is not None and timing.imbalance >= UNEVEN
    slowest = f" The slowest rank computes {timing.imbalance:.2f} times the mean." if uneven else ""
    return [f"Time: {first} takes {figures.percent(shares[first], 1)} % of it; {rest}.{slowest}"]
