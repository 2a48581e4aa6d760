"""Tests what a calibration measures of products of new shapes."""

import re

import pytest
import torch

from bigtrk.planning.calibration import products


@pytest.fixture(scope="module")
def found() -> dict[str, float]:
    return products.measure_products()


def test_products_of_new_shapes_are_measured(found: dict[str, float]) -> None:
    """With torch 2.13: 0.67 MB on an AMD EPYC and 0.15 MB on an Intel Xeon, 0.3 to 0.7 ms."""
    assert 2e4 < found["product_bytes"] < 3e6
    assert 2e-5 < found["compiling"] < 0.1


@pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="torch multiplies without oneDNN here"
)
def test_each_product_is_compiled_once(capfd: pytest.CaptureFixture[str]) -> None:
    """Six for scratch memory, then 600 new ones, then the same ones again."""
    with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON_CREATION):
        products.new_products()
    made = re.findall(r"create:cache_(hit|miss),cpu,matmul,", capfd.readouterr().out)
    assert len(made) == 6 + 600 + 600
    assert set(made[6:606]) == {"miss"}
    assert set(made[606:]) == {"hit"}
