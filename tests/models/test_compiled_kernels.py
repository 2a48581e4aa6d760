"""The Triton kernels compile, without atomics and spills, for three generations of GPUs.

The interpreter takes what the compiler refuses, and knows neither registers nor atomics.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bigtrk.models.edges import fused as launches
from bigtrk.models.edges import triton_passes
from tests.models import fused
from tests.models.compiled import (
    CAPABILITIES,
    OPTIONS,
    ROWS,
    TUNED,
    Case,
    compiled,
    every_case,
)
from tests.models.test_kernels import CALLS

pytest.importorskip("triton")
pytestmark = pytest.mark.gpu


def assert_good(found: list[dict[str, Any]], n: int) -> None:
    assert len(found) == n
    for kernel in found:
        assert kernel["atomics"] == [], kernel
        assert 0 < kernel["registers"] <= 255, kernel
        if kernel["hidden"] <= 128:
            assert kernel["spilled"] == 0, kernel
        # An A100's programs have 163 KiB.
        assert kernel["shared"] <= 163 * 1024, kernel


@pytest.mark.parametrize("rows", ROWS)
def test_kernels_compile_without_atomics_and_spills(tmp_path: Path, rows: str) -> None:
    cases: list[Case] = [("backward", 128, 2, ["encoded"], rows, 90, {})]
    cases += [(name, 64, 2, options, rows, 80, {}) for name, options in OPTIONS]
    cases += [(name, 64, 3, ["encoded"], rows, 100, {}) for name in ("forward", "backward")]
    assert_good(compiled(cases, tmp_path), len(cases))


@pytest.mark.slow
def test_whole_rows_compile_without_spills(tmp_path: Path) -> None:
    cases: list[Case] = [("whole_forward", 128, 2, ["encoded"], "*bf16", 80, {})]
    cases += [
        ("whole_backward", 64, 2, ["encoded"], "*bf16", capability, {}) for capability in (80, 90)
    ]
    cases += [
        ("whole_backward", 128, 2, ["encoded"], "*bf16", capability, {}) for capability in (80, 90)
    ]
    cases += [
        (name, 128, 2, ["encoded"], "*bf16", 100, {}) for name in ("sum_inputs", "sum_products")
    ]
    assert_good(compiled(cases, tmp_path), len(cases))


@pytest.mark.slow
@pytest.mark.parametrize("rows", ROWS)
def test_what_is_tuned_fixes_no_order(tmp_path: Path, rows: str) -> None:
    """With loads ahead, threads sum the same numbers in the same order; with more warps not."""
    ways = [*TUNED, {"num_warps": 8}]
    cases: list[Case] = [("forward", 64, 2, ["encoded"], rows, 90, way) for way in ways]
    *tuned, wider = compiled(cases, tmp_path)
    assert_good(tuned, len(TUNED))
    assert {one.split()[0] for one in tuned[0]["sums"]} == {"tt.reduce", "tt.dot"}
    assert all("tensor<" in one for one in tuned[0]["sums"])
    assert all(one["sums"] == tuned[0]["sums"] for one in tuned)
    assert wider["sums"] != tuned[0]["sums"]


# Slow: it compiles a thousand kernels.
@pytest.mark.slow
@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("hidden", [32, 64, 100, 128, 256])
def test_every_kernel_and_option(tmp_path: Path, hidden: int, capability: int) -> None:
    cases = every_case(hidden, capability)
    found = compiled(cases, tmp_path)
    assert_good(found, len(cases))
    sums: dict[str, set[str]] = {}
    for kernel in found:
        one = str([kernel[key] for key in ("kernel", "layers", "options", "rows")])
        sums.setdefault(one, set()).add(str(kernel["sums"]))
    assert all(len(orders) == 1 for orders in sums.values()), "what is tuned fixes an order"


class Noting:
    """Stands for a kernel: notes the names and values of its launch, and computes nothing."""

    def __init__(self) -> None:
        self.launched: list[dict[str, Any]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *_, **named: self.launched.append(named)


WHOLE = {"whole_forward", "whole_backward", "sum_products"}


@pytest.mark.parametrize("hidden", [64, 100, 128])
@pytest.mark.parametrize("rows", ROWS)
def test_what_is_compiled_is_what_is_launched(
    monkeypatch: pytest.MonkeyPatch, hidden: int, rows: str
) -> None:
    from tests.models.compile_triton import MODULES, TYPES, constants_of, launch_options

    kernels = {name: getattr(module, name) for name, module in MODULES.items()}
    noting = {name: Noting() for name in kernels}
    for name, module in MODULES.items():
        monkeypatch.setattr(module, name, noting[name])
    inputs = fused.make(fused.Case(hidden=hidden, dtype=TYPES[rows]))
    fused.computed(inputs)
    for call in CALLS:
        call(triton_passes, torch.clone(inputs.after), inputs.inputs[0], None)
    monkeypatch.setattr(triton_passes, "usable", lambda *_: True)
    sums_products = launches.sum_products([inputs.after], [inputs.of_state], inputs.after)
    is_whole = rows == "*bf16" and hidden != 100
    assert sums_products is is_whole
    assert bool(noting["sum_inputs"].launched) is (is_whole and hidden == 128)
    unused = {"forward", "backward"} if is_whole else WHOLE
    if not noting["sum_inputs"].launched:
        unused = unused | {"sum_inputs"}
    for name in kernels.keys() - unused:
        kernel = kernels[name]
        hopper = launches.has_hopper(inputs.after.device)
        constants = constants_of(name, kernel.arg_names, hidden, 2, ["encoded"], rows, hopper)
        given = {key: value for key, value in constants.items() if value is not None}
        assert noting[name].launched, name
        for launched in noting[name].launched:
            assert launched == given | launch_options(name, hidden, 2, rows, hopper), name
    assert not any(noting[name].launched for name in unused)
