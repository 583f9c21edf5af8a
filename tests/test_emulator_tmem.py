"""Tensor memory: allocation rules, and tcgen05.ld, st and cp against PTX ISA 9.0."""

import numpy as np
import pytest

from ptxgen.emulator.addresses import SMEM_WINDOW_END
from ptxgen.emulator.memory import SharedMemory
from ptxgen.emulator.tcgen05_cp import copy_cells, copy_reads, copy_to_tmem, shift_down
from ptxgen.emulator.tmem import REGISTERS_PER_REPEAT, TensorMemory
from ptxgen.errors import EmulationError, OutOfBoundsError, UnknownInstructionError

RNG = np.random.default_rng(23)
SHAPES = list(REGISTERS_PER_REPEAT)


def place(shape: str, r: int, t: int, split: int = 0) -> tuple[int, int]:
    """(lane, column) of register r of lane t, after PTX ISA 9.0, "tcgen05.ld"."""
    return {
        "32x32b": lambda: (t, r),
        "16x64b": lambda: (8 * (t & 1) + (t >> 2), 2 * r + (t >> 1 & 1)),
        "16x128b": lambda: ((t >> 2) + 8 * (r & 1), (t & 3) + 4 * (r >> 1)),
        "16x256b": lambda: ((t >> 2) + 8 * (r >> 1 & 1), 2 * (t & 3) + (r & 1) + 8 * (r >> 2)),
        "16x32bx2": lambda: (t, r) if t < 16 else (t - 16 + (split >> 16), r + (split & 0xFFFF)),
    }[shape]()


def filled() -> TensorMemory:
    tmem = TensorMemory()
    tmem.allocate(512)
    tmem.cells[:] = RNG.integers(0, 1 << 32, tmem.cells.shape, np.uint32)
    return tmem


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("repeat", [1, 4, 16])
@pytest.mark.parametrize("pack", [False, True])
def test_ld_reads_the_cells_of_the_isa(shape: str, repeat: int, pack: bool) -> None:
    tmem, warp, split = filled(), 6, repeat * (2 if pack else 1)
    got = tmem.load(64 << 16 | 32, shape, repeat, warp, split=split, pack=pack)
    assert got.shape == (REGISTERS_PER_REPEAT[shape] * repeat, 32)
    for r in range(len(got)):
        for t in range(32):
            if pack:
                (lane, column), shift = place(shape, r, t), 0
                if shape == "16x32bx2" and t >= 16:
                    lane, shift = t - 16, split
                cells = tmem.cells[64 + lane, 32 + 2 * column + shift :][:2] & 0xFFFF
                assert got[r, t] == cells[0] | cells[1] << 16
            else:
                lane, column = place(shape, r, t, split)
                assert got[r, t] == tmem.cells[64 + lane, 32 + column]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("packed", [False, True])
def test_st_undoes_ld_and_touches_nothing_else(shape: str, packed: bool) -> None:
    tmem = filled()
    tmem.cells &= 0xFFFF if packed else 0xFFFFFFFF
    before = tmem.cells.copy()
    split = 8 if packed else 4
    registers = tmem.load(0, shape, 4, 0, split=split, pack=packed)
    tmem.cells[:32, :128] = 0
    cleared = tmem.cells.copy()
    tmem.store(0, registers, shape, 4, 0, split=split, unpack=packed)
    cells = tmem.cells_of(0, shape, 4, 0, split=split, wide=packed)
    assert np.array_equal(tmem.cells.reshape(-1)[cells], before.reshape(-1)[cells])
    untouched = np.ones(128 * 512, bool)
    untouched[cells] = False
    assert np.array_equal(tmem.cells.reshape(-1)[untouched], cleared.reshape(-1)[untouched])


def test_split_reaches_the_other_half_of_the_quarter() -> None:
    tmem = filled()
    got = tmem.load(32 << 16, "16x32bx2", 2, 1, split=16 << 16)
    assert np.array_equal(got[1], tmem.cells[32:64, 1])


@pytest.mark.parametrize(
    ("shape", "lane", "warp"),
    [("32x32b", 16, 0), ("16x64b", 32, 0), ("16x256b", 8, 4), ("32x32b", 0, 1)],
)
def test_warp_reaches_its_own_lane_quarter_only(shape: str, lane: int, warp: int) -> None:
    with pytest.raises(OutOfBoundsError, match="reaches tensor memory lanes"):
        filled().load(lane << 16, shape, 1, warp)


def test_lane_bits_above_127_are_ignored() -> None:
    tmem = filled()
    assert np.array_equal(tmem.load(160 << 16, "32x32b", 1, 1)[0], tmem.cells[32:64, 0])


def test_columns_outside_the_allocation_are_named() -> None:
    tmem = TensorMemory()
    address = tmem.allocate(64)
    assert address is not None
    with pytest.raises(OutOfBoundsError, match=r"\[48, 80\)"):
        tmem.load(address + 48, "32x32b", 32, 0)
    tmem.deallocate(address, 64)
    with pytest.raises(OutOfBoundsError, match="none"):
        tmem.load(address, "32x32b", 1, 0)


@pytest.mark.parametrize("columns", [0, 16, 48, 1024])
def test_allocation_size_must_be_a_power_of_two(columns: int) -> None:
    with pytest.raises(EmulationError, match="power of two"):
        TensorMemory().allocate(columns)


def test_allocations_wait_when_full_and_must_not_grow() -> None:
    tmem = TensorMemory()
    first, second = tmem.allocate(256), tmem.allocate(256)
    assert first == 0
    assert second == 256
    assert tmem.allocate(32) is None
    tmem.deallocate(first, 256)
    assert tmem.allocate(32) == 0
    with pytest.raises(EmulationError, match="must not grow"):
        tmem.allocate(64)


def test_dealloc_must_match_and_relinquish_is_final() -> None:
    tmem = TensorMemory()
    address = tmem.allocate(128)
    assert address is not None
    with pytest.raises(EmulationError, match="must match"):
        tmem.deallocate(address, 64)
    tmem.relinquish()
    with pytest.raises(EmulationError, match="relinquish"):
        tmem.allocate(32)
    tmem.deallocate(address, 128)
    assert not tmem.allocations


@pytest.mark.parametrize(("shape", "repeat"), [("16x256b", 64), ("16x32b", 1), ("32x32b", 3)])
def test_forms_that_ptxas_rejects_are_unknown(shape: str, repeat: int) -> None:
    with pytest.raises(UnknownInstructionError):
        filled().load(0, shape, repeat, 0)


def descriptor(start: int, leading: int, stride: int) -> int:
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | 1 << 46


CP_ROWS = {
    ("128x256b", ""): lambda r: [r],
    ("128x128b", ""): lambda r: [r],
    ("4x256b", ""): lambda r: [32 * r],
    ("64x128b", "warpx2::02_13"): lambda r: [r, r + 64],
    ("64x128b", "warpx2::01_23"): lambda r: [r % 32 + 64 * (r // 32) + 32 * i for i in (0, 1)],
    ("32x128b", "warpx4"): lambda r: [r + 32 * i for i in range(4)],
}


@pytest.mark.parametrize(("shape", "multicast"), CP_ROWS)
def test_cp_copies_core_matrices_to_the_lanes_of_its_shape(shape: str, multicast: str) -> None:
    smem, tmem = SharedMemory(SMEM_WINDOW_END), TensorMemory(track=True)
    smem.u8[0x400:] = RNG.integers(0, 256, len(smem.u8) - 0x400, np.uint8)
    tmem.allocate(64)
    bits = descriptor(0x800, 0x2000, 0x100)
    copy_to_tmem(bits, 16, shape, multicast, smem, tmem)
    wanted = np.full_like(tmem.cells, 0xFFFFFFFF)
    rows, width = int(shape.split("x")[0]), int(shape.split("x")[1][:-1]) // 32
    for row in range(rows):
        for word in range(width):
            at = 0x800 + row % 8 * 16 + row // 8 * 0x100 + word % 4 * 4 + word // 4 * 0x2000
            for lane in CP_ROWS[shape, multicast](row):
                wanted[lane, 16 + word] = smem.load_int(at, 4)
    assert np.array_equal(tmem.cells, wanted)
    cells = copy_cells(16, shape, multicast, tmem)
    assert tmem.initialised is not None
    assert np.array_equal(np.sort(cells), np.flatnonzero(tmem.initialised.ravel()))
    assert len(copy_reads(bits, shape, multicast, smem)) == rows * width // 4


def test_cp_unpacks_6_bit_elements_to_bytes() -> None:
    smem, tmem = SharedMemory(SMEM_WINDOW_END), TensorMemory()
    tmem.allocate(32)
    codes = RNG.integers(0, 64, 16)
    whole = sum(int(code) << 6 * i for i, code in enumerate(codes))
    smem.write(0x400, whole.to_bytes(16, "little") * 32)
    copy_to_tmem(descriptor(0x400, 0, 128), 0, "32x128b", "warpx4", smem, tmem, packed="b6x16_p32")
    assert np.array_equal(tmem.cells[77, :4].copy().view(np.uint8), codes)


def test_cp_without_its_multicast_is_unknown() -> None:
    with pytest.raises(UnknownInstructionError):
        copy_cells(0, "32x128b", "", filled())


def test_shift_moves_rows_down_within_their_quarter() -> None:
    tmem = filled()
    before = tmem.cells.copy()
    shift_down(8, tmem)
    assert np.array_equal(tmem.cells[1:32, 8:16], before[:31, 8:16])
    assert np.array_equal(tmem.cells[[0, 32, 64, 96]], before[[0, 32, 64, 96]])
    assert np.array_equal(tmem.cells[:, 16:], before[:, 16:])
