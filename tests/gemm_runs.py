"""One place that runs a GEMM of any kernel in tests."""

from typing import Any

import numpy as np

from ptxgen.emission import make_plan
from ptxgen.epilogue import D_SCALE_BLOCK
from ptxgen.epilogue_reference import row_scales
from ptxgen.exact_model import quantised
from ptxgen.launch import Device
from ptxgen.operands import Operands, make_operands
from ptxgen.problem import Gemm
from ptxgen.renderer import render
from ptxgen.trial import Run, run_operands


def run_gemm(device: Device, problem: Gemm, config: Any, operands: Operands) -> Run:
    """Run `problem` with `config` (None = the default one) on few SMs, so that CTAs are reused."""
    plan = make_plan(problem, config, num_sms=4)
    return run_operands(problem, operands, plan.launch, render(plan).text, device)


def is_exact(device: Device, problem: Gemm, config: Any = None) -> bool:
    """Whether integer operands give exactly numpy's D, and nothing else was written."""
    operands = make_operands(problem, "integers")
    run = run_gemm(device, problem, config, operands)
    x = operands
    want = problem.reference(x.a, x.b, x.scale_a, x.scale_b, x.c, x.bias)
    scale = x.d_scale
    if problem.epilogue.amax and run.amax != np.max(np.abs(want)):
        return False
    if run.d_scale is not None:
        scales = row_scales(want)
        if not np.array_equal(run.d_scale, scales):
            return False
        scale = np.repeat(scales, D_SCALE_BLOCK, axis=1)[:, : problem.d_columns]
    rounded = quantised(problem, want.astype(np.float32), scale)
    return np.array_equal(run.d, rounded) and not run.stray_bytes
