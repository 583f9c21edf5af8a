"""One place that runs a grouped GEMM on a device and looks at every byte around the result."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxgen.grouped_operands import GroupedOperands
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.kernels import grouped_sm90
from ptxgen.launch import Device
from ptxgen.operands import POISON
from ptxgen.quantize import numpy_dtype
from ptxgen.renderer import render

GUARD_BYTES = 512
"""Poisoned bytes before and after every operand."""


@dataclass(frozen=True)
class Run:
    """What a device left behind."""

    d: Any
    """D of d_shape; rows of no group hold what was there before: poison."""
    outside_untouched: bool
    """Whether guard bytes, gaps and rows that belong to no group kept their poison."""


def run_grouped(
    device: Device, problem: GroupedGemm, config: Any, operands: GroupedOperands, num_sms: int = 4
) -> Run:
    """Run `problem` with every operand inside its own guarded allocation."""
    plan = grouped_sm90.plan(problem, config, num_sms)
    contents = operands.contents()
    extents = {b.name: b.nbytes for b in plan.launch.buffers}
    bases = {}
    try:
        for name, nbytes in extents.items():
            image = np.full(2 * GUARD_BYTES + nbytes, POISON, np.uint8)
            if name in contents and nbytes:
                image[GUARD_BYTES : GUARD_BYTES + nbytes] = contents[name]
            bases[name] = device.alloc(image.nbytes)
            device.write(bases[name], image.tobytes())
        addresses = {name: base + GUARD_BYTES for name, base in bases.items()}
        device.launch(plan.launch, render(plan).text, addresses)
        whole = np.frombuffer(device.read(bases["d"], extents["d"] + 2 * GUARD_BYTES), np.uint8)
    finally:
        for base in bases.values():
            device.free(base)
    return _split(problem, operands, whole)


def _split(problem: GroupedGemm, operands: GroupedOperands, whole: Any) -> Run:
    kind = numpy_dtype(problem.d)
    matrices, rows, columns = problem.d_shape
    steps = [problem.group_stride("d"), problem.stride("d"), 1]
    index = np.indices(problem.d_shape).reshape(3, -1)
    places = GUARD_BYTES + (np.asarray(steps) @ index) * kind.itemsize
    places = places[:, None] + np.arange(kind.itemsize)
    values = whole[places].view(kind).reshape(problem.d_shape)
    used = np.zeros((matrices, rows), bool)
    if problem.mode == "kgrouped":
        used[:] = True
    else:
        for segment in problem.segments(operands.sizes):
            matrix = segment.group if matrices > 1 else 0
            used[matrix, segment.start : segment.start + segment.length] = True
    inside = np.zeros(whole.shape, bool)
    wanted = np.repeat(used.reshape(-1), columns)
    inside[places[wanted]] = True
    return Run(values, bool((whole[~inside] == POISON).all()))


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
    return bool(same and run.outside_untouched)
