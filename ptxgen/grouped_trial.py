"""One run of a grouped kernel on a device, with every group's result checked."""

import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ptxgen.grouped_operands import GroupedOperands, make_grouped_operands
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.grouped_reference import group_operands
from ptxgen.launch import Device, Launch
from ptxgen.operands import POISON, Operands
from ptxgen.quantize import numpy_dtype
from ptxgen.trial import GUARD_BYTES, Trial
from ptxgen.verification import Verdict, verify

Array = np.ndarray[Any, Any]

NOTHING = Verdict(True, 0.0, (0, 0), 0.0, 0.0, 0, 0, 0.0)
"""The verdict on a group without rows."""


@dataclass(frozen=True)
class GroupedRun:
    """What a device left behind."""

    d: Array
    """D of d_shape; rows that belong to no group hold what was there before: poison."""
    stray_bytes: int
    """Bytes outside the groups' rows of D, around it or between them, that were written."""
    seconds: tuple[float, ...]
    """Of each launch, until its result was there."""


@dataclass(frozen=True)
class GroupedTrial(Trial):
    """What came of a run; the verdict is that of the worst group."""

    worst_group: int = 0


def run_operands(
    problem: GroupedGemm, operands: GroupedOperands, launch: Launch, ptx: str, device: Device,
    *, launches: int = 1, guard: int = GUARD_BYTES,
) -> GroupedRun:  # fmt: skip
    """Run `ptx` on `operands`, with `guard` bytes of poison around every buffer.

    D is poison before every launch, or what `operands.c` holds.

    Raises: as `Device.launch`.
    """
    contents = operands.contents()
    images, addresses = {}, {}
    with ExitStack() as stack:
        for buffer in launch.buffers:
            image = np.full(buffer.nbytes + 2 * guard, POISON, np.uint8)
            if buffer.name in contents and buffer.nbytes:
                image[guard : guard + buffer.nbytes] = contents[buffer.name]
            base = device.alloc(image.nbytes)
            stack.callback(device.free, base)
            images[buffer.name] = image.tobytes()
            device.write(base, images[buffer.name])
            addresses[buffer.name] = base + guard
        seconds = []
        for _ in range(launches):
            device.write(addresses["d"] - guard, images["d"])
            began = time.perf_counter()
            device.launch(launch, ptx, addresses)
            device.read(addresses["d"], 0)
            seconds.append(time.perf_counter() - began)
        raw = np.frombuffer(device.read(addresses["d"] - guard, len(images["d"])), np.uint8)
    d, stray = _split(problem, operands, raw, guard)
    return GroupedRun(d, stray, tuple(seconds))


def run_grouped(
    problem: GroupedGemm, sizes: Array | None, launch: Launch, ptx: str, device: Device, *,
    tile: tuple[int, int] = (64, 64), data: str = "random", seed: int = 0, exact: bool = False,
    unit: str = "wgmma",
) -> GroupedTrial:  # fmt: skip
    """Run `ptx` on operands made from `data` and `seed`, and check every group's D.

    sizes: what the device reads. tile, exact, unit: as for `ptxgen.trial.run_gemm`. kgrouped: D
    holds zeros before, or integers where data are integers.

    Raises: ArgumentError, and as `Device.launch`.
    """
    operands = make_grouped_operands(problem, sizes, data, seed)
    if operands.c is not None and data != "integers":
        operands = replace(operands, c=np.zeros_like(operands.c))
    emulated = device.name == "emulator"
    run = run_operands(problem, operands, launch, ptx, device, launches=1 if emulated else 2)
    exact = exact or not emulated or data == "integers"
    worst, group = NOTHING, 0
    elements = mismatches = 0
    for segment in problem.segments(sizes):
        inputs = group_operands(
            problem, segment, operands.a, operands.b, operands.scale_a, operands.scale_b
        )
        gemm = problem.gemm(segment.length)
        d = run.d[segment.group if problem.d_shape[0] > 1 else 0]
        if problem.mode != "kgrouped":
            d = d[segment.start : segment.start + segment.length]
        elif operands.c is not None:
            d = d - operands.c[segment.group]
        verdict = verify(gemm, Operands(*inputs), d, exact=exact, tile=tile, seed=seed, unit=unit)
        elements += verdict.exact_elements
        mismatches += verdict.exact_mismatches
        if (not verdict.ok, verdict.max_error_over_bound) >= (
            not worst.ok, worst.max_error_over_bound
        ):  # fmt: skip
            worst, group = verdict, segment.group
    worst = replace(worst, exact_elements=elements, exact_mismatches=mismatches)
    first, last = run.seconds[0], run.seconds[-1]
    return GroupedTrial(
        device.name, last, max(0.0, first - last), worst, run.stray_bytes, worst_group=group
    )


def _split(
    problem: GroupedGemm, operands: GroupedOperands, raw: Array, guard: int
) -> tuple[Array, int]:
    """D out of the bytes of its allocation, and how many other bytes are no longer poison."""
    kind = numpy_dtype(problem.d)
    matrices, rows, columns = problem.d_shape
    if 0 in problem.d_shape:
        return np.empty(problem.d_shape, kind), int(np.count_nonzero(raw != POISON))
    steps = (problem.group_stride("d") * kind.itemsize, problem.stride("d") * kind.itemsize, 1)
    shape = (matrices, rows, columns * kind.itemsize)
    window = np.lib.stride_tricks.as_strided
    values = np.ascontiguousarray(window(raw[guard:], shape, steps)).view(kind)
    inside = np.zeros(raw.size, bool)
    places = window(inside[guard:], shape, steps)
    if problem.mode == "kgrouped":
        places[...] = True
    else:
        for segment in problem.segments(operands.sizes):
            matrix = segment.group if matrices > 1 else 0
            places[matrix, segment.start : segment.start + segment.length] = True
    return values, int(np.count_nonzero(raw[~inside] != POISON))
