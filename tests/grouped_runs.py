"""One place that runs a grouped GEMM in tests."""

from typing import Any

import numpy as np

from ptxgen.grouped_exact import shared_by_segment
from ptxgen.grouped_operands import GroupedOperands
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.grouped_trial import run_operands
from ptxgen.kernels import kernel_of
from ptxgen.launch import Device
from ptxgen.quantize import numpy_dtype
from ptxgen.renderer import render
from ptxgen.trial import Run


def run_grouped(
    device: Device, problem: GroupedGemm, config: Any, operands: GroupedOperands, num_sms: int = 4
) -> Run:
    """Run `problem` with `config` on few SMs, so that CTAs walk from group to group."""
    plan = kernel_of(config).plan(problem, config, num_sms)
    return run_operands(problem, operands, plan.launch, render(plan).text, device)


def is_exact(
    device: Device, problem: GroupedGemm, config: Any, operands: GroupedOperands, num_sms: int = 4
) -> bool:
    """Whether integer operands give exactly numpy's D, and nothing else was written."""
    run = run_grouped(device, problem, config, operands, num_sms)
    want = problem.reference(
        operands.sizes, operands.a, operands.b, operands.scale_a, operands.scale_b, operands.c
    )
    want = want.astype(np.float32).astype(numpy_dtype(problem.d)).astype(np.float32)
    same = np.array_equal(run.d.astype(np.float32), want, equal_nan=True)
    return bool(same and not run.stray_bytes)


def assert_shares_a_tile(problem: GroupedGemm, config: Any, sizes: Any, num_sms: int) -> None:
    """A test of stream_k must share a tile, or it tests nothing. sizes: what the device reads."""
    ctas = kernel_of(config).plan(problem, config, num_sms).launch.grid_ctas[0]
    shared = shared_by_segment(problem, config, problem.segments(sizes), ctas)
    assert any(shared.values()), "the case must share a tile"
