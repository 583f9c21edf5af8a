"""One run of a grouped kernel on a device, with every group's result checked."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ptxgen.emulator.buffers import check_sizes
from ptxgen.grouped_exact import exact_crossings, shared_by_segment
from ptxgen.grouped_operands import GroupedOperands, make_grouped_operands
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.grouped_reference import group_operands
from ptxgen.kernels import unit_of
from ptxgen.launch import Device, Launch
from ptxgen.operands import POISON, Operands
from ptxgen.trial import GUARD_BYTES, Run, Trial, check_alpha, launch_on, poisoned_d
from ptxgen.verification import Verdict, verify

Array = np.ndarray[Any, Any]

NOTHING = Verdict(True, 0.0, (0, 0), 0.0, 0.0, 0, 0, 0.0)
"""The verdict on a group without rows."""


def run_operands(
    problem: GroupedGemm, operands: GroupedOperands, launch: Launch, ptx: str, device: Device,
    *, launches: int = 1, guard: int = GUARD_BYTES,
) -> Run:  # fmt: skip
    """Run `ptx` on `operands`, with `guard` bytes of poison around every buffer.

    D is poison before every launch, or what `operands.c` holds.

    Raises: as `Device.launch`.
    """
    contents = operands.contents()
    images = {}
    for buffer in launch.buffers:
        image = np.full(buffer.nbytes + 2 * guard, POISON, np.uint8)
        if buffer.role == "workspace":
            image[guard : guard + buffer.nbytes] = 0
        if buffer.name in contents and buffer.nbytes:
            image[guard : guard + buffer.nbytes] = contents[buffer.name]
        images[buffer.name] = (guard, image.tobytes())
    seconds, left = launch_on(device, images, launches, lambda at: device.launch(launch, ptx, at))
    d, stray = poisoned_d(problem, left["d"], guard, _parts(problem, operands))
    return Run(d, stray, seconds)


def run_grouped(
    problem: GroupedGemm, sizes: Array | None, config: Any, launch: Launch, ptx: str,
    device: Device, *, rows: Sequence[int] | None = None, data: str = "random", seed: int = 0,
    exact: bool = False, tell: Callable[[str], None] = lambda what: None,
) -> Trial:  # fmt: skip
    """Run `ptx` on operands made from `data` and `seed`, and check every group's D.

    sizes: what the device reads. config: of the kernel that `ptx` is the text of. rows: as for
    `make_grouped_operands`. exact, tell: as for `ptxgen.trial.run_gemm`.
    kgrouped: D holds zeros before, or integers where data are integers.

    Raises: ArgumentError, and as `Device.launch`.
    """
    check_alpha(problem)
    emulated = device.name == "emulator"
    unit = unit_of(config)
    if emulated:
        check_sizes(launch.buffers)
    tell("making A and B")
    operands = make_grouped_operands(problem, sizes, data, seed, rows)
    if operands.c is not None and data != "integers":
        operands = replace(operands, c=np.zeros_like(operands.c))
    tell("running the kernel")
    run = run_operands(problem, operands, launch, ptx, device, launches=1 if emulated else 2)
    tell("checking D")
    exact = exact or not emulated or data == "integers"
    worst, group = NOTHING, 0
    elements = mismatches = 0
    segments = problem.segments(sizes)
    shared = shared_by_segment(problem, config, segments, launch.grid_ctas[0])
    for segment in segments:
        inputs = group_operands(
            problem, segment, operands.a, operands.b, operands.scale_a, operands.scale_b
        )
        gemm = problem.gemm(segment.length)
        d = run.d[segment.group if problem.d_shape[0] > 1 else 0]
        if problem.mode != "kgrouped":
            d = d[segment.start : segment.start + segment.length]
        elif operands.c is not None:
            d = d - operands.c[segment.group]
        model = partial(
            exact_crossings, problem, segment, Operands(*inputs), shared[segment], unit=unit
        )
        verdict = verify(
            gemm, Operands(*inputs), d, exact=exact, tile=(config.tile_m, config.tile_n),
            seed=seed, unit=unit, model_of=model if shared[segment] else None,
        )  # fmt: skip
        elements += verdict.exact_elements
        mismatches += verdict.exact_mismatches
        if (not verdict.ok, verdict.max_error_over_bound) >= (
            not worst.ok, worst.max_error_over_bound
        ):  # fmt: skip
            worst, group = verdict, segment.group
    worst = replace(worst, exact_elements=elements, exact_mismatches=mismatches)
    first, last = run.seconds[0], run.seconds[-1]
    return Trial(
        device.name, last, max(0.0, first - last), worst, run.stray_bytes, worst_group=group
    )


def _parts(problem: GroupedGemm, operands: GroupedOperands) -> list[tuple[int, int, int]]:
    """What the kernel writes of D: (matrix, first row, number of rows)."""
    if problem.mode == "kgrouped":
        return [(group, 0, problem.m) for group in range(problem.groups)]
    several = problem.d_shape[0] > 1
    segments = problem.segments(operands.sizes)
    return [(s.group if several else 0, s.start, s.length) for s in segments]
