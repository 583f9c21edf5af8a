"""Recheck: compares accumulators with numpy's partial sums after every k-step of a running GEMM.

It knows the operands and nothing of the kernel's plan: which tile and k-step an instruction
belongs to follows from what it computed. Operands must be integers, so that sums are exact.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.observer import Observer, Product
from ptxgen.errors import ProblemError, WrongResultError
from ptxgen.operands import Operands, make_operands
from ptxgen.problem import MICRO_SCALES, Gemm

Matrix = NDArray[np.float32]
MAX_CELLS = 1 << 27
"""M x N x k-steps that are held as float32."""


@dataclass
class _Tile:
    """One accumulator and the part of D that it sums up."""

    row: int
    column: int
    next_step: int = 0
    sums: Matrix = field(default_factory=lambda: np.zeros((0, 0), np.float32))


class Recheck(Observer):
    """Follows every wgmma and tcgen05.mma of a GEMM. Raises WrongResultError at the first one that
    leaves other sums than numpy's."""

    wants_products = True

    def __init__(self, problem: Gemm, operands: Operands | None = None) -> None:
        """Raises: ProblemError for a problem with scales inside the product, or a large one."""
        if problem.scale in MICRO_SCALES:
            raise ProblemError(
                f"recheck compares products of A and B, but scale={problem.scale} is applied "
                "inside of them; try scale=none"
            )
        self.problem = problem
        operands = operands or make_operands(problem, "integers")
        a = operands.a if problem.layout[0] == "n" else operands.a.T
        b = operands.b if problem.layout[1] == "t" else operands.b.T
        self._a, self._b = (np.asarray(x).astype(np.float32) for x in (a, b))
        self._steps: Matrix | None = None
        """Product of every k-step, shape (steps, M, N), zeros around."""
        self._k = 0
        self._shape = 1, 1
        self._tiles: dict[tuple[int, int], _Tile] = {}
        self._by_sums: dict[bytes, _Tile] = {}
        """Tile of every accumulator, by its content."""
        self.num_products = 0
        """Instructions compared so far."""

    def on_product(self, product: Product) -> None:
        """Compare one accumulator.

        Raises: WrongResultError naming k-step, tile, and what is there instead.
        """
        self.num_products += 1
        d = product.d.astype(np.float32)
        steps = self._products(product.k, d.shape)
        if not d.any() and (product.before is None or not product.before.any()):
            return  # rows or columns beyond D; `finish` sees if others were left out
        if product.before is None:
            found = self._identify(d, steps)
            if found is None:
                raise self._stranger(product, d)
            tile, step = found
            expected = _part(steps[step], tile, d.shape)
        else:
            before = product.before.astype(np.float32)
            known = self._by_sums.get(before.tobytes())
            if known is None:
                raise WrongResultError(
                    f"PTX line {product.origin.line}, {_who(product)}: the accumulators hold no "
                    "sum that a k-step has left; they were changed in between, or never set"
                )
            tile, step = known, known.next_step
            if step >= len(steps):
                raise self._too_many(product, tile)
            expected = before + _part(steps[step], tile, d.shape)
        if not np.array_equal(d, expected):
            raise self._mismatch(product, tile, step, d, expected, steps)
        self._by_sums.pop(tile.sums.tobytes(), None)
        tile.sums = d
        tile.next_step = step + 1
        self._by_sums[d.tobytes()] = tile

    def finish(self) -> None:
        """Look whether every tile got all of its k-steps, once the run is over.

        Raises: WrongResultError.
        """
        if self._steps is None:
            raise WrongResultError("no wgmma or tcgen05.mma was executed: nothing was compared")
        count = -(-self._a.shape[1] // self._k)
        for row in range(0, self._a.shape[0], self._shape[0]):
            for column in range(0, self._b.shape[0], self._shape[1]):
                tile = self._tiles.get((row, column), _Tile(row, column))
                if tile.next_step < count:
                    raise WrongResultError(
                        f"the tile D[{row}:{row + self._shape[0]}, {column}:"
                        f"{column + self._shape[1]}] got k-steps 0 to {tile.next_step - 1} of "
                        f"{count}"
                    )

    def _products(self, k: int, shape: tuple[int, ...]) -> Matrix:
        """The product of every k-step; zeros beyond M, N and K."""
        if self._steps is not None and self._k == k:
            return self._steps
        m = -(-self._a.shape[0] // shape[0]) * shape[0]
        n = -(-self._b.shape[0] // shape[1]) * shape[1]
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
        self._steps, self._k, self._shape = steps, k, (shape[0], shape[1])
        return steps

    def _identify(self, d: Matrix, steps: Matrix) -> tuple[_Tile, int] | None:
        """The tile and k-step whose product a fresh accumulator holds; the likeliest if several."""
        found = None
        for row in range(0, steps.shape[1], d.shape[0]):
            for column in range(0, steps.shape[2], d.shape[1]):
                tile = self._tiles.setdefault((row, column), _Tile(row, column))
                for step in range(len(steps)):
                    if np.array_equal(_part(steps[step], tile, d.shape), d):
                        if step == tile.next_step:
                            return tile, step
                        found = found or (tile, step)
        return found

    # Messages

    def _where(self, product: Product, tile: _Tile, step: int) -> str:
        m, n = product.d.shape
        first, last = step * product.k, (step + 1) * product.k - 1
        return (
            f"PTX line {product.origin.line}, {_who(product)}: k-step {step} (k {first} to {last}) "
            f"of the tile D[{tile.row}:{tile.row + m}, {tile.column}:{tile.column + n}]"
        )

    def _mismatch(
        self, product: Product, tile: _Tile, step: int, d: Matrix, expected: Matrix, steps: Matrix
    ) -> WrongResultError:
        wrong = d != expected
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        message = (
            f"{self._where(product, tile, step)}: {int(wrong.sum())} of {wrong.size} sums differ "
            f"from numpy's, first D[{tile.row + row},{tile.column + column}]: "
            f"{d[row, column]:g}, not {expected[row, column]:g}"
        )
        if np.isnan(d).any():
            return WrongResultError(
                f"{message}; operands were read that had not been written (poison)"
            )
        added = d if product.before is None else d - product.before.astype(np.float32)
        for other in range(len(steps)):
            if other != step and np.array_equal(added, _part(steps[other], tile, d.shape)):
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

    def _too_many(self, product: Product, tile: _Tile) -> WrongResultError:
        return WrongResultError(
            f"{self._where(product, tile, tile.next_step)}: there are no so many k-steps"
        )


def _part(whole: Matrix, tile: _Tile, shape: tuple[int, ...]) -> Matrix:
    return whole[tile.row : tile.row + shape[0], tile.column : tile.column + shape[1]]


def _who(product: Product) -> str:
    return f"CTA {product.origin.cta} warp {product.origin.warp}"
