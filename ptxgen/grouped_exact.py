"""Bit-exact D of a grouped problem, also of tiles that several CTAs share along K."""

from typing import Any

import numpy as np

from ptxgen.exact_model import exact_result
from ptxgen.grouped_problem import GroupedGemm, Segment
from ptxgen.kernels.grouped_schedule import SharedTile, shared_tiles
from ptxgen.operands import Operands

Array = np.ndarray[Any, Any]


def shared_by_segment(
    problem: GroupedGemm, config: Any, segments: list[Segment], ctas: int
) -> dict[Segment, list[SharedTile]]:
    """The tiles that `ctas` CTAs share out along K, by segment. segments: all, as `GroupedGemm.
    segments` gives them. Without stream_k none is shared, nor if ctas is 0."""
    found: dict[Segment, list[SharedTile]] = {segment: [] for segment in segments}
    if ctas:
        for tile in shared_tiles(problem, config, segments, ctas):
            found[tile.segment].append(tile)
    return found


def exact_crossings(
    problem: GroupedGemm, segment: Segment, operands: Operands, shared: list[SharedTile],
    rows: Array, columns: Array, unit: str = "wgmma",
) -> Array:  # fmt: skip
    """D of one segment at the crossings of `rows` (of the segment) and `columns`.

    operands: as `group_operands` gives them. shared: the segment's tiles of `shared_by_segment`.
    """
    gemm = problem.gemm(segment.length)
    want = exact_result(gemm, operands, rows, columns, unit)
    for tile in shared:
        in_rows = np.flatnonzero((rows >= tile.first_row) & (rows < tile.first_row + tile.rows))
        last = tile.first_column + tile.columns
        in_columns = np.flatnonzero((columns >= tile.first_column) & (columns < last))
        if len(in_rows) and len(in_columns):
            want[np.ix_(in_rows, in_columns)] = exact_result(
                gemm, operands, rows[in_rows], columns[in_columns], unit, tile.k_parts
            )
    return want
