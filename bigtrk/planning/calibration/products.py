"""Measures what bfloat16 products of new shapes take on a CPU, which torch's library compiles.

`python -m bigtrk.planning.calibration.products` is the process in which it is measured; it writes
the bytes and seconds of one product as JSON.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter

import torch
from torch import Tensor

from bigtrk.errors import InputError, why_it_failed
from bigtrk.parallel.host import configure_allocator
from bigtrk.parallel.peak_memory import PeakMemory

# Two products of each width and shape: 600, of which 1,024 are kept.
_WIDTHS, _SHAPES = (16, 64, 256), 100
_ROWS = 1000  # of the first shape; each has one more than that before
_MOST_ROWS = _ROWS + _SHAPES

Product = Callable[[int], Tensor]  # of so many rows


def measure_products() -> dict[str, float]:
    """Returns product_bytes and compiling, as MachineConstants has them, of this machine.

    Raises:
        InputError: the process failed.
    """
    command = [sys.executable, "-m", "bigtrk.planning.calibration.products"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        reason = why_it_failed(done.returncode, done.stderr)
        raise InputError(f"products: {reason}; free memory, then calibrate again")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def new_products() -> dict[str, float]:
    """Measures products of new shapes in this process, beside the same ones once they are kept."""
    products = [*_products()]
    for product in products:
        product(_MOST_ROWS)  # scratch memory that other shapes use again
    memory = PeakMemory(torch.device("cpu"))
    before = memory.n_bytes
    first = _seconds(products)
    more = memory.n_bytes - before
    again = _seconds(products)
    number = _SHAPES * len(products)
    return {
        "product_bytes": max(0.0, more / number),
        "compiling": max(0.0, (first - again) / number),
    }


def _products() -> Iterator[Product]:
    """Yields those of a layer and of its weight's gradient."""
    for width in _WIDTHS:
        rows, made = torch.ones(2, _MOST_ROWS, width, dtype=torch.bfloat16)
        weight = torch.ones(width, width, dtype=torch.bfloat16)
        yield partial(_layer, rows, weight)
        yield partial(_gradient, rows, made)


def _layer(rows: Tensor, weight: Tensor, n_rows: int) -> Tensor:
    return rows[:n_rows] @ weight.t()


def _gradient(rows: Tensor, made: Tensor, n_rows: int) -> Tensor:
    return made[:n_rows].t() @ rows[:n_rows]


def _seconds(products: list[Product]) -> float:
    begun = perf_counter()
    for n_rows in range(_ROWS, _ROWS + _SHAPES):
        for product in products:
            product(n_rows)
    return perf_counter() - begun


if __name__ == "__main__":
    configure_allocator()
    print(json.dumps(new_products()))
