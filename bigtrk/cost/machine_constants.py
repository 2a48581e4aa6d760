"""The cost model's constants of a machine: fitted by `bigtrk plan --calibrate`, else defaults."""

from typing import Annotated, Any

from pydantic import Field

from bigtrk.config import Settings
from bigtrk.cost.links import Link, Network
from bigtrk.models.options import Precision

# A step's seconds per edge rise by a quarter where its tensors grow from 3 to 6 MB (one thread of
# an AMD EPYC with 32 MB of shared cache).
CACHED_BYTES = 4 * 2**20
Rate = Annotated[float, Field(gt=0)]  # per second


class MachineConstants(Settings):
    """A machine as the cost model sees it.

    Fitted to measured steps: flops (matrix products per second in fp32 and in bf16), traffic (bytes
    per second that operations read and write), cached (the same for tensors below CACHED_BYTES,
    which stay near the core), operation (seconds to start one), process_bytes. Measured separately:
    deepspeed_bytes (what its modules add to a process), zero_bytes (what those of ZeRO 1 to 3 add
    to that: torch's compiler), sharing. Not measured: network, transfer (bytes per second between
    an accelerator and its host), disk (those that a local disk reads and writes).

    On a CPU all ranks of a host share these; on accelerators each rank has its own. sharing: the
    time that R ranks that share a host take for R pieces of work, relative to one rank that does
    them one after the other (below 1, since threads of one rank wait for each other), if its
    tensors are at least CACHED_BYTES; sharing_cached: the same if they are smaller.

    exceeded: for defaults, the largest ratio of the "memory" and of the "seconds" that runs took to
    those predicted; empty where they were compared with no runs.
    """

    name: str
    accelerator: str
    flops: Annotated[dict[Precision, Rate], Field(min_length=2)]
    traffic: Rate
    cached: Rate
    operation: float = Field(ge=0)
    process_bytes: int = Field(ge=0)
    deepspeed_bytes: int = Field(ge=0)
    zero_bytes: int = Field(0, ge=0)
    sharing: float = Field(1.0, gt=0)
    sharing_cached: float = Field(1.0, gt=0)
    network: Network
    transfer: float = Field(2.1e10, gt=0)
    disk: float = Field(1e9, gt=0)
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


# Two thirds of the peak figures of NVIDIA's data sheet for the A100, as `transfer` is of its PCIe
# (32 GB/s each way); links as in Tripathy et al.
# (100 GB/s between two devices) and as Slingshot 11 has them (25 GB/s per device). Latencies
# and the start of an operation are assumed.
A100 = MachineConstants(
    name="default: A100, not measured",
    accelerator="A100",
    flops={"fp32": 13e12, "bf16": 200e12},
    traffic=1.0e12,
    cached=1.0e12,
    operation=8e-6,
    process_bytes=0,
    deepspeed_bytes=0,
    network=Network(
        within=Link(latency=1e-5, bandwidth=100e9), between=Link(latency=2e-5, bandwidth=25e9)
    ),
)
# Fitted by --calibrate on two idle cores of an AMD EPYC; its links are assumed. What a process
# takes was measured again since, with torch 2.13 and DeepSpeed 0.19.8. exceeded: by 28 runs of
# docs/results/plan_accuracy.json, rounded up.
CPU = MachineConstants(
    name="default: two CPU cores",
    accelerator="cpu",
    flops={"fp32": 1.9e11, "bf16": 5.1e11},
    traffic=2.9e10,
    cached=3.8e10,
    operation=1.9e-5,
    process_bytes=400 * 2**20,
    deepspeed_bytes=19 * 2**20,
    zero_bytes=47 * 2**20,
    sharing=0.71,
    sharing_cached=0.67,
    network=Network(
        within=Link(latency=3e-4, bandwidth=1e9), between=Link(latency=5e-4, bandwidth=1e9)
    ),
    exceeded={"memory": 1.1, "seconds": 1.9},
)
DEFAULTS = {"cpu": CPU, "A100": A100}
