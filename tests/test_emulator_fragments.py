"""Fragment maps against the CuTe layouts of the tensor-layouts package (no shared authorship)."""

from typing import Any

import numpy as np
import pytest

from ptxgen.emulator.mma_sync import a_to_bytes, b_to_bytes, c_to_matrix
from ptxgen.emulator.wgmma import registers_to_matrix

atoms = pytest.importorskip("tensor_layouts.atoms_nv")


def by_layout(layout: Any, values: Any, rows: int) -> dict[tuple[int, int], Any]:
    """{(row, column): value} with values[v, t] placed where the layout says."""
    found = {}
    for v in range(values.shape[0]):
        for t in range(values.shape[1]):
            at = layout(t, v)
            found[at % rows, at // rows] = values[v, t]
    return found


def same(layout: Any, values: Any, matrix: Any) -> None:
    placed = by_layout(layout, values, matrix.shape[0])
    assert len(placed) == matrix.size
    assert all(matrix[at] == value for at, value in placed.items())


@pytest.mark.parametrize("n", [8, 64, 128, 256])
def test_wgmma_accumulator_is_cute_s(n: int) -> None:
    atom = getattr(atoms, f"SM90_64x{n}x16_F32F16F16_SS")
    registers = np.arange(128 * n // 2, dtype=np.uint32).reshape(n // 2, 128)
    same(atom.c_layout, registers, registers_to_matrix(registers))


@pytest.mark.parametrize(
    ("name", "size"),
    [("SM80_16x8x16_F32BF16BF16F32_TN", 2), ("SM80_16x8x8_F32F16F16F32_TN", 2),
     ("SM80_16x8x8_F32TF32TF32F32_TN", 4), ("SM80_16x8x4_F32TF32TF32F32_TN", 4),
     ("SM89_16x8x32_F32E4M3E4M3F32_TN", 1), ("SM80_16x8x16_S32S8S8S32_TN", 1)],
)  # fmt: skip
def test_mma_sync_fragments_are_cute_s(name: str, size: int) -> None:
    atom = getattr(atoms, name)
    k = int(name.split("_")[1].split("x")[2])
    dtype = {1: np.uint8, 2: np.uint16, 4: np.uint32}[size]

    def elements(registers: Any) -> Any:
        """values[v, t] of registers (n, 32), low parts first."""
        parts = registers.view(dtype).reshape(len(registers), 32, 4 // size)
        return parts.transpose(0, 2, 1).reshape(-1, 32)

    rng = np.random.default_rng(2)
    for rows, layout, to_bytes in ((16, atom.a_layout, a_to_bytes), (8, atom.b_layout, b_to_bytes)):
        registers = rng.integers(0, 1 << 32, (rows * k * size // 128, 32), np.uint32)
        same(layout, elements(registers), to_bytes(registers).view(dtype))
    c = np.arange(128, dtype=np.uint32).reshape(4, 32)
    same(atom.c_layout, c, c_to_matrix(c))
