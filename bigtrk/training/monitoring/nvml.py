"""The readings of NVML (package nvidia-ml-py) for the accelerator that a rank uses."""

from dataclasses import dataclass
from typing import Any

import torch

MISSING = "nvidia-ml-py is not installed: pip install 'bigtrk[power]'"


@dataclass(frozen=True)
class Sample:
    """One look: the share of the last moment that a kernel ran, the share of memory in use, power
    in watts. Values that the accelerator does not say, as a MIG slice, are None.
    """

    busy: float | None
    memory: float | None
    watts: float | None


class Accelerator:
    """An NVIDIA device, found by the UUID that torch gives: NVML ignores CUDA_VISIBLE_DEVICES."""

    def __init__(self, uuid: str) -> None:
        """Opens the device.

        Raises:
            LookupError: NVML is not there, or does not know the device; the message says so.
        """
        try:
            import pynvml
        except ImportError:
            raise LookupError(MISSING) from None
        self.uuid = uuid
        self._nvml: Any = pynvml
        try:
            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        except pynvml.NVMLError as error:
            raise LookupError(f"NVML: {error}") from None

    def sample(self) -> Sample:
        busy = self._ask("nvmlDeviceGetUtilizationRates")
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        milliwatts = self._ask("nvmlDeviceGetPowerUsage")
        return Sample(
            busy=None if busy is None else busy.gpu / 100,
            memory=None if memory is None else memory.used / memory.total,
            watts=None if milliwatts is None else milliwatts / 1000,
        )

    def joules(self) -> float | None:
        """Reads the device's energy counter, which older devices than Volta do not have."""
        millijoules = self._ask("nvmlDeviceGetTotalEnergyConsumption")
        return None if millijoules is None else millijoules / 1000

    def _ask(self, function: str) -> Any:
        try:
            return getattr(self._nvml, function)(self._handle)
        except self._nvml.NVMLError:
            return None


def open_accelerator(device: torch.device) -> Accelerator:
    """Opens the accelerator of a rank.

    Raises:
        LookupError: there is none, or NVML cannot be asked; the message says why.
    """
    if device.type != "cuda":
        raise LookupError("there is no accelerator")
    if torch.version.hip is not None:
        raise LookupError("NVML reads NVIDIA's GPUs alone")
    return Accelerator(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
