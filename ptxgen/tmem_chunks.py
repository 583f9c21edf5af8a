"""How an epilogue warp takes its part of an accumulator from tensor memory to D, chunk by chunk.

A chunk is what one staging buffer holds: 128 bytes of each row of the warp. It is loaded by
tcgen05.ld.16x256b, whose fragment is that of wgmma: lane l holds rows l / 4 and l / 4 + 8 and two
adjacent columns of each group of 8.
"""

from dataclasses import dataclass
from typing import Any

from ptxgen.layout import DMap, DStaging
from ptxgen.tmem import LANE_SHIFT, LOAD_LANES, AccumulatorLayout

GROUP_COLUMNS = 8
"""Columns of D of one group of a fragment; it takes 4 registers."""
GROUP_REGISTERS = 4
MAX_REPEAT = 32
"""Groups that one tcgen05.ld.16x256b can load."""
GLOBAL_GROUPS = 8
"""Groups of one chunk where D is stored without staging."""


@dataclass(frozen=True)
class TmemLoad:
    """One tcgen05.ld of a chunk."""

    repeat: int
    """Groups that it loads: a power of two."""
    registers: str
    """Its registers, as a PTX vector."""
    offset: int
    """What to add to the address of the warp's part of the accumulator."""


@dataclass(frozen=True)
class Group:
    """Eight columns of a chunk in one half: this lane's four values, and where each belongs."""

    column: int
    """First column, from the warp's first."""
    held: tuple[str, ...]
    """Row l / 4: two columns; row l / 4 + 8: the same two."""
    packed: tuple[str, str]
    """Where the pairs go when D is a 16-bit format."""
    placed: tuple[dict[str, str], ...]
    """For each value its register, and the registers that name its column and row."""
    turned: tuple[dict[str, str], ...]
    """The same where columns of the accumulator are rows of D."""


@dataclass(frozen=True)
class GroupStore:
    """One stmatrix, or pair of st.shared, into the staging buffer."""

    groups: tuple[Group, ...]
    offset: int
    """Bytes from the start of the buffer, added to the lane's address."""
    second_offset: int
    """The same for the lane's second row."""
    chunk_xor: int
    num_matrices: int


@dataclass(frozen=True)
class Half:
    """The part of a chunk in 16 lanes."""

    row: int
    """First row, from the warp's first."""
    stores: tuple[GroupStore, ...]


@dataclass(frozen=True)
class Chunk:
    """One chunk of a warp's part of D."""

    columns: str
    """First and last column, for the reader."""
    loads: tuple[TmemLoad, ...]
    conversions: tuple[dict[str, str], ...]
    """From integer accumulators to floats: registers `to` and `source`."""
    halves: tuple[Half, ...]
    map: str
    """Register with the address of the tensor map that stores it; empty if none does."""
    column_offset: int
    """First column, from the warp's first."""
    is_last: bool


@dataclass(frozen=True)
class SwappedStaging:
    """How a warp takes an accumulator whose columns are rows of D through shared memory.

    A buffer holds some rows of D, of the columns of D that the warp has: a box of 64 or 32 bytes
    swizzled by its width. stmatrix.trans turns 8 x 8 blocks of the fragment on the way.
    """

    warp_rows: int
    """Lanes of the accumulator that the warp has, which are columns of D: 32 or 16."""
    rows: int
    """Rows of D of one buffer: 16, or 8."""

    NUM_BUFFERS = 4

    @property
    def box_bytes(self) -> int:
        """Width of a box in bytes."""
        return 2 * self.warp_rows

    @property
    def maps(self) -> tuple[DMap, ...]:
        """The only tensor map of D."""
        return (DMap("d_map", self.warp_rows),)

    def box(self, d_map: DMap) -> tuple[int, int]:
        """TMA box in elements, columns of D first."""
        return d_map.columns, self.rows

    @property
    def swizzle(self) -> str:
        """Swizzle of the tensor map of D."""
        return f"{self.box_bytes}B"

    @property
    def row_shift(self) -> int:
        """Row bits that are dropped before they are XORed into the chunk index."""
        return {64: 1, 32: 2}[self.box_bytes]

    @property
    def row_mask(self) -> int:
        """Row bits (after the shift) that are XORed into the chunk index."""
        return self.box_bytes // 16 - 1

    @property
    def buffer_bytes(self) -> int:
        """One staging buffer."""
        return self.rows * self.box_bytes


@dataclass(frozen=True)
class SwappedHalf:
    """The part of a chunk in 16 lanes, which are columns of D."""

    row: int
    """First lane, from the warp's first."""
    groups: tuple[Group, ...]


@dataclass(frozen=True)
class TransposedStore:
    """One stmatrix.trans into the staging buffer: 8 rows of D."""

    offset: int
    """Bytes from the start of the buffer, added to the lane's address."""
    num_matrices: int
    registers: str
    """Packed pairs of all halves, as a PTX vector."""


@dataclass(frozen=True)
class SwappedChunk:
    """Some columns of an accumulator, which are rows of D, in all lanes of a warp."""

    loads: tuple[TmemLoad, ...]
    conversions: tuple[dict[str, str], ...]
    halves: tuple[SwappedHalf, ...]
    stores: tuple[TransposedStore, ...]


def swapped_chunk(staging: SwappedStaging, halves_of_lanes: int, integer: bool) -> SwappedChunk:
    """The chunk that a loop over the columns of an accumulator takes again and again."""
    groups = staging.rows // GROUP_COLUMNS
    half_registers = groups * GROUP_REGISTERS
    loads, halves = [], []
    packed: list[list[str]] = [[] for _ in range(groups)]
    for half in range(halves_of_lanes):
        first = half * half_registers
        registers = _vector("%raw" if integer else "%acc", first, half_registers)
        loads.append(TmemLoad(groups, registers, half * LOAD_LANES << LANE_SHIFT))
        members = []
        for g in range(groups):
            start = first + g * GROUP_REGISTERS
            held = tuple(f"%acc{start + i}" for i in range(GROUP_REGISTERS))
            member = _group(g, held, half * groups + g)
            packed[g] += member.packed
            members.append(member)
        halves.append(SwappedHalf(half * LOAD_LANES, tuple(members)))
    return SwappedChunk(
        tuple(loads),
        _conversions(halves_of_lanes * half_registers if integer else 0),
        tuple(halves),
        tuple(
            TransposedStore(
                g * GROUP_COLUMNS * staging.box_bytes, len(names), "{" + ", ".join(names) + "}"
            )
            for g, names in enumerate(packed)
        ),
    )


def _conversions(count: int) -> tuple[dict[str, str], ...]:
    return tuple({"to": f"%acc{i}", "source": f"%raw{i}"} for i in range(count))


def chunks(layout: AccumulatorLayout, staging: DStaging | None, integer: bool) -> tuple[Chunk, ...]:
    """All chunks of one warp, left to right.

    staging: how D goes through shared memory, or None where it is stored element by element.
    integer: whether accumulators are integers that become floats, which takes a second register.
    """
    num_groups = layout.columns // GROUP_COLUMNS
    if staging is None:
        parts: list[tuple[Any, ...]] = [((), "") for _ in range(0, num_groups, GLOBAL_GROUPS)]
        spans = [
            range(first, min(first + GLOBAL_GROUPS, num_groups))
            for first in range(0, num_groups, GLOBAL_GROUPS)
        ]
    else:
        parts = [(chunk.stores, f"%{chunk.map.name}") for chunk in staging.chunks]
        spans = [range(s[0].groups[0], s[-1].groups[-1] + 1) for s, _ in parts]
    return tuple(
        _chunk(layout, staging, integer, span, stores, d_map, span.stop == num_groups)
        for span, (stores, d_map) in zip(spans, parts, strict=True)
    )


def chunk_registers(layout: AccumulatorLayout, staging: DStaging | None) -> int:
    """Registers of the widest chunk."""
    widest = max(
        sum(load.repeat for load in chunk.loads) for chunk in chunks(layout, staging, False)
    )
    return GROUP_REGISTERS * widest


def _chunk(
    layout: AccumulatorLayout,
    staging: DStaging | None,
    integer: bool,
    span: range,
    stores: tuple[Any, ...],
    d_map: str,
    is_last: bool,
) -> Chunk:
    loads, halves = [], []
    for half in range(layout.halves):
        first_register = half * len(span) * GROUP_REGISTERS
        for group, repeat in _powers_of_two(span):
            first = first_register + (group - span.start) * GROUP_REGISTERS
            loads.append(
                TmemLoad(
                    repeat,
                    _vector("%raw" if integer else "%acc", first, GROUP_REGISTERS * repeat),
                    (half * LOAD_LANES << LANE_SHIFT) + GROUP_COLUMNS * group,
                )
            )
        held = {
            g: tuple(
                f"%acc{first_register + (g - span.start) * GROUP_REGISTERS + i}"
                for i in range(GROUP_REGISTERS)
            )
            for g in span
        }
        halves.append(Half(half * LOAD_LANES, _stores(staging, stores, held, half)))
    count = layout.halves * len(span) * GROUP_REGISTERS
    return Chunk(
        f"{GROUP_COLUMNS * span.start}..{GROUP_COLUMNS * span.stop - 1}",
        tuple(loads),
        _conversions(count if integer else 0),
        tuple(halves),
        d_map,
        GROUP_COLUMNS * span.start,
        is_last,
    )


def _stores(
    staging: DStaging | None, stores: tuple[Any, ...], held: dict[int, tuple[str, ...]], half: int
) -> tuple[GroupStore, ...]:
    if staging is None:
        return tuple(GroupStore((_group(g, held[g], 0),), 0, 0, 0, 0) for g in held)
    half_bytes = half * LOAD_LANES * staging.PITCH_BYTES
    return tuple(
        GroupStore(
            tuple(_group(g, held[g], i) for i, g in enumerate(store.groups)),
            half_bytes,
            half_bytes + staging.second_row_bytes,
            store.chunk_xor,
            store.num_matrices,
        )
        for store in stores
    )


def _group(index: int, held: tuple[str, ...], place: int) -> Group:
    rows = (("%row_inside", "%row_pointer"), ("%second_row_inside", "%second_row_pointer"))
    columns = ("%column", "%second_column")
    placed = tuple(
        {
            "register": held[2 * r + c],
            "column": columns[c],
            "row_inside": rows[r][0],
            "row_pointer": rows[r][1],
        }
        for r in range(2)
        for c in range(2)
    )
    of_columns = (
        ("%column_inside", "%column_pointer"),
        ("%second_column_inside", "%second_column_pointer"),
    )
    turned = tuple(
        {
            "register": held[2 * r + c],
            "row": ("%row", "%second_row")[r],
            "column_inside": of_columns[c][0],
            "column_pointer": of_columns[c][1],
        }
        for r in range(2)
        for c in range(2)
    )
    packed = (f"%pack{2 * place}", f"%pack{2 * place + 1}")
    return Group(GROUP_COLUMNS * index, held, packed, placed, turned)


def _powers_of_two(span: range) -> list[tuple[int, int]]:
    """(first, count) of runs that cover `span`, each count a power of two."""
    runs, first = [], span.start
    while first < span.stop:
        count = min(MAX_REPEAT, 1 << ((span.stop - first).bit_length() - 1))
        runs.append((first, count))
        first += count
    return runs


def _vector(prefix: str, first: int, count: int) -> str:
    return "{" + ", ".join(f"{prefix}{i}" for i in range(first, first + count)) + "}"
