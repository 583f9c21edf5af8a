"""Kernel parameters: packed as the kernel declares them, never as Python guesses."""

from typing import Any

import numpy as np
import pytest

from ptxgen.errors import ArgumentError, LaunchError
from ptxgen.launch import Buffer, Param, TensorMap
from ptxgen.launcher.parameters import ParameterBlock, pack_scalar
from ptxgen.launcher.tensor_maps import AlignedStorage, TensorMapSlot


@pytest.mark.parametrize(
    ("kind", "value", "packed"),
    [
        ("u32", 2**32 - 1, "ffffffff"),
        ("s32", -2, "feffffff"),
        ("u64", np.int32(5), "0500000000000000"),
        ("s64", -(2**63), "0000000000000080"),
        ("f32", 1, "0000803f"),
        ("f32", np.float64(-0.5), "000000bf"),
        ("f32", float("inf"), "0000807f"),
        ("bytes", "0aff", "0aff"),
    ],
)
def test_a_scalar_has_the_bytes_of_its_kind(kind: str, value: Any, packed: str) -> None:
    assert pack_scalar(Param("p", kind, value)).hex() == packed


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("u32", 2**32, r"parameter p: u32 must be in 0\.\.4294967295, got 4294967296"),
        ("u32", -1, "u32 must be in"),
        ("s32", 2**31, "s32 must be in"),
        ("u64", 2**64, "u64 must be in"),
        ("u32", 1.0, "must be a u32 integer, got 1.0"),
        ("u32", True, "must be a u32 integer, got True"),
        ("f32", "1", "must be an f32 number"),
        ("f32", 1e39, "at most the largest f32"),
        ("bytes", "zz", "must be hexadecimal"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_name(kind: str, value: Any, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        pack_scalar(Param("p", kind, value))


def contents(block: ParameterBlock, index: int) -> bytes:
    return block.storage.bytes(block.offsets[index], block.sizes[index])


def test_pointers_follow_the_buffers() -> None:
    params = (Param("x", "pointer", "x", 16), Param("n", "u32", 7), Param("y", "pointer", "y"))
    block = ParameterBlock(params, (Buffer("x", 64), Buffer("y", 64)))
    block.set_addresses((0x1000, 0x2000))
    block.set_addresses((0x3000, 0x2000))
    assert [int.from_bytes(contents(block, i), "little") for i in range(3)] == [0x3010, 7, 0x2000]


def test_the_pointer_table_points_at_each_parameter() -> None:
    import ctypes

    block = ParameterBlock((Param("a", "u32", 1), Param("b", "s64", -1), Param("c", "u32", 3)), ())
    table = (ctypes.c_void_p * 3).from_address(block.table_address)
    assert [ctypes.c_uint32.from_address(p or 0).value for p in table] == [1, 2**32 - 1, 3]


def test_the_number_of_addresses_must_be_that_of_the_buffers() -> None:
    block = ParameterBlock((), (Buffer("x", 64), Buffer("y", 64)))
    with pytest.raises(ArgumentError, match=r"2 buffers \('x', 'y'\), got 1 addresses"):
        block.set_addresses((0x1000,))


def test_tensor_map_parameters_are_128_byte_aligned_wherever_they_stand() -> None:
    null = TensorMap(None)
    for scalars in range(1, 40):
        params = [Param(f"s{i}", "u32", i) for i in range(scalars)]
        block = ParameterBlock((*params, Param("map", "tensor_map", null)), ())
        assert (block.storage.address + block.offsets[-1]) % 128 == 0


def test_a_null_map_is_128_zero_bytes() -> None:
    block = ParameterBlock((Param("n", "u32", 9), Param("map", "tensor_map", TensorMap(None))), ())
    assert contents(block, 1) == bytes(128)


def test_storage_is_aligned_every_time() -> None:
    stores = [AlignedStorage(n) for n in range(1, 200)]
    assert all(s.address % 128 == 0 for s in stores)


GOOD = TensorMap(
    "x", element_type="bfloat16", dims=(64, 32), strides_bytes=(128,), box=(64, 16), swizzle="128B"
)


def test_a_map_that_breaks_a_rule_is_refused_before_the_driver_sees_it() -> None:
    from dataclasses import replace

    storage = AlignedStorage(128)
    with pytest.raises(LaunchError, match="swizzle=64B allows an inner box of 64 B"):
        TensorMapSlot(replace(GOOD, swizzle="64B"), storage.address)


def test_a_misaligned_buffer_is_refused_before_the_driver_sees_it() -> None:
    slot = TensorMapSlot(GOOD, AlignedStorage(128).address)
    with pytest.raises(LaunchError, match="must start at a multiple of 16 B, got address 0x1008"):
        slot.encode(0x1008)


@pytest.mark.parametrize(("nbytes", "fits"), [(31 * 128 + 128, True), (31 * 128 + 127, False)])
def test_a_map_must_end_within_its_buffer(nbytes: int, fits: bool) -> None:
    params, buffers = (Param("map", "tensor_map", GOOD),), (Buffer("x", nbytes),)
    if fits:
        ParameterBlock(params, buffers)
    else:
        with pytest.raises(LaunchError, match="reaches byte 4096 of buffer 'x'"):
            ParameterBlock(params, buffers)
