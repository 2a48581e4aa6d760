"""The share of its GPUs' data sheets that a run reached."""

from collections.abc import Sequence
from dataclasses import dataclass

from bigtrk.records.run_folder import Run
from bigtrk.reports.elements import figures
from bigtrk.reports.scaling import Scaling, Timing

ROOFLINE_RULE = (
    "MFU: operations of matrix products, none computed twice, over what the GPUs' data sheets "
    "promise. Bandwidth: bytes that a pass moves, by count, over what they promise."
)
COLUMNS = ("MFU %", "bandwidth %")


@dataclass(frozen=True)
class Achieved:
    """The shares of the products' and of the memory's rate that are on the data sheet `gpu`."""

    gpu: str
    mfu: float
    bandwidth: float


def achieved(run: Run, timing: Timing) -> Achieved | None:
    """Returns what a run reached; None where its GPU is not known, or no epoch has finished."""
    counted, speed = run.record.roofline, timing.edges_per_second
    if counted is None or not speed:
        return None
    of_rank = speed / run.record.world_size
    return Achieved(
        gpu=counted.gpu,
        mfu=of_rank * counted.flops_per_edge / counted.flops_per_second,
        bandwidth=of_rank * counted.bytes_per_edge / counted.bytes_per_second,
    )


def achieved_cells(runs: Sequence[Run], scaling: Scaling) -> list[tuple[str, str]]:
    """Makes each run's cells of COLUMNS; none where no run has any."""
    found = [achieved(run, timing) for run, timing in zip(runs, scaling.timings, strict=True)]
    if not any(found):
        return []
    shares = [(one.mfu, one.bandwidth) if one else (None, None) for one in found]
    return [(figures.share(mfu), figures.share(bandwidth)) for mfu, bandwidth in shares]
