"""The exact gradient in sectors that exchange, and in other precisions."""

from pathlib import Path

import pytest
import torch

from bigtrk.audit.gradients import parts_of
from bigtrk.audit.names import Way
from bigtrk.audit.same_gradient import same_gradients
from bigtrk.errors import InputError
from bigtrk.proof import lockstep
from bigtrk.records.audit import SameGradient
from bigtrk.training.model_files import build_model
from tests.audit.small import configuration, exact_of, plain_gradient, subject

pytestmark = pytest.mark.usefixtures("alone")


def found(data: Path, *ways: Way, name: str = "interaction") -> dict[str, SameGradient]:
    model = {"name": name, "hidden": 8, **({} if name == "mlp" else {"layers": 3})}
    audited = subject(data / "sectors", configuration(data, model=model), 2)
    made = build_model(audited.configuration)
    record = same_gradients(ways, audited, made, exact_of(audited, made), "test")
    return {one.way: one for one in record}


@pytest.mark.parametrize("name", ["interaction", "attention", "mlp"])
def test_sectors_that_exchange_have_the_exact_gradient(data: Path, name: str) -> None:
    record = found(data, Way.EXCHANGE, name=name)
    assert list(record) == ["exchange in float64", "exchange in fp32"]
    double, single = record.values()
    assert double.worst <= 1e-12
    assert single.worst <= 1e-6
    assert double.exact
    assert single.exact
    assert max(double.parts.values()) < 1e-11


def test_a_wrong_exchange_is_not_exact(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = lockstep.exchanged

    def stale(owned: list[torch.Tensor], sectors: list[object]) -> list[torch.Tensor]:
        return [rows.roll(1, 0) for rows in right(owned, sectors)]  # type: ignore[arg-type]

    monkeypatch.setattr(lockstep, "exchanged", stale)
    record = found(data, Way.EXCHANGE)
    assert all(one.exact is False for one in record.values())


def test_a_model_that_cannot_go_on_in_sectors_is_named(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise lockstep.SectorError("fails for a sector")

    monkeypatch.setattr(lockstep, "exchanged", fails)
    with pytest.raises(InputError, match=r"event0+: .* fails for a sector; 'bigtrk check-model'"):
        found(data, Way.EXCHANGE)


def test_precisions_beside_float64(data: Path) -> None:
    record = found(data, Way.PRECISION)
    assert list(record) == ["fp32", "bf16"]
    assert record["fp32"].worst < 1e-5 < 1e-4 < record["bf16"].difference < 0.3
    assert record["bf16"].exact is None
    assert 0.9 < record["bf16"].cosine < 1


def test_bf16_is_as_far_from_plain_float64_as_is_told(data: Path) -> None:
    """Both gradients by plain autograd, in float64 and in the bf16 that the model knows."""
    record = found(data, Way.PRECISION)["bf16"]
    apart, wanted = [], []
    audited = subject(data / "sectors", configuration(data, model={"hidden": 8, "layers": 3}), 2)
    narrow = build_model(audited.in_bf16().configuration)
    double = build_model(audited.configuration).double()
    for source in audited.sources:
        whole = source.read(0, 1)
        every = torch.arange(whole.n_nodes), torch.arange(whole.n_edges)
        counted = torch.ones(whole.n_edges, dtype=torch.bool)
        exact = plain_gradient(double, whole, *every, counted)
        apart.append(plain_gradient(narrow, whole, *every, counted).double() - exact)
        wanted.append(exact)
    difference, mean = torch.stack(apart).mean(0), torch.stack(wanted).mean(0)
    assert record.difference == pytest.approx(float(difference.norm() / mean.norm()), rel=1e-4)
    for part, rows in parts_of(double).items():
        expected = float(difference[rows].norm() / mean[rows].norm())
        assert record.parts[part] == pytest.approx(expected, rel=1e-3)
