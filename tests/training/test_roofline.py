"""What a run's record has of its GPUs' data sheet."""

import pytest

from bigtrk import console
from bigtrk.cost.data_sheets import A100, H200, data_sheet
from bigtrk.training import costs
from bigtrk.training.costs import operations, roofline
from bigtrk.training.settings import Configuration

SETTINGS = Configuration.model_validate({"model": {"hidden": 32, "layers": 2}})
NODES, EDGES = 10_000, 300_000


def test_a_known_gpu_has_operations_that_no_recomputing_adds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(costs, "accelerator", lambda: "NVIDIA H200")
    found = roofline(SETTINGS, NODES, EDGES)
    assert found is not None
    chunked = operations(SETTINGS, [(NODES, EDGES)])[0] / EDGES
    assert 0.6 * chunked < found.flops_per_edge < 0.9 * chunked
    assert (found.gpu, found.flops_per_second, found.bytes_per_second) == ("H200", 67e12, 4.8e12)
    # At least what a layer reads and writes: three rows forward, five backward.
    assert found.bytes_per_edge > 2 * 8 * 32 * 4
    model = {"hidden": 32, "layers": 2, "precision": "bf16"}
    in_bf16 = roofline(Configuration.model_validate({"model": model}), NODES, EDGES)
    assert in_bf16 is not None
    assert in_bf16.flops_per_second == 989e12
    assert in_bf16.flops_per_edge == pytest.approx(found.flops_per_edge)
    assert in_bf16.bytes_per_edge < 0.7 * found.bytes_per_edge


def test_other_devices_and_mini_batches_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert roofline(SETTINGS, NODES, EDGES) is None, "a CPU"
    monkeypatch.setattr(costs, "accelerator", lambda: "NVIDIA A100-SXM4-40GB")
    assert roofline(SETTINGS, NODES, EDGES) is not None
    assert roofline(SETTINGS, 0, 0) is None
    sampled = Configuration.model_validate({"sampling": {"method": "shadow"}})
    assert roofline(sampled, NODES, EDGES) is None


def test_a_gpu_without_a_data_sheet_is_named_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "_warned", set())
    assert roofline(SETTINGS, NODES, EDGES) is None
    assert capsys.readouterr().err == "", "a CPU has no such sheet"
    monkeypatch.setattr(costs, "accelerator", lambda: "AMD Instinct MI300X")
    for _ in range(2):
        assert roofline(SETTINGS, NODES, EDGES) is None
    [said] = capsys.readouterr().err.splitlines()
    assert "no MFU of AMD Instinct MI300X, since data sheets of A100, H100, H200 alone" in said


def test_a_data_sheet_bounds_a_kernel() -> None:
    assert data_sheet("NVIDIA A100-SXM4-40GB") is A100
    assert data_sheet("AMD Instinct MI300X") is None
    ridge = 989e12 / 4.8e12
    assert H200.attainable(ridge / 2, bf16=True) == pytest.approx(989e12 / 2)
    assert H200.attainable(2 * ridge, bf16=True) == 989e12
    assert A100.attainable(1e6, bf16=False) == 19.5e12
    # 65,536 registers: two programs of four warps with 255 of them a thread.
    assert A100.programs_at_work(warps=4, registers=255) == 2 * 108
    assert A100.programs_at_work(warps=8, registers=255) == 108
