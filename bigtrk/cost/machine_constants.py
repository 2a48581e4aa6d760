"""The cost model's constants of a machine: fitted by `bigtrk plan --calibrate`, else defaults."""

import math
from collections.abc import Callable
from typing import Any

from pydantic import Field

from bigtrk.config import Settings
from bigtrk.cost.data_sheets import WHOLE_SHEETS, DataSheet, data_sheet
from bigtrk.cost.links import Link, Network
from bigtrk.cost.rates import Rates


class MachineConstants(Settings):
    """A machine as the cost model sees it.

    alone: the rates of a rank that has its host, or an accelerator, for itself. On a CPU all ranks
    of a host share its cores; together: the rates of each of `ranks_together` that compute at once.
    crowding: by how much more than their number the time of yet more ranks grows. crowded_exchange:
    by how much more where these exchange rows, and wait for ranks without a core. waited_for: the
    seconds of a rank for which all others of `ranks_together` wait, over those where all compute.

    Measured separately: private_bytes (of a process, without the pages of files), deepspeed_bytes
    and fsdp2_bytes (what their modules add to them), zero_bytes (what those of ZeRO 1 to 3 add to
    that: torch's compiler), compiling and product_bytes (the seconds and bytes of a CPU's product
    of bfloat16 of a new shape), network, transfer (bytes per second between an accelerator and its
    host, both ways). Not measured: disk (those that a local disk reads and writes).

    repeated: by what fraction one in ten steps, or more, took longer or shorter when a calibration
    measured them again. exceeded: for defaults, the largest ratio of the "memory" and of the
    "seconds" that runs took to those predicted; empty where they were compared with no runs.
    """

    name: str
    accelerator: str
    alone: Rates
    together: Rates
    ranks_together: int = Field(2, ge=2)
    crowding: float = Field(1.0, gt=0)
    crowded_exchange: float = Field(1.0, ge=1)
    waited_for: float = Field(1.0, gt=0, le=1)
    private_bytes: int = Field(ge=0)
    deepspeed_bytes: int = Field(ge=0)
    zero_bytes: int = Field(0, ge=0)
    fsdp2_bytes: int = Field(0, ge=0)
    network: Network
    transfer: float = Field(2.1e10, gt=0)
    disk: float = Field(1e9, gt=0)
    compiling: float = Field(5e-4, ge=0)
    product_bytes: float = Field(0.67e6, ge=0)
    repeated: float = Field(0.0, ge=0)
    exceeded: dict[str, float] = Field(default_factory=dict)
    fit: dict[str, Any] = Field(default_factory=dict)

    @property
    def shared(self) -> bool:
        """Says whether the ranks of a host share its cores."""
        return self.accelerator == "cpu"

    @property
    def calibrated(self) -> bool:
        """Says whether these were measured on the machine they are for, and not assumed."""
        return bool(self.fit)

    def seconds(self, sharers: int, time_of: Callable[[Rates], float]) -> float:
        """Returns what `time_of` gives for the rates of one of `sharers` ranks on a host.

        Between one rank and those measured it is interpolated, in the logarithm of their number;
        more share the cores in turn.
        """
        if sharers == 1 or not self.shared:
            return time_of(self.alone)
        alone, together = time_of(self.alone), time_of(self.together)
        if sharers > self.ranks_together:
            return together * self._turns(sharers)
        place = math.log(sharers) / math.log(self.ranks_together)
        return (1 - place) * alone + place * together

    def slowdown(self, busy: int, ranks: int) -> float:
        """Returns the seconds of one of `busy` ranks of a host, for which its others of `ranks`
        wait, over those where all compute.
        """
        most = min(ranks, self.ranks_together)
        if not self.shared or busy == ranks:
            return 1.0
        if busy >= most:
            return self._turns(busy) / self._turns(ranks)
        # Threads of the ranks that compute have cores for themselves.
        own = math.pow(self.waited_for, 1 - math.log(busy) / math.log(most))
        return own / self._turns(ranks)

    def exchanging(self, sharers: int) -> float:
        """Returns the seconds of one of `sharers` ranks of a host that exchange rows, over those
        of one that does not, beside those of the exchange itself.
        """
        return self.crowded_exchange if self.shared and sharers > self.ranks_together else 1.0

    def _turns(self, ranks: int) -> float:
        """Returns how many times as long as those measured together so many ranks take."""
        if ranks <= self.ranks_together:
            return 1.0
        return ranks / self.ranks_together * self.crowding


def of_sheet(sheet: DataSheet) -> MachineConstants:
    """Returns the constants of a GPU that is not measured, from its data sheet.

    Its passes over edges are taken to reach an eighth of the sheet's products and half of its
    bandwidth, as those in float32 and in bfloat16 did on an H100 (docs/results/gpu.json), and other
    products in float32 half of the sheet's. What its host does is between what two hosts of an H200
    did: 54 and 86 us for the start of an operation, 42 and 65 ns to read an edge. What cuBLAS keeps
    and PCIe carries both ways are the second's (docs/results/gpu_steps.json).

    Links are as in Tripathy et al. (100 GB/s between two devices) and as Slingshot 11 has them (25
    GB/s per device); latencies are assumed.
    """
    rates = Rates(
        seconds={
            "fp32": 2 / sheet.fp32,
            "fused": 8 / sheet.fp32,
            "bf16": 8 / sheet.bf16,
            "products": 2 / sheet.bandwidth,
            "traffic": 2 / sheet.bandwidth,
            "operations": 7e-5,
            "batch": 5.4e-8,
            "weights": 1.4e-9,
            "steps": 4.5e-3,
        },
        engines={
            "fsdp2": {"tensors": 2.0e-4, "passes": 0.6e-3},
            "zero1": {"passes": 0.9e-3},
            "zero3": {"tensors": 2.1e-4, "passes": 4.5e-3},
        },
    )
    return MachineConstants(
        name=f"default: {sheet.name}, not measured",
        accelerator=sheet.name,
        alone=rates,
        together=rates,
        private_bytes=66 * 2**20,
        deepspeed_bytes=0,
        network=Network(
            within=Link(latency=1e-5, bandwidth=100e9), between=Link(latency=2e-5, bandwidth=25e9)
        ),
        transfer=4e10,
    )


A100, H100, H200 = map(of_sheet, WHOLE_SHEETS)
# Fitted on two idle cores of an AMD EPYC to the samples of docs/results/plan_accuracy.json, without
# corrections; the link between hosts is assumed. These samples put edges in order in each step, so
# that `batch` is too long.
# exceeded: by the runs of rounds of scripts/bench/plan_accuracy.py, rounded up, with the rates
# before these.
CPU = MachineConstants(
    name="default: two CPU cores",
    accelerator="cpu",
    alone=Rates(
        seconds={
            "fp32": 4.9e-12,
            "bf16": 2.0e-12,
            "traffic": 2.6e-11,
            "fresh": 9.6e-11,
            "operations": 3.7e-5,
            "batch": 3.7e-7,
            "weights": 2.8e-9,
            "steps": 2.1e-3,
        },
        engines={
            "fsdp2": {"tensors": 2.1e-4, "weights": 0.8e-9, "passes": 1.2e-3},
            "zero1": {"tensors": 0.0, "weights": 1.1e-9, "passes": 1.7e-3},
            "zero3": {"tensors": 1.4e-4, "weights": 1.2e-9, "passes": 3.2e-3},
        },
    ),
    together=Rates(
        seconds={
            "fp32": 1.0e-11,
            "bf16": 4.9e-12,
            "traffic": 4.4e-11,
            "fresh": 1.8e-10,
            "operations": 5.0e-5,
            "batch": 5.7e-7,
            "weights": 2.0e-9,
            "steps": 6.7e-3,
        },
        engines={
            "fsdp2": {"tensors": 8.6e-4, "weights": 1.9e-9, "passes": 0.0},
            "zero1": {"tensors": 0.0, "weights": 1.3e-9, "passes": 3.5e-3},
            "zero3": {"tensors": 0.0, "weights": 1.6e-9, "passes": 5.7e-3},
        },
    ),
    crowding=1.11,
    crowded_exchange=1.08,
    waited_for=0.96,
    private_bytes=245 * 2**20,
    deepspeed_bytes=15 * 2**20,
    zero_bytes=46 * 2**20,
    fsdp2_bytes=4 * 2**20,
    network=Network(
        within=Link(latency=1.8e-4, bandwidth=1.7e9),
        between=Link(latency=5e-4, bandwidth=1e9),
    ),
    exceeded={"memory": 1.5, "seconds": 4.0},
)
DEFAULTS = {"cpu": CPU, "A100": A100, "H100": H100, "H200": H200}


def default_machine(accelerator: str) -> MachineConstants:
    """Returns the constants of a device that is not measured, by the name that torch has for it: a
    GPU without a known data sheet is taken for an A100.
    """
    if accelerator == "cpu":
        return CPU
    sheet = data_sheet(accelerator)
    return A100 if sheet is None else of_sheet(sheet)
