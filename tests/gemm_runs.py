"""One place that runs a GEMM of any kernel in tests."""

from typing import Any

import numpy as np

from ptxgen.emission import make_plan
from ptxgen.launch import Device
from ptxgen.operands import Operands, make_operands
from ptxgen.problem import Gemm
from ptxgen.quantize import numpy_dtype
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
    want = problem.reference(operands.a, operands.b, operands.scale_a, operands.scale_b)
    return np.array_equal(run.d, want.astype(numpy_dtype(problem.d))) and not run.stray_bytes
