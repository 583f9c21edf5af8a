"""One place that runs a GEMM of any kernel in tests."""

from typing import Any

from ptxgen.emission import make_plan
from ptxgen.launch import Device
from ptxgen.operands import Operands
from ptxgen.problem import Gemm
from ptxgen.renderer import render
from ptxgen.trial import Run, run_operands


def run_gemm(device: Device, problem: Gemm, config: Any, operands: Operands) -> Run:
    """Run `problem` with `config` (None = the default one) on few SMs, so that CTAs are reused."""
    plan = make_plan(problem, config, num_sms=4)
    return run_operands(problem, operands, plan.launch, render(plan).text, device)
