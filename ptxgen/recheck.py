"""Recheck: compares accumulators with numpy's partial sums after every k-step of a running GEMM.

It knows the operands and nothing of the kernel's plan: which tile and k-step an instruction
belongs to follows from what it computed. Operands must be integers, so that sums are exact.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.observer import Observer, Product
from ptxgen.errors import ProblemError, WrongResultError
from ptxgen.operands import Operands, make_operands
from ptxgen.problem import MICRO_SCALES, Gemm

Matrix = NDArray[np.float32]
MAX_CELLS = 1 << 27
"""M x N x k-steps that are held as float32."""
MAX_COLUMNS = 256
"""The widest accumulator of wgmma and tcgen05.mma."""
COLUMN_STEP = 8
"""Tiles start at multiples of it: N of an instruction is one, and the last tiles may be narrower.
Source: PTX ISA 9.0, "Matrix Shape" of wgmma and of tcgen05."""


@dataclass(frozen=True)
class _Sum:
    """What an accumulator holds: a part of the whole product, up to a k-step."""

    row: int
    column: int
    step: int


class Recheck(Observer):
    """Follows every wgmma and tcgen05.mma of a GEMM. Raises WrongResultError at the first one that
    leaves other sums than numpy's."""

    wants_products = True

    def __init__(
        self, problem: Gemm, operands: Operands | None = None, *, swapped: bool = False
    ) -> None:
        """swapped: the kernel computes the transposed D, as B times A.

        Raises: ProblemError for a problem with scales inside the product, or a large one.
        """
        if problem.scale in MICRO_SCALES:
            raise ProblemError(
                f"recheck compares products of A and B, but scale={problem.scale} is applied "
                "inside of them; try scale=none"
            )
        operands = operands or make_operands(problem, "integers")
        a = operands.a if problem.layout[0] == "n" else operands.a.T
        b = operands.b if problem.layout[1] == "t" else operands.b.T
        if swapped:
            a, b = b, a
        self._a, self._b = (np.asarray(x).astype(np.float32) for x in (a, b))
        self._name = "D^T" if swapped else "D"
        self._steps: Matrix | None = None
        """Product of every k-step, shape (steps, rows, columns), zeros around."""
        self._done: NDArray[np.bool_] = np.zeros((0, 0, 0), np.bool_)
        """Whether some accumulator got it, of the same shape."""
        self._held: dict[bytes, _Sum] = {}
        """What accumulators hold, by their content."""
        self.num_products = 0
        """Instructions compared so far."""

    def on_product(self, product: Product) -> None:
        """Compare one accumulator.

        Raises: WrongResultError naming k-step, tile, and what is there instead.
        """
        self.num_products += 1
        d = product.d.astype(np.float32)
        steps = self._products(product.k, d.shape)
        before = None if product.before is None else product.before.astype(np.float32)
        fresh = before is None or not before.any()
        if not d.any() and fresh:
            return  # beyond D, or a product of zeros; `finish` sees if others were left out
        known = None if before is None else self._held.get(before.tobytes())
        if known is not None:
            found = _Sum(known.row, known.column, known.step + 1)
            if found.step >= len(steps):
                raise self._too_many(product, found)
        elif fresh:
            identified = self._identify(d, steps)
            if identified is None:
                raise self._stranger(product, d)
            found = identified
        else:
            raise WrongResultError(
                f"PTX line {product.origin.line}, {_who(product)}: the accumulators hold no sum "
                "that a k-step has left; they were changed in between, or never set"
            )
        expected = _part(steps[found.step], found, d.shape)
        if before is not None:
            expected = before + expected
            self._held.pop(before.tobytes(), None)
        if not np.array_equal(d, expected):
            raise self._mismatch(product, found, d, expected, steps)
        _part(self._done[found.step], found, d.shape)[...] = True
        self._held[d.tobytes()] = found

    def finish(self) -> None:
        """Look whether every tile got all of its k-steps, once the run is over.

        Raises: WrongResultError.
        """
        if not self._a.any() or not self._b.any():
            return  # no rows, no columns, no K: there is nothing to sum up
        if self._steps is None:
            raise WrongResultError("no wgmma or tcgen05.mma was executed: nothing was compared")
        missing = np.argwhere((self._steps != 0) & ~self._done)
        if len(missing):
            step, row, column = (int(i) for i in missing[0])
            raise WrongResultError(
                f"{len(missing)} products of k-steps were never added, first that of k-step {step} "
                f"to {self._name}[{row},{column}]"
            )

    def _products(self, k: int, shape: tuple[int, ...]) -> Matrix:
        """The product of every k-step; zeros beyond M, N and K."""
        if self._steps is not None:
            return self._steps
        m = -(-self._a.shape[0] // shape[0]) * shape[0]
        n = self._b.shape[0] + MAX_COLUMNS
        count = -(-self._a.shape[1] // k) + 8  # tiles are longer than K
        if m * n * count > MAX_CELLS:
            raise ProblemError(
                f"recheck holds M x N x k-steps = {m} x {n} x {count} partial products, at most "
                f"{MAX_CELLS}; try a smaller problem"
            )
        steps = np.zeros((count, m, n), np.float32)
        for index in range(count - 8):
            part = slice(index * k, (index + 1) * k)
            steps[index, : self._a.shape[0], : self._b.shape[0]] = (
                self._a[:, part] @ self._b[:, part].T
            )
        self._steps, self._done = steps, np.zeros(steps.shape, np.bool_)
        return steps

    def _identify(self, d: Matrix, steps: Matrix) -> _Sum | None:
        """Whose product a fresh accumulator holds: one that nobody has had yet, if several."""
        found = None
        for row in range(0, steps.shape[1], d.shape[0]):
            for column in range(0, self._b.shape[0], COLUMN_STEP):
                # One row tells nearly all apart.
                likely = steps[:, row, column : column + d.shape[1]] == d[0]
                for step in np.flatnonzero(likely.all(axis=1)):
                    one = _Sum(row, column, int(step))
                    if np.array_equal(_part(steps[step], one, d.shape), d):
                        if not self._done[step, row, column]:
                            return one
                        found = found or one
        return found

    # Messages

    def _where(self, product: Product, at: _Sum) -> str:
        m, n = product.d.shape
        first, last = at.step * product.k, (at.step + 1) * product.k - 1
        return (
            f"PTX line {product.origin.line}, {_who(product)}: k-step {at.step} (k {first} to "
            f"{last}) of the tile {self._name}[{at.row}:{at.row + m}, {at.column}:{at.column + n}]"
        )

    def _mismatch(
        self, product: Product, at: _Sum, d: Matrix, expected: Matrix, steps: Matrix
    ) -> WrongResultError:
        wrong = d != expected
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        message = (
            f"{self._where(product, at)}: {int(wrong.sum())} of {wrong.size} sums differ "
            f"from numpy's, first {self._name}[{at.row + row},{at.column + column}]: "
            f"{d[row, column]:g}, not {expected[row, column]:g}"
        )
        if np.isnan(d).any():
            return WrongResultError(
                f"{message}; operands were read that had not been written (poison)"
            )
        added = d if product.before is None else d - product.before.astype(np.float32)
        for other in range(len(steps)):
            if other != at.step and np.array_equal(added, _part(steps[other], at, d.shape)):
                return WrongResultError(f"{message}; it added k-step {other} instead")
        return WrongResultError(message)

    def _stranger(self, product: Product, d: Matrix) -> WrongResultError:
        poison = int(np.isnan(d).sum())
        found = "the operands in shared memory are wrong, or laid out wrongly"
        if poison:
            found = f"{poison} of {d.size} sums are poison: operands were read too early"
        return WrongResultError(
            f"PTX line {product.origin.line}, {_who(product)}: an accumulator starts with the "
            f"product of no tile and k-step of this problem; {found}"
        )

    def _too_many(self, product: Product, at: _Sum) -> WrongResultError:
        return WrongResultError(f"{self._where(product, at)}: there are no so many k-steps")


def _part(whole: NDArray[Any], at: _Sum, shape: tuple[int, ...]) -> NDArray[Any]:
    return whole[at.row : at.row + shape[0], at.column : at.column + shape[1]]


def _who(product: Product) -> str:
    return f"CTA {product.origin.cta} warp {product.origin.warp}"
