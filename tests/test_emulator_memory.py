"""Memories: bounds, alignment, guard gaps, generic windows, initialised bytes."""

import numpy as np
import pytest

from ptxgen.emulator.addresses import (
    join_shared,
    locate,
    locate_lanes,
    shared_generic,
    split_shared,
)
from ptxgen.emulator.global_memory import GlobalMemory
from ptxgen.emulator.memory import LocalMemory, SharedMemory
from ptxgen.emulator.observer import Space
from ptxgen.emulator.reductions import reduce_values
from ptxgen.errors import EmulationError, MisalignedError, OutOfBoundsError

LANES = np.arange(32)


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_loads_return_what_stores_wrote(size: int) -> None:
    memory = GlobalMemory()
    address = memory.allocate(32 * size)
    values = np.random.default_rng(1).integers(0, 1 << 8 * size, 32, np.uint64)
    memory.store(address + LANES[::-1] * size, values, size)
    assert np.array_equal(memory.load(address + LANES * size, size), values[::-1])
    assert memory.load_int(address + size, size) == values[30]
    memory.store_int(address, int(values[0]) + (1 << 8 * size), size)
    assert memory.load_int(address, size) == values[0]


def test_vector_access_moves_consecutive_elements() -> None:
    smem = SharedMemory(0x800)
    values = np.arange(128, dtype=np.uint32).reshape(4, 32)
    smem.store_vector(0x400 + LANES * 16, values, 4)
    assert np.array_equal(smem.load_vector(0x400 + LANES * 16, 4, 4), values)
    assert smem.load_int(0x400 + 16, 4) == values[0, 1]


def test_last_lane_wins_a_store_to_one_address() -> None:
    smem = SharedMemory(0x800)
    smem.store(np.full(32, 0x400), LANES, 4)
    assert smem.load_int(0x400, 4) == 31


@pytest.mark.parametrize(
    ("offset", "message"), [(97, "1 B past the end of buffer 'a'"), (-4, "4 B before buffer 'a'")]
)
def test_global_overrun_names_buffer_and_distance(offset: int, message: str) -> None:
    memory = GlobalMemory()
    a, b = memory.allocate(100, "a"), memory.allocate(100, "b")
    with pytest.raises(OutOfBoundsError, match=message):
        memory.load_int(a + offset, 4)
    with pytest.raises(OutOfBoundsError, match=message):
        memory.load(np.array([a + offset]), 4)
    assert a % 256 == b % 256 == 0


def test_freed_memory_is_out_of_bounds() -> None:
    memory = GlobalMemory()
    address = memory.allocate(64)
    memory.load_int(address, 4)
    memory.free(address)
    with pytest.raises(OutOfBoundsError):
        memory.load_int(address, 4)


def test_lanes_may_touch_several_allocations() -> None:
    memory = GlobalMemory()
    a, b = memory.allocate(64, "a"), memory.allocate(64, "b")
    addresses = np.array([a, b + 4])
    memory.store(addresses, np.array([1, 2]), 4)
    assert memory.load(addresses, 4).tolist() == [1, 2]
    memory.store_vector(np.array([a, b]), np.array([[3, 4], [5, 6]]), 4)
    assert memory.load_vector(np.array([a, b]), 4, 2).tolist() == [[3, 4], [5, 6]]


def test_misaligned_lane_is_named() -> None:
    smem = SharedMemory(0x800)
    addresses = 0x400 + LANES * 4
    addresses[5] += 2
    with pytest.raises(MisalignedError, match="lane number 5"):
        smem.load(addresses, 4)
    with pytest.raises(MisalignedError):
        smem.load_vector(np.array([0x408]), 4, 4)
    with pytest.raises(MisalignedError):
        smem.store_int(0x402, 0, 4)


@pytest.mark.parametrize("offset", [0x3FC, 0x7FE, -4])
def test_shared_window_starts_after_its_reserved_kib_and_ends_with_the_cta(offset: int) -> None:
    smem = SharedMemory(0x800)
    with pytest.raises(OutOfBoundsError):
        smem.load_int(offset, 4)
    with pytest.raises(OutOfBoundsError):
        smem.load(np.array([offset]), 4)


def test_more_shared_memory_than_an_sm_has_is_refused() -> None:
    SharedMemory(0x400 + 232448)
    with pytest.raises(OutOfBoundsError, match="232448"):
        SharedMemory(0x400 + 232449)


def test_unwritten_bytes_are_poison_and_known_as_such() -> None:
    smem = SharedMemory(0x800, track=True)
    assert smem.load_int(0x400, 4) == 0xFFFFFFFF
    smem.store(np.array([0x404]), np.array([1]), 2)
    smem.write(0x410, bytes(8))
    smem.store_vector(np.array([0x420]), np.ones((2, 1)), 8)
    asked = np.array([0x400, 0x404, 0x410, 0x414, 0x41C, 0x420, 0x42C])
    assert smem.uninitialised(asked, 4).tolist() == [True, True, False, False, True, False, False]


def test_local_memory_is_private_per_lane() -> None:
    local = LocalMemory(24)
    addresses = local.addresses(LANES, np.full(32, 20), 4)
    local.store(addresses, LANES, 4)
    assert np.array_equal(local.load(addresses, 4), LANES)
    with pytest.raises(OutOfBoundsError, match="lane 3"):
        local.addresses(np.array([3]), np.array([22]), 4)


def test_generic_addresses_name_their_space() -> None:
    shared = shared_generic(join_shared(5, 0x480))
    assert locate(shared) == (Space.SHARED, 5 << 24 | 0x480)
    assert split_shared(5 << 24 | 0x480) == (5, 0x480)
    memory = GlobalMemory()
    address = memory.allocate(8)
    assert locate(address) == (Space.GLOBAL, address)
    parts = locate_lanes(np.array([address, shared, address + 4]))
    assert [(space, at.tolist()) for space, _, at in parts] == [
        (Space.SHARED, [1]), (Space.GLOBAL, [0, 2]),
    ]  # fmt: skip


def test_float_reductions_round_once_and_flush_where_asked() -> None:
    tiny = np.array([1e-40], np.float32)
    assert reduce_values("add", "f32", tiny, tiny).view(np.float32)[0] == 0
    kept = reduce_values("add", "f32", tiny, tiny, flush=False).view(np.float32)[0]
    assert kept == tiny[0] + tiny[0]
    halves = np.array([0x3F80, 0x3C00], np.uint16)
    assert reduce_values("add", "bf16x2", halves, halves).view(np.uint16).tolist() == [
        0x4000, 0x3C80,
    ]  # fmt: skip
    with pytest.raises(EmulationError, match="no reduction inc"):
        reduce_values("inc", "f32", tiny, tiny)
