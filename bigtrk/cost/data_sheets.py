"""The data sheets of GPUs, and where the work of a kernel stands on their rooflines.

Sources: NVIDIA's data sheets of the A100 (40 and 80 GB), the H100 (PCIe in the first, SXM and NVL
in later ones), the H200 and the GH200 Grace Hopper Superchip. Products are dense, of which the
sheets of Hopper state twice as many per second, with sparsity; those of float32 are without tensor
cores. The L2 and the multiprocessors are by the white papers of the Ampere and the Hopper
architecture.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class DataSheet:
    """A GPU's name, its operations per second of products in bfloat16 and float32, and bytes per
    second of its memory.
    """

    name: str
    bf16: float
    fp32: float
    bandwidth: float

    def flops(self, bf16: bool) -> float:
        return self.bf16 if bf16 else self.fp32

    def attainable(self, intensity: float, bf16: bool) -> float:
        """Returns the operations per second that a kernel of so many operations per byte reaches at
        most.
        """
        return min(self.flops(bf16), intensity * self.bandwidth)


@dataclass(frozen=True)
class WholeSheet(DataSheet):
    """A data sheet with what counting a kernel's traffic takes: bytes of the GPU's L2, and its
    multiprocessors.
    """

    l2_bytes: float
    processors: int

    def programs_at_work(self, warps: int, registers: int) -> int:
        """Returns how many programs of a kernel run at once, by the registers of their threads."""
        # A multiprocessor has 65,536 registers, given in eights to each of a warp's 32 threads.
        of_program = 32 * warps * -(-registers // 8) * 8
        return self.processors * (65_536 // of_program)


A100 = WholeSheet("A100", 312e12, 19.5e12, 1.555e12, 40e6, 108)  # 40 GB, NERSC's
H100 = WholeSheet("H100", 989e12, 67e12, 3.35e12, 50e6, 132)  # SXM
H200 = WholeSheet("H200", 989e12, 67e12, 4.8e12, 50e6, 132)  # SXM
WHOLE_SHEETS = (A100, H100, H200)
# By the whole names that torch has for devices. Parts of names do not tell a form from another, nor
# from a slice of a GPU (MIG) or a card that one customer alone has.
DATA_SHEETS: Mapping[str, DataSheet] = {
    "NVIDIA A100-SXM4-40GB": A100,
    "NVIDIA A100-PCIE-40GB": A100,
    "NVIDIA A100-SXM4-80GB": DataSheet("A100 SXM 80 GB", 312e12, 19.5e12, 2.039e12),
    "NVIDIA A100 80GB PCIe": DataSheet("A100 PCIe 80 GB", 312e12, 19.5e12, 1.935e12),
    "NVIDIA H100 80GB HBM3": H100,
    "NVIDIA H100 PCIe": DataSheet("H100 PCIe", 756e12, 51e12, 2.0e12),
    "NVIDIA H100 NVL": DataSheet("H100 NVL", 835e12, 60e12, 3.9e12),
    "NVIDIA H200": H200,
    "NVIDIA H200 NVL": DataSheet("H200 NVL", 835e12, 60e12, 4.8e12),
    "NVIDIA GH200 480GB": DataSheet("GH200", 989e12, 67e12, 4.0e12),  # 96 GB of HBM3
}


def data_sheet(accelerator: str) -> DataSheet | None:
    """Returns the sheet of a device by the name that torch has for it; None of others."""
    return DATA_SHEETS.get(accelerator)
