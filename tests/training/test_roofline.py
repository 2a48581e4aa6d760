"""What a run's record has of its GPUs' data sheet."""

import pytest

from bigtrk import console
from bigtrk.cost.machines import A100_SHEET, H100_SHEET, H200_SHEET, data_sheet
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


def test_other_devices_and_mini_batches_have_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "_warned", set())
    assert roofline(SETTINGS, NODES, EDGES) is None, "a CPU"
    monkeypatch.setattr(costs, "accelerator", lambda: "NVIDIA A100-SXM4-40GB")
    assert roofline(SETTINGS, NODES, EDGES) is not None
    assert roofline(SETTINGS, 0, 0) is None
    sampled = Configuration.model_validate({"sampling": {"method": "shadow"}})
    assert roofline(sampled, NODES, EDGES) is None
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(costs, "accelerator", lambda: "AMD Instinct MI300X")
    for _ in range(2):
        assert roofline(SETTINGS, NODES, EDGES) is None
    [said] = capsys.readouterr().err.splitlines()
    assert "no MFU of AMD Instinct MI300X, since data sheets of NVIDIA A100-SXM4-40GB, " in said


SHEETS = {  # GB/s and TFLOP/s in bfloat16 and float32
    "NVIDIA A100-SXM4-40GB": (1555, 312, 19.5),
    "NVIDIA A100-SXM4-80GB": (2039, 312, 19.5),
    "NVIDIA A100 80GB PCIe": (1935, 312, 19.5),
    "NVIDIA H100 80GB HBM3": (3350, 989, 67),
    "NVIDIA H100 PCIe": (2000, 756, 51),
    "NVIDIA H100 NVL": (3900, 835, 60),
    "NVIDIA H200": (4800, 989, 67),
    "NVIDIA H200 NVL": (4800, 835, 60),
    "NVIDIA GH200 480GB": (4000, 989, 67),
}
UNKNOWN = ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", "NVIDIA A100X", "NVIDIA H20", "NVIDIA B200", "cpu")


def test_each_form_of_a_gpu_has_its_own_data_sheet() -> None:
    for device, figures in SHEETS.items():
        sheet = data_sheet(device)
        assert sheet is not None
        found = sheet.bandwidth / 1e9, sheet.flops(bf16=True) / 1e12, sheet.flops(bf16=False) / 1e12
        assert found == figures, device
    assert all(data_sheet(device) is None for device in UNKNOWN)
    counted = ("NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3", "NVIDIA H200")
    assert [data_sheet(name) for name in counted] == [A100_SHEET, H100_SHEET, H200_SHEET]
