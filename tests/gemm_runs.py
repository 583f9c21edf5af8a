"""One place that runs a GEMM on a device and looks at every byte around the result."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxgen.dtypes import dtype
from ptxgen.emission import make_plan
from ptxgen.launch import Device
from ptxgen.operands import POISON, Operands
from ptxgen.packing import storage
from ptxgen.problem import MICRO_SCALES, Gemm
from ptxgen.quantize import numpy_dtype
from ptxgen.renderer import render
from ptxgen.scale_tiles import pack_scales

GUARD_BYTES = 512
"""Poisoned bytes before and after every operand."""


@dataclass(frozen=True)
class Run:
    """What a device left behind."""

    d: Any
    """D, shape [M,N]."""
    outside_untouched: bool
    """Whether guard bytes and the gaps between rows of D kept their poison."""


def run_gemm(device: Device, problem: Gemm, config: Any, operands: Operands) -> Run:
    """Run `problem` with every operand inside its own guarded allocation.

    A, B and D start at addresses that are exactly as aligned as the problem says.
    """
    plan = make_plan(problem, config, num_sms=4)
    arrays = {"a": operands.a, "b": operands.b}
    if operands.scale_a is not None and operands.scale_b is not None:
        arrays |= {"scale_a": operands.scale_a, "scale_b": operands.scale_b}
    extents = {b.name: b.nbytes for b in plan.launch.buffers}
    starts = {
        name: GUARD_BYTES + getattr(problem, f"{name}_alignment", 256) % 256 for name in extents
    }
    bases = {}
    try:
        for name, nbytes in extents.items():
            bases[name] = device.alloc(starts[name] + nbytes + GUARD_BYTES)
            image = np.full(starts[name] + nbytes + GUARD_BYTES, POISON, np.uint8)
            if name in arrays and nbytes:
                image[starts[name] : starts[name] + nbytes] = _bytes(problem, name, arrays[name])[
                    :nbytes
                ]
            device.write(bases[name], image.tobytes())
        addresses = {name: base + starts[name] for name, base in bases.items()}
        if problem.m and problem.n:
            device.launch(plan.launch, render(plan).text, addresses)
        nbytes = starts["d"] + extents["d"] + GUARD_BYTES
        whole = np.frombuffer(device.read(bases["d"], nbytes), np.uint8)
    finally:
        for base in bases.values():
            device.free(base)
    d, outside = _split(problem, whole, starts["d"])
    return Run(d, bool((outside == POISON).all()))


def _bytes(problem: Gemm, name: str, x: Any) -> Any:
    """What an operand is in memory; formats below 8 bits and micro scales are packed."""
    if name in ("a", "b") and dtype(getattr(problem, name)).is_packed:
        return np.frombuffer(storage(x, getattr(problem, name)), np.uint8)
    if name in ("scale_a", "scale_b") and problem.scale in MICRO_SCALES:
        return pack_scales(x)
    return _storage(x)


def _storage(x: Any) -> Any:
    """The bytes under a view whose gaps belong to it, from its first element on."""
    base = x
    while isinstance(base.base, np.ndarray) and not base.flags.c_contiguous:
        base = base.base
    return np.ascontiguousarray(base).reshape(-1).view(np.uint8)


def _split(problem: Gemm, whole: Any, start: int) -> tuple[Any, Any]:
    """D out of the bytes of its allocation, in which it begins at `start`, and all other bytes."""
    kind = numpy_dtype(problem.d)
    row_bytes, stride = problem.n * kind.itemsize, problem.stride("d") * kind.itemsize
    places = start + stride * np.arange(problem.m)[:, None] + np.arange(row_bytes)[None, :]
    inside = np.zeros(whole.shape, bool)
    inside[places] = True
    return whole[places].view(kind).reshape(problem.m, problem.n), whole[~inside]
