"""check: is what was timed right? Looked at on the timed buffers, before the timing.

Ours: elements at the crossings of seeded rows and columns, tile edges among them, equal the
bit-exact model of the tensor core (ptxgen.verification), in every copy of D; and every element was
written. Peers may sum in another order, so theirs are compared within a tolerance.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxgen.benchmark.method import Contender
from ptxgen.benchmark.workload import Workload
from ptxgen.dtypes import dtype
from ptxgen.errors import WrongResultError
from ptxgen.exact_model import exact_result
from ptxgen.operands import POISON, Operands
from ptxgen.problem import FP8, PROMOTION_K, Gemm

Array = np.ndarray[Any, Any]

SAMPLE = 34
"""Random rows, and columns, beside the edges: more than 1024 elements."""
MMA_K_BYTES = 32
EXACT, TOLERANT = "bitwise, exact tensor-core model", "tolerance"
"""How results are compared: ours, and peers'."""
FRACTION_BITS = {True: 13, False: 24}
"""Bits below the largest term that a fused sum keeps, for FP8 (True) and others.
Source: MMA-Sim, arXiv 2511.10909; measured on an H200 (docs/hardware-findings.md)."""


@dataclass(frozen=True)
class Check:
    """What looking at a result found."""

    ok: bool
    elements: int
    """Elements compared, over all copies."""
    wrong: int
    """Of these, how many differ: in any bit (ours), or beyond the tolerance (peers)."""
    unwritten: int
    """Elements of one copy of D that still hold the poison; of peers, compared ones alone."""
    max_error: float
    """Largest error of a compared element, over the RMS of all of them."""
    how: str

    def require(self, name: str) -> None:
        """Raises: WrongResultError if the result is wrong."""
        if not self.ok:
            raise WrongResultError(
                f"{name}: {self.wrong} of {self.elements} compared elements are wrong "
                f"({self.how}), {self.unwritten} were not written; largest error "
                f"{self.max_error:.3g} of the RMS; must be right before it is timed"
            )


@dataclass(frozen=True)
class Expected:
    """Elements of D that must come out."""

    rows: Array
    columns: Array
    values: Array
    """D at the crossings, as the exact model gives it."""
    tolerance: Array | None
    """Largest error of each element; None = equal bit for bit."""


def sample_indices(extent: int, tile: int, seed: int) -> Array:
    """Indices below `extent`: edges of the first and last tile of `tile`, and random others."""
    last = (extent - 1) // tile * tile
    edges = {0, tile - 1, tile, last - 1, last, extent - 1}
    random = np.random.default_rng(seed).integers(0, extent, SAMPLE)
    return np.asarray(sorted({e for e in edges if 0 <= e < extent} | set(random.tolist())))


def expect(
    problem: Gemm, operands: Operands, tile: tuple[int, int], exact: bool, seed: int = 0,
    k_parts: Sequence[tuple[int, int]] | None = None, unit: str = "wgmma",
) -> Expected:  # fmt: skip
    """What the kernel (exact) or a peer must give for some elements of D.

    k_parts: the parts of K that the kernel sums on their own; unit: its instruction; see
    `exact_result`.
    """
    rows = sample_indices(problem.m, tile[0], seed)
    columns = sample_indices(problem.n, tile[1], seed + 1)
    values = exact_result(problem, operands, rows, columns, unit, k_parts)
    return Expected(rows, columns, values, None if exact else tolerance(problem, values))


def tolerance(problem: Gemm, values: Array) -> Array:
    """How far two orders of summation may lie apart, for operands of both signs.

    One step's truncation is a share 2^-F of the running sum, whose size is that of the results.
    """
    steps = -(-problem.k * dtype(problem.a).bytes // MMA_K_BYTES)
    if problem.accumulate == "promoted":
        steps = min(steps, PROMOTION_K * dtype(problem.a).bytes // MMA_K_BYTES)
    share = 4 * steps * 2.0 ** -FRACTION_BITS[problem.a in FP8] + 2.0**-20
    size = np.abs(values.astype(np.float64))
    rms = float(np.sqrt(np.mean(size**2)))
    rounding = 2.0 ** -dtype(problem.d).mantissa_bits
    return np.asarray(rounding * size + share * np.maximum(size, rms))


def check(workload: Workload, contender: Contender, expected: Expected) -> Check:
    """Poison every copy of D, replay once, and compare."""
    workload.poison_d()
    contender.replay(0, 1)
    ours = expected.tolerance is None
    unwritten = count_poison(workload.read_d(workload.copies[0])) if ours else 0
    wrong, elements, worst = 0, 0, 0.0
    for copy in workload.copies:
        found = workload.read_d_rows(copy, expected.rows)[:, expected.columns]
        unwritten += 0 if ours else count_poison(found)
        bad, error = compare_values(found, expected)
        wrong += bad
        elements += found.size
        worst = max(worst, error)
    return Check(
        wrong == 0 and unwritten == 0, elements, wrong, unwritten, worst,
        EXACT if ours else TOLERANT,
    )  # fmt: skip


def count_poison(values: Array) -> int:
    """Elements whose every byte is still the poison."""
    width = values.dtype.itemsize
    bits = np.ascontiguousarray(values).view(f"u{width}")
    return int(np.count_nonzero(bits == int.from_bytes(bytes([POISON]) * width, "little")))


def compare_values(found: Array, expected: Expected) -> tuple[int, float]:
    """(wrong elements, largest error over the RMS of what is expected)."""
    wanted = expected.values.astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = np.abs(found.astype(np.float64) - wanted)
    if expected.tolerance is None:
        width = found.dtype.itemsize
        bits = [np.ascontiguousarray(x).view(f"u{width}") for x in (found, expected.values)]
        wrong = bits[0] != bits[1]
    else:
        wrong = ~(error <= expected.tolerance)
    rms = float(np.sqrt(np.mean(wanted**2))) or 1.0
    largest = float(np.max(np.where(np.isfinite(error), error, np.inf)))
    return int(np.count_nonzero(wrong)), largest / rms
