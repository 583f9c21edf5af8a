"""Tensor memory: the map of columns, and who reads which lanes."""

import itertools

import pytest

from ptxgen.dtypes import dtype
from ptxgen.errors import ConfigError
from ptxgen.layout import DStaging
from ptxgen.tmem import AccumulatorLayout, TmemMap
from ptxgen.tmem_chunks import SwappedStaging, chunks, swapped_chunk

atoms = pytest.importorskip("tensor_layouts.atoms_nv")


@pytest.mark.parametrize(("columns", "allocated"), [(8, 32), (32, 32), (33, 64), (512, 512)])
def test_allocations_are_powers_of_two_from_32(columns: int, allocated: int) -> None:
    assert TmemMap.lay_out([("d", columns, "accumulator")]).allocated_columns == allocated


def test_what_does_not_fit_is_refused_with_its_parts() -> None:
    with pytest.raises(ConfigError, match=r"520 are needed \(d 256, e 264\)"):
        TmemMap.lay_out([("d", 256, ""), ("e", 264, "")])


@pytest.mark.parametrize(
    ("group", "tile_m", "letter"), [(1, 128, "D"), (1, 64, "F"), (2, 128, "A"), (2, 64, "B")]
)
def test_the_four_warps_hold_each_element_once(group: int, tile_m: int, letter: str) -> None:
    layout = AccumulatorLayout.of(group, tile_m, 64)
    held: list[tuple[int, int]] = []
    for warp in range(4):
        row = warp % layout.row_warps * layout.warp_rows
        column = warp // layout.row_warps * layout.columns
        rows, columns = range(row, row + layout.warp_rows), range(column, column + layout.columns)
        held += itertools.product(rows, columns)
    assert layout.letter == letter
    assert sorted(held) == list(itertools.product(range(tile_m), range(64)))


@pytest.mark.parametrize(("name", "columns"), [("bf16", 256), ("bf16", 48), ("f32", 96)])
def test_chunks_take_each_column_of_each_half_once(name: str, columns: int) -> None:
    layout = AccumulatorLayout.of(1, 128, columns)
    found = [
        (half.row, group.column)
        for chunk in chunks(layout, DStaging(dtype(name), columns, layout.warp_rows), False)
        for half in chunk.halves
        for store in half.stores
        for group in store.groups
    ]
    assert sorted(found) == [(row, c) for row in (0, 16) for c in range(0, columns, 8)]


def test_a_group_s_values_lie_as_in_the_fragment_of_mma_sync() -> None:
    """Lane l holds values 0..3 at rows l / 4 (+ 8) and columns 2 (l % 4) (+ 1)."""
    layout = atoms.SM80_16x8x16_F32F16F16F32_TN.c_layout
    (half, *_) = swapped_chunk(SwappedStaging(32, 16), 2, False).halves
    placed = half.groups[0].turned
    for value in range(4):
        row, column = layout(0, value) % 16, layout(0, value) // 16
        assert placed[value]["register"] == f"%acc{value}"
        assert placed[value]["row"] == ("%row", "%second_row")[row // 8]
        assert placed[value]["column_inside"].startswith(("%column", "%second")[column])
