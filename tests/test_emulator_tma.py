"""TMA boxes against a per-element loop written from rules measured on an H200."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from tensor_boxes import RNG, make_map

from ptxgen.emulator.addresses import SMEM_WINDOW_END
from ptxgen.emulator.box import box_shape, select_store, smem_footprint
from ptxgen.emulator.global_memory import GlobalMemory
from ptxgen.emulator.memory import POISON, SharedMemory
from ptxgen.emulator.swizzle import PERIOD_BYTES, swizzle
from ptxgen.emulator.tensor_map import DecodedMap, from_launch
from ptxgen.emulator.tma import (
    gather_rows,
    place_box,
    read_box,
    reduce_box,
    scatter_rows,
    take_box,
    take_rows,
    write_box,
)
from ptxgen.errors import EmulationError, MisalignedError, OutOfBoundsError
from ptxgen.launch import TensorMap


def elements_of(
    m: DecodedMap, memory: GlobalMemory, coordinates: tuple[int, ...], fill: int = 0
) -> dict[int, int]:
    """{linear smem byte: byte} of a box, one element at a time."""
    size = m.element_bits // 8
    pitch = {"none": 0, "32B": 32, "64B": 64}.get(m.swizzle, 128)
    counts = [
        -(-b // (s if i else 1))
        for i, (b, s) in enumerate(zip(m.box, m.element_strides, strict=False))
    ]
    pitch = pitch or counts[0] * size
    found = {}
    rows = list(product(*[range(c) for c in reversed(counts[1:])]))
    for row, outer in enumerate(rows):
        outer = outer[::-1]
        for i0 in range(counts[0]):
            at = [coordinates[0] + i0]
            at += [
                c + i * s
                for c, i, s in zip(coordinates[1:], outer, m.element_strides[1:], strict=False)
            ]
            inside = all(0 <= a < d for a, d in zip(at, m.dims, strict=False))
            address = m.address + at[0] * size
            address += sum(a * s for a, s in zip(at[1:], m.strides_bytes, strict=False))
            for byte in range(size):
                value = int(memory.load_int(address + byte, 1)) if inside else fill
                found[row * pitch + i0 * size + byte] = value
    return found


def check_load(
    m: DecodedMap, memory: GlobalMemory, coordinates: tuple[int, ...], offset: int
) -> None:
    smem = SharedMemory(SMEM_WINDOW_END)
    box = read_box(m, coordinates, memory)
    place_box(m, box, smem, offset)
    wanted = np.full_like(smem.u8, POISON)
    for linear, value in elements_of(m, memory, coordinates).items():
        wanted[swizzle(offset + linear, m.swizzle)] = value
    assert np.array_equal(smem.u8, wanted)


SPANS = {"none": 128, "32B": 32, "64B": 64}


@pytest.mark.parametrize(
    ("mode", "inner"),
    [
        (mode, inner)
        for mode in PERIOD_BYTES
        for inner in (16, 32, 64, 128)
        if mode != "96B" and inner <= SPANS.get(mode, 128)
    ],
)
@pytest.mark.parametrize("offset", [0x400, 0x480, 0xB80])
def test_box_lands_swizzled_with_the_span_as_row_pitch(mode: str, inner: int, offset: int) -> None:
    memory = GlobalMemory()
    m = make_map(memory, dims=(256, 64), box=(inner, 24), swizzle=mode)
    check_load(m, memory, (32, 5), offset)


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_boxes_of_every_rank_clip_on_all_sides(rank: int) -> None:
    memory = GlobalMemory()
    dims = (20, 6, 5, 4, 3)[:rank]
    box = (16, 4, 2, 2, 2)[:rank]
    m = make_map(memory, "uint32", 4, dims, box, element_strides=(1,) * rank)
    for start in product((-4, 0, 12), *[(-1, 0, d - 1) for d in dims[1:]]):
        check_load(m, memory, start, 0x400)


def test_element_strides_skip_and_shrink_the_box() -> None:
    memory = GlobalMemory()
    m = make_map(memory, "uint16", 2, (64, 30), (32, 7), element_strides=(3, 2))
    assert box_shape(m).counts == (32, 4)
    assert box_shape(m).tx_bytes == 32 * 4 * 2
    check_load(m, memory, (8, 3), 0x800)
    check_load(m, memory, (8, 25), 0x800)


@pytest.mark.parametrize("coordinates", [(-(2**31), 0), (2**31 - 16, 0), (0, -(2**31))])
def test_box_far_outside_is_all_fill(coordinates: tuple[int, int]) -> None:
    memory = GlobalMemory()
    m = make_map(memory)
    assert not read_box(m, coordinates, memory).any()


@pytest.mark.parametrize(
    ("element_type", "size"), [("float16", 2), ("float32", 4), ("float64", 8), ("bfloat16", 2)]
)
def test_nan_fill_writes_7ff7_halves(element_type: str, size: int) -> None:
    memory = GlobalMemory()
    m = make_map(memory, element_type, size, (64, 4), (32, 2), oob_fill="nan")
    box = read_box(m, (64, 0), memory)
    assert (box.view(np.uint16) == 0x7FF7).all()


@pytest.mark.parametrize(
    ("bits", "loaded"),
    [(0x3F801FFF, 0x3F802000), (0x7FC12345, 0x7FFFE000), (0x7F7FFFFF, 0x7F800000),
     (0x00001001, 0x00002000), (0x00001000, 0x00000000), (0xBF803000, 0xBF804000)],
)  # fmt: skip
def test_tf32_maps_round_to_nearest_even(bits: int, loaded: int) -> None:
    memory = GlobalMemory()
    m = make_map(memory, "tfloat32", 4, (4, 1), (4, 1))
    memory.store_int(m.address, bits, 4)
    assert read_box(m, (0, 0), memory).view(np.uint32)[0, 0] == loaded


def test_float32_maps_copy_bits() -> None:
    memory = GlobalMemory()
    m = make_map(memory, "float32_ftz", 4, (4, 1), (4, 1))
    for bits in (0x3F801FFF, 0x7FC12345, 1):
        memory.store_int(m.address, bits, 4)
        assert read_box(m, (0, 0), memory).view(np.uint32)[0, 0] == bits


@pytest.mark.parametrize("coordinate", [1, 2, 7, -1, -12])
def test_inner_coordinate_off_16_bytes_faults(coordinate: int) -> None:
    memory = GlobalMemory()
    m = make_map(memory, "uint16", 2, (64, 4), (32, 2))
    with pytest.raises(EmulationError, match="multiple of 16"):
        read_box(m, (coordinate, 0), memory)


@pytest.mark.parametrize("offset", [0x404, 0x410, 0x420, 0x440])
def test_box_below_128_byte_alignment_faults(offset: int) -> None:
    memory = GlobalMemory()
    m = make_map(memory)
    with pytest.raises(MisalignedError):
        place_box(m, read_box(m, (0, 0), memory), SharedMemory(0x2000), offset)


def test_box_past_the_end_of_shared_memory_faults() -> None:
    memory = GlobalMemory()
    m = make_map(memory)
    with pytest.raises(OutOfBoundsError):
        place_box(m, read_box(m, (0, 0), memory), SharedMemory(0x800), 0x480)


def test_map_larger_than_its_buffer_faults() -> None:
    memory = GlobalMemory()
    m = make_map(memory, dims=(64, 16), box=(64, 16))
    larger = DecodedMap(m.address, "uint8", (64, 17), (64,), (64, 16), (1, 1))
    with pytest.raises(OutOfBoundsError, match="tensor"):
        read_box(larger, (0, 1), memory)


def test_store_is_clipped_and_undoes_the_swizzle() -> None:
    memory = GlobalMemory()
    m = make_map(memory, "uint16", 2, (40, 10), (32, 8), swizzle="64B")
    before = memory.read(m.address, 800).copy()
    smem = SharedMemory(0x2000)
    smem.u8[0x400:] = RNG.integers(0, 256, len(smem.u8) - 0x400, np.uint8)
    write_box(m, (16, 5), memory, take_box(m, smem, 0x480))
    wanted = before.view(np.uint16).reshape(10, 40)
    for row in range(5):
        for i in range(24):
            at = swizzle(0x480 + row * 64 + 2 * i, "64B")
            wanted[5 + row, 16 + i] = smem.load_int(at, 2)
    assert np.array_equal(memory.read(m.address, 800).view(np.uint16).reshape(10, 40), wanted)


def test_store_writes_whole_16_byte_units_past_the_last_element() -> None:
    memory = GlobalMemory()
    address = memory.allocate(3 * 144, "tensor")
    memory.write(address, bytes(3 * 144))
    described = TensorMap("tensor", 0, "bfloat16", (63, 3), (144,), (64, 3), (), "128B")
    m = from_launch(described, address)
    write_box(m, (0, 0), memory, np.full((3, 128), 7, np.uint8))
    rows = memory.read(address, 3 * 144).reshape(3, 144)
    assert (rows[:, :128] == 7).all()
    assert not rows[:, 128:].any()
    pieces, size = select_store(m, (0, 0))[1].in_units().footprint
    assert [int(a) for a in pieces] == [address + 144 * row for row in range(3)]
    assert size == 128


def test_load_fills_from_the_first_element_outside() -> None:
    memory = GlobalMemory()
    m = make_map(memory, "uint16", 2, (64, 2), (64, 2))
    narrow = DecodedMap(m.address, "uint16", (63, 2), (128,), (64, 2), (1, 1))
    box = read_box(narrow, (0, 0), memory)
    assert not box[:, 126:].any()
    assert np.array_equal(box[:, :126], memory.read(m.address, 256).reshape(2, 128)[:, :126])


def test_store_at_a_negative_coordinate_faults() -> None:
    memory = GlobalMemory()
    m = make_map(memory)
    with pytest.raises(EmulationError, match=">= 0"):
        write_box(m, (0, -1), memory, np.zeros((16, 64), np.uint8))


@pytest.mark.parametrize("operation", ["add", "min", "max", "inc", "dec", "and", "or", "xor"])
def test_reduce_combines_u32_elements(operation: str) -> None:
    memory = GlobalMemory()
    m = make_map(memory, "uint32", 4, (8, 4), (8, 4))
    values = np.array([[0, 1, 5, 7, 2**32 - 1, 3, 9, 2]] * 4, np.uint32)
    other = np.array([[5, 1, 4, 9, 1, 0, 12, 2**31]] * 4, np.uint32)
    memory.write(m.address, values.tobytes())
    reduce_box(m, (0, 0), memory, other.view(np.uint8), operation)
    wanted: Any = {
        "add": lambda a, b: (a + b) % 2**32, "min": min, "max": max,
        "inc": lambda a, b: 0 if a >= b else a + 1,
        "dec": lambda a, b: b if a == 0 or a > b else a - 1,
        "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
    }[operation]  # fmt: skip
    got = memory.read(m.address, 128).view(np.uint32).reshape(4, 8)
    assert got[0].tolist() == [
        wanted(int(a), int(b)) for a, b in zip(values[0], other[0], strict=False)
    ]
    assert (got == got[0]).all()


def test_packed_sub_byte_maps_pad_to_16_byte_slots_and_count_payload() -> None:
    memory = GlobalMemory()
    m = DecodedMap(memory.allocate(128), "16u4_align16b", (128, 2), (64,), (128, 2), (1, 1), "128B")
    memory.write(m.address, RNG.integers(0, 256, 128, np.uint8))
    assert box_shape(m).tx_bytes == 128
    box = read_box(m, (0, 0), memory)
    assert box.shape == (2, 128)
    slots = box.reshape(2, 8, 16)
    assert np.array_equal(slots[:, :, :8].ravel(), memory.read(m.address, 128))


def test_gather4_reads_the_named_rows_and_scatter4_writes_them() -> None:
    memory = GlobalMemory()
    m = make_map(memory, dims=(128, 64), box=(64, 1), swizzle="64B")
    rows = memory.read(m.address, 128 * 64).reshape(64, 128).copy()
    coordinates = (32, 7, 3, 63, 64)
    box = gather_rows(m, coordinates, memory)
    assert np.array_equal(box[:3], rows[[7, 3, 63], 32:96])
    assert not box[3].any()
    smem = SharedMemory(0x1000)
    place_box(m, box, smem, 0x800)
    scatter_rows(m, (0, 1, 2, 4, 5), memory, take_rows(m, smem, 0x800))
    rows[[1, 2, 4, 5], :64] = box
    assert np.array_equal(memory.read(m.address, 128 * 64).reshape(64, 128), rows)


def test_footprint_names_exactly_the_bytes_that_a_box_writes() -> None:
    memory = GlobalMemory()
    for mode, inner in (("none", 48), ("128B", 32), ("128B", 128), ("32B", 16), ("64B", 64)):
        m = make_map(memory, dims=(128, 64), box=(inner, 12), swizzle=mode)
        smem = SharedMemory(0x4000, track=True)
        box = read_box(m, (0, 0), memory)
        place_box(m, box, smem, 0x480)
        rows, row_bytes = box.shape
        offsets, size = smem_footprint(m, rows, row_bytes, 0x480)
        named = np.zeros(len(smem.u8), bool)
        named[offsets[:, None] + np.arange(size)] = True
        assert smem.initialised is not None
        assert np.array_equal(named, smem.initialised), mode
