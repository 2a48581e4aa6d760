"""A store in the memory of an accelerator's host."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from bigtrk.models.layers.workspace import HOST_BYTES
from bigtrk.models.stores.streamed import Place, StreamedStore


@dataclass(frozen=True)
class HostPlace(Place):
    """Rows in memory of the host, pinned where the device can then fetch them by itself."""

    values: Tensor = field(compare=False)


class HostStore(StreamedStore):
    """Keeps rows in the memory of the host; blocks travel beside the computation."""

    def __init__(self) -> None:
        super().__init__(HOST_BYTES)

    def new(self, n_rows: int, width: int, dtype: torch.dtype, device: torch.device) -> HostPlace:
        """Makes a tensor of the host."""
        values = torch.empty(n_rows, width, dtype=dtype, pin_memory=device.type == "cuda")
        return HostPlace(n_rows, width, dtype, device, values)

    def buffer(self, place: Place, n_rows: int) -> Tensor:
        return torch.empty(n_rows, place.width, dtype=place.dtype, device=place.device)

    def ready(self) -> torch.cuda.Event | None:
        """Marks what the accelerator has been asked to compute; a CPU has computed it."""
        return torch.cuda.current_stream().record_event() if torch.cuda.is_available() else None

    def move(
        self,
        ready: torch.cuda.Event | None,
        place: Place,
        rows: slice,
        block: Tensor,
        *,
        out: bool,
    ) -> None:
        assert isinstance(place, HostPlace)
        target, source = (place.values[rows], block) if out else (block, place.values[rows])
        if ready is None:
            target.copy_(source)
            return
        with torch.cuda.device(place.device):
            beside = torch.cuda.Stream()
            with torch.cuda.stream(beside):
                beside.wait_event(ready)
                target.copy_(source, non_blocking=True)
            beside.synchronize()
