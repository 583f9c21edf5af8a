"""Which tiles of a grouped problem are shared out along K with stream_k, and in which parts.

What templates/parts/share_last_wave.ptx.j2 does on the device, for those who predict a time or
compare bits.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ptxgen.grouped_problem import GroupedGemm, Segment
from ptxgen.kernels.grouped_config import TOKEN_ROWS
from ptxgen.layout import MMA_M
from ptxgen.raster import raster_height

MOST_PARTS = 4
"""Parts of a tile that begin with it, at most; one more if they do not. Each costs a way through
global memory, and those of a tile are added one after another."""
LEAST_SAVED = 8
"""k-tiles by which the last wave must get shorter: about what handing sums over takes. Measured on
an H200, 16 groups of 32 rows, 7168 x 2048, whose runs are 3 of 16 k-tiles shorter: 62.5 us without,
65.0 us with; 4096 x 7168, 6 of 56: 116.1 and 117.5 us."""


@dataclass(frozen=True)
class SharedTile:
    """A tile that several CTAs compute, each a part of its K."""

    segment: Segment
    first_row: int
    """Of its segment."""
    rows: int
    first_column: int
    columns: int
    k_parts: tuple[tuple[int, int], ...]
    """(first, past the last) elements of K, in the order in which their sums are added."""


def least_part(k_tiles: int) -> int:
    """k-tiles that a part has at least, of a tile that has `k_tiles`."""
    return -(-k_tiles // MOST_PARTS)


def run_length(tiles: int, k_tiles: int, ctas: int) -> int:
    """k-tiles of the last wave's `tiles` tiles for each CTA: `k_tiles` if none is shared."""
    run = max(-(-tiles * k_tiles // ctas), least_part(k_tiles))
    return k_tiles if run + LEAST_SAVED > k_tiles else run


def shared_tiles(
    problem: GroupedGemm, config: Any, segments: list[Segment], ctas: int
) -> Iterator[SharedTile]:
    """The tiles that are shared out by `config` where `ctas` CTAs run, if it has stream_k."""
    if not config.stream_k:
        return
    n_tiles = -(-problem.n // config.tile_n)
    counts = [-(-s.length // config.tile_m) * n_tiles for s in segments]
    total = sum(counts)
    first = total // ctas * ctas
    k_tiles = -(-problem.k // config.tile_k)
    run = run_length(total - first, k_tiles, ctas)
    if run == k_tiles:
        return
    for tile in range(first, total):
        start = (tile - first) * k_tiles
        cuts = [0, *(-start % run + i for i in range(0, k_tiles, run)), k_tiles]
        edges = sorted({cut for cut in cuts if cut <= k_tiles})
        if len(edges) == 2:
            continue
        place = tile
        for segment, count in zip(segments, counts, strict=True):
            if place < count:
                row, rows, n_tile = _locate(config, segment.length, tile, place, n_tiles, ctas)
                column = n_tile * config.tile_n
                ends = [min(edge * config.tile_k, problem.k) for edge in edges]
                yield SharedTile(
                    segment, row, rows, column, min(config.tile_n, problem.n - column),
                    tuple(pairwise(ends)),
                )  # fmt: skip
                break
            place -= count


def _locate(
    config: Any, length: int, tile: int, place: int, n_tiles: int, ctas: int
) -> tuple[int, int, int]:
    """First row in its group, rows, and number along N of the tile at `place` in its group."""
    m_tiles = -(-length // config.tile_m)
    if m_tiles == 1:
        return 0, length, place
    height = raster_height(config.cluster_m)
    raster, place = divmod(place, height * n_tiles)
    height = min(height, m_tiles - raster * raster_height(config.cluster_m))
    n_tile, m_tile = divmod(place, height)
    m_tile = (m_tile + (tile - m_tile) // ctas) % height + raster * raster_height(config.cluster_m)
    unit = TOKEN_ROWS if config.swap_ab else MMA_M
    least, more = divmod(-(-length // unit), m_tiles)
    first = (m_tile * least + min(m_tile, more)) * unit
    rows = (least + (m_tile < more)) * unit
    return first, min(rows, length - first), n_tile
