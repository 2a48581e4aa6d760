"""Devices as the plan sees them: data sheets of GPUs, the roofline of a rank, links between ranks.

Sources: NVIDIA's data sheets of the A100 (40 and 80 GB), the H100 (PCIe in the first, SXM and NVL
in later ones), the H200 and the GH200 Grace Hopper Superchip. Products are dense; Hopper's sheets
state twice as many per second, with sparsity. Products of float32 are without tensor cores.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from bigtrk.errors import InputError
from bigtrk.machine import accelerator

MIB = 2**20


@dataclass(frozen=True)
class DataSheet:
    """A GPU's name; its operations per second in matrix products, in bfloat16 and in float32; and
    the bytes per second of its memory.
    """

    name: str
    bf16: float
    fp32: float
    bandwidth: float


A100_SHEET = DataSheet("A100", 312e12, 19.5e12, 1.555e12)  # 40 GB, NERSC's
H100_SHEET = DataSheet("H100", 989e12, 67e12, 3.35e12)  # SXM
H200_SHEET = DataSheet("H200", 989e12, 67e12, 4.8e12)  # SXM
# Keys are torch's whole names of devices. Parts of names do not tell one form from another, nor
# from a slice of a GPU (MIG) or a card made for one customer.
DATA_SHEETS: Mapping[str, DataSheet] = {
    "NVIDIA A100-SXM4-40GB": A100_SHEET,
    "NVIDIA A100-PCIE-40GB": A100_SHEET,
    "NVIDIA A100-SXM4-80GB": DataSheet("A100 SXM 80 GB", 312e12, 19.5e12, 2.039e12),
    "NVIDIA A100 80GB PCIe": DataSheet("A100 PCIe 80 GB", 312e12, 19.5e12, 1.935e12),
    "NVIDIA H100 80GB HBM3": H100_SHEET,
    "NVIDIA H100 PCIe": DataSheet("H100 PCIe", 756e12, 51e12, 2.0e12),
    "NVIDIA H100 NVL": DataSheet("H100 NVL", 835e12, 60e12, 3.9e12),
    "NVIDIA H200": H200_SHEET,
    "NVIDIA H200 NVL": DataSheet("H200 NVL", 835e12, 60e12, 4.8e12),
    "NVIDIA GH200 480GB": DataSheet("GH200", 989e12, 67e12, 4.0e12),  # 96 GB of HBM3
}


@dataclass(frozen=True)
class Link:
    """latency: seconds of an empty message. bandwidth: bytes per second, each way, of one rank."""

    latency: float
    bandwidth: float

    def seconds(self, messages: float, n_bytes: float) -> float:
        return messages * self.latency + n_bytes / self.bandwidth


@dataclass(frozen=True)
class Network:
    """The links between ranks: `within` a host, and `between` hosts."""

    within: Link
    between: Link

    def slowest(self, ranks: int, ranks_per_node: int) -> Link:
        """Returns the slowest link among `ranks` neighbouring ranks."""
        return self.within if ranks <= ranks_per_node else self.between


# R. Thakur et al., "Optimization of collective communication operations in MPICH" (2005): a ring
# all-reduce moves 2 (n - 1) / n of its bytes in 2 (n - 1) messages, a tree all of them twice in
# 2 log2 n messages. Libraries choose by size, so the faster of the two is taken here.
def all_reduce(link: Link, ranks: int, n_bytes: float) -> float:
    """Returns the seconds to sum `n_bytes` over `ranks`, by ring or tree."""
    if ranks == 1:
        return 0.0
    ring = link.seconds(2 * (ranks - 1), 2 * (ranks - 1) / ranks * n_bytes)
    return min(ring, link.seconds(2 * math.log2(ranks), 2 * n_bytes))


def all_gather(link: Link, ranks: int, n_bytes: float) -> float:
    """Returns the seconds to gather shards of `n_bytes` in total, or to reduce and scatter them."""
    if ranks == 1:
        return 0.0
    return link.seconds(math.log2(ranks), (ranks - 1) / ranks * n_bytes)


@dataclass(frozen=True)
class Machine:
    """The roofline of a rank's device, and the bytes of a process.

    fp32, bf16: operations of matrix products per second. bandwidth: bytes per second of memory. On
    a CPU these three are of the whole host, whose cores its ranks share. launch: seconds to start
    an operation. transfer: bytes per second between an accelerator and its host, both ways. disk:
    bytes per second that a local disk reads or writes. process_bytes: memory of a process, without
    the pages of files.
    """

    name: str
    accelerator: str
    fp32: float
    bf16: float
    bandwidth: float
    launch: float
    network: Network
    process_bytes: int
    transfer: float = 4e10
    disk: float = 1e9

    @property
    def shared(self) -> bool:
        """Whether the ranks of a host share its cores, as on a CPU."""
        return self.accelerator == "cpu"

    def slower(self, factor: float) -> "Machine":
        """Returns this machine with a roofline that takes `factor` times as long."""
        return replace(
            self,
            fp32=self.fp32 / factor,
            bf16=self.bf16 / factor,
            bandwidth=self.bandwidth / factor,
            launch=self.launch * factor,
        )


def of_sheet(sheet: DataSheet) -> Machine:
    """Makes the machine of a GPU from its data sheet.

    Passes over edges reached an eighth of the sheet's products and half of its bandwidth on an H100
    (docs/results/gpu.json). Links are as in Tripathy et al. (100 GB/s between two devices) and as
    in Slingshot 11 (25 GB/s per device); latencies and the time to start an operation are assumed.
    """
    return Machine(
        name=sheet.name,
        accelerator=sheet.name,
        fp32=sheet.fp32 / 8,
        bf16=sheet.bf16 / 8,
        bandwidth=sheet.bandwidth / 2,
        launch=7e-5,
        network=Network(within=Link(1e-5, 100e9), between=Link(2e-5, 25e9)),
        process_bytes=66 * MIB,
    )


A100, H100, H200 = map(of_sheet, (A100_SHEET, H100_SHEET, H200_SHEET))
# Two cores of an AMD EPYC; the link between hosts is assumed.
CPU = Machine(
    name="two cores of an AMD EPYC",
    accelerator="cpu",
    fp32=2.0e11,
    bf16=4.5e11,
    bandwidth=2.0e10,
    launch=4e-5,
    network=Network(within=Link(1.8e-4, 1.7e9), between=Link(5e-4, 1e9)),
    process_bytes=177 * MIB,
)
MACHINES = {"cpu": CPU, "A100": A100, "H100": H100, "H200": H200}


def machine_of(device: str) -> Machine:
    """Returns the machine for a device, by the name that torch gives it; for a GPU without a known
    data sheet, the A100.
    """
    if device == "cpu":
        return CPU
    sheet = DATA_SHEETS.get(device)
    return A100 if sheet is None else of_sheet(sheet)


def find_machine(name: str | None) -> Machine:
    """Returns the machine with this short name; None: the machine that runs this process. Raises
    InputError if no machine has this name.
    """
    if name is None:
        return machine_of(accelerator())
    if name not in MACHINES:
        known = ", ".join(MACHINES)
        raise InputError(f"--machine {name}: is unknown; use {known}, or leave it out")
    return MACHINES[name]
