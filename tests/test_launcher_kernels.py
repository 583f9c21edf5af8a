"""Small kernels, one body for the emulator and the GPU: what a launch hands over arrives."""

import struct
from collections.abc import Callable

import numpy as np
import pytest

from ptxgen.launch import Buffer, Device, Launch, Param, TensorMap

KernelText = Callable[[str], str]
COLUMNS, ROWS, BOX = 192, 40, (64, 16)
MAP = TensorMap(
    "x", element_type="bfloat16", dims=(COLUMNS, ROWS), strides_bytes=(COLUMNS * 2,), box=BOX
)


def test_every_kind_of_parameter_arrives_as_declared(
    device: Device, kernel_text: KernelText
) -> None:
    params = (
        Param("out", "pointer", "out"), Param("a", "u32", 2**32 - 1), Param("b", "s32", -5),
        Param("c", "u64", 2**64 - 2), Param("d", "s64", -(2**40)), Param("e", "f32", 1.5),
        Param("f", "bytes", "0102030405060708090a0b0c"),
        Param("map", "tensor_map", TensorMap(None)),
    )  # fmt: skip
    launch = Launch("params", (1, 1, 1), (1, 1, 1), params=params, buffers=(Buffer("out", 192),))
    out = device.alloc(192)
    device.write(out, b"\xff" * 192)
    device.launch(launch, kernel_text("params"), {"out": out})
    got = device.read(out, 192)
    device.free(out)
    assert struct.unpack("<I4xi4xQqf", got[:36]) == (2**32 - 1, -5, 2**64 - 2, -(2**40), 1.5)
    assert got[40:52] == bytes.fromhex("0102030405060708090a0b0c")
    assert got[64:] == bytes(128)


def test_an_offset_moves_a_pointer(device: Device, kernel_text: KernelText) -> None:
    launch = Launch(
        "cluster", (1, 1, 1), (1, 1, 1), params=(Param("out", "pointer", "out", 32),),
        buffers=(Buffer("out", 64),),
    )  # fmt: skip
    out = device.alloc(64)
    device.write(out, b"\xff" * 64)
    device.launch(launch, kernel_text("cluster"), {"out": out})
    words = struct.unpack("<16I", device.read(out, 64))
    device.free(out)
    poison = 2**32 - 1
    assert words == (poison,) * 8 + (0, 1, 1, 0) + (poison,) * 4


@pytest.mark.parametrize("cluster", [1, 2, 4, 8])
def test_a_grid_counts_ctas_whatever_the_cluster(
    device: Device, kernel_text: KernelText, cluster: int
) -> None:
    launch = Launch(
        "cluster", (24, 1, 1), (1, 1, 1), cluster_ctas=(cluster, 1, 1),
        params=(Param("out", "pointer", "out"),), buffers=(Buffer("out", 16 * 24),),
    )  # fmt: skip
    out = device.alloc(16 * 24)
    device.write(out, b"\xff" * (16 * 24))
    device.launch(launch, kernel_text("cluster"), {"out": out})
    got = np.frombuffer(device.read(out, 16 * 24), np.uint32).reshape(24, 4)
    device.free(out)
    assert got.tolist() == [[i % cluster, cluster, 24, 0] for i in range(24)]


@pytest.mark.parametrize(("x", "y"), [(0, 0), (64, 16), (128, 32), (160, 0)])
def test_a_tma_box_is_the_part_of_the_matrix_that_the_map_says(
    device: Device, kernel_text: KernelText, x: int, y: int
) -> None:
    """The boxes at 128,32 and 160,0 reach past the last row and column, where TMA fills zeros."""
    data = np.arange(1, COLUMNS * ROWS + 1, dtype=np.uint16).reshape(ROWS, COLUMNS)
    launch = Launch(
        "tma_copy", (1, 1, 1), (128, 1, 1), dynamic_smem_bytes=200_000,
        params=(
            Param("map", "tensor_map", MAP), Param("out", "pointer", "out"),
            Param("x", "u32", x), Param("y", "u32", y),
        ),
        buffers=(Buffer("x", data.nbytes), Buffer("out", 2048)),
    )  # fmt: skip
    source, out = device.alloc(data.nbytes), device.alloc(2048)
    device.write(source, data.tobytes())
    device.launch(launch, kernel_text("tma_copy"), {"x": source, "out": out})
    got = np.frombuffer(device.read(out, 2048), np.uint16).reshape(BOX[1], BOX[0])
    device.free(source)
    device.free(out)
    padded = np.zeros((ROWS + BOX[1], COLUMNS + BOX[0]), np.uint16)
    padded[:ROWS, :COLUMNS] = data
    assert np.array_equal(got, padded[y : y + BOX[1], x : x + BOX[0]])
