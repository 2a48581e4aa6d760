"""Atomic instructions are found in PTX as compilers and people write it, and nothing else is."""

import pytest

from tests.models.ptx import atomics

KERNEL = "\tmov.u32 %r1, 0x0;\n{}\n\tret;\n"


@pytest.mark.parametrize(
    "statement",
    [
        "atom.global.add.f32 %f1, [%rd1], %f2;",
        "atom.global.gpu.acq_rel.add.f32 %r1, [ %rd1 + 0 ], %r2;",
        "red.global.add.f32 [%rd1], %f1;",
        "red.relaxed.gpu.global.add.noftz.f16 [%rd1], %h1;",
        "red.relaxed.gpu.global.add.noftz.f16x2 [%rd1], %r1;",
        "atom.global.add.noftz.bf16 %h1, [%rd1], %h2;",
        "atom.global.add.noftz.bf16x2 %r1, [%rd1], %r2;",
        "red.global.add.v2.f32 [%rd1], {%f1, %f2};",
        "atom.global.v4.f32.add {%f1, %f2, %f3, %f4}, [%rd1], {%f5, %f6, %f7, %f8};",
        "atom.add.f64 %fd1, [%rd1], %fd2;",
        "atom.shared.cas.b32 %r1, [%r2], %r3, %r4;",
        "red.async.relaxed.cluster.mbarrier::complete_tx::bytes.add.u32 [%r1], %r2, [%r3];",
        "multimem.red.relaxed.sys.global.add.v4.bf16x2 [%rd1], {%r1, %r2, %r3, %r4};",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd1], [%r1], %r2;",
        "cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.bulk_group [%rd1, {%r1}], [%r2];",
    ],
)
@pytest.mark.parametrize(
    "line",
    ["\t{}", "@%p1 {}", "\t@!%p1 {}", "{{ setp.ne.b32 p, %r1, 0; @p {} }}", "$L__BB0_2: {}"],
)
def test_an_atomic_instruction_is_found(statement: str, line: str) -> None:
    assert atomics(KERNEL.format(line.format(statement))) == [statement.split()[0]]


@pytest.mark.parametrize(
    "line",
    [
        "redux.sync.add.s32 %r1, %r2, 0xffffffff;",
        "multimem.ld_reduce.global.add.f32 %f1, [%rd1];",
        "rsqrt.approx.ftz.f32 %f1, %f2;",
        "ld.shared.f32 %f1, [%r1];",
        "cp.async.bulk.commit_group;",
        "@%p1 bra $L__red;",
        "$L__red:",
        "add.f32 %red1, %atom1, %f2;",
        "// red.global.add.f32 [%rd1], %f1;",
        '.file 1 "/kernels/red.py"',
    ],
)
def test_nothing_else_is_taken_for_one(line: str) -> None:
    assert atomics(KERNEL.format(line)) == []


def test_each_one_is_counted() -> None:
    line = "@%p1 red.global.add.f32 [%rd1], %f1; atom.global.add.f64 %fd1, [%rd1], %fd2;"
    assert len(atomics(KERNEL.format(f"{line}\n\t{line}"))) == 4
