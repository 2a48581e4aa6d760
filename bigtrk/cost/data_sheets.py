"""What the data sheets of GPUs promise, and where the work of a kernel stands on their rooflines.

Sources: NVIDIA's data sheets of the A100 (SXM, 40 GB: NERSC's), H100 (SXM) and H200 (SXM), dense
products, float32 without tensor cores; the L2 and the multiprocessors by the white papers of the
Ampere and the Hopper architecture.
"""

from typing import NamedTuple


class DataSheet(NamedTuple):
    """A GPU's name, its operations per second of products in bfloat16 and float32, bytes per
    second of its memory, bytes of its L2, and its multiprocessors.
    """

    name: str
    bf16: float
    fp32: float
    bandwidth: float
    l2_bytes: float
    processors: int

    def flops(self, bf16: bool) -> float:
        return self.bf16 if bf16 else self.fp32

    def attainable(self, intensity: float, bf16: bool) -> float:
        """Returns the operations per second that a kernel of so many operations per byte reaches at
        most.
        """
        return min(self.flops(bf16), intensity * self.bandwidth)

    def programs_at_work(self, warps: int, registers: int) -> int:
        """Returns how many programs of a kernel run at once, by the registers of their threads."""
        # A multiprocessor has 65,536 registers, given in eights to each of a warp's 32 threads.
        of_program = 32 * warps * -(-registers // 8) * 8
        return self.processors * (65_536 // of_program)


A100 = DataSheet("A100", 312e12, 19.5e12, 1.555e12, 40e6, 108)
H100 = DataSheet("H100", 989e12, 67e12, 3.35e12, 50e6, 132)
H200 = DataSheet("H200", 989e12, 67e12, 4.8e12, 50e6, 132)
DATA_SHEETS = (A100, H100, H200)


def data_sheet(accelerator: str) -> DataSheet | None:
    """Returns the sheet of a device by the name that torch has for it; None of others."""
    return next((sheet for sheet in DATA_SHEETS if sheet.name in accelerator), None)
