"""Arrays of callers as operands: numpy, DLPack, the CUDA array interface, raw pointers."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxgen.errors import ArgumentError
from ptxgen.launcher import RawArray, view
from ptxgen.launcher.arrays import Operand, as_operand, overlaps
from ptxgen.launcher.dlpack_export import export

POINTER = 0x7F0000001000


class Exporter:
    """A CUDA array at POINTER that exports itself by DLPack and notes the streams it is given."""

    def __init__(self, kind: tuple[int, int], *, versioned: bool) -> None:
        self.kind, self.versioned = kind, versioned
        self.streams: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 1

    def __dlpack__(self, *, stream: Any = None, **new: Any) -> Any:
        if new and not self.versioned:
            raise TypeError("an old producer knows no max_version")
        self.streams.append(stream)
        return export(self, POINTER, (3, 5), (8, 1), self.kind, 1, versioned=self.versioned)


class Interface:
    """An object with a `__cuda_array_interface__` and, like CuPy's, a dtype."""

    def __init__(self, dtype: Any = None, **changes: Any) -> None:
        self.dtype = dtype
        self.__cuda_array_interface__ = {
            "shape": (4, 8), "typestr": "<f4", "data": (POINTER, False), "version": 3,
            "strides": None, **changes,
        }  # fmt: skip
        self.device = type("Device", (), {"id": 2})()


def test_a_masked_numpy_array_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"x: masked arrays .* try x.filled\(0\)"):
        as_operand(np.ma.masked_array(np.zeros((4, 8), np.float32), mask=True), "x")


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (ml_dtypes.float8_e4m3fn, "e4m3"),
        (ml_dtypes.float8_e5m2, "e5m2"),
        (ml_dtypes.bfloat16, "bf16"),
        (np.float16, "f16"),
        (np.float32, "f32"),
        (np.uint8, "uint8"),
    ],
)
def test_numpy_formats_are_known_by_name(dtype: Any, name: str) -> None:
    x = as_operand(np.zeros((2, 3), dtype), "a")
    assert (x.dtype, x.itemsize) == (name, np.dtype(dtype).itemsize)


def test_view_names_the_format_of_bytes() -> None:
    assert as_operand(view(np.zeros((2, 3), np.uint8), "float8_e5m2"), "a").dtype == "e5m2"


def test_view_of_another_size_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"a: an array of uint8 \(1 bytes\).*bf16 \(2 bytes\)"):
        as_operand(view(np.zeros((2, 3), np.uint8), "bf16"), "a")


def test_view_of_numbers_in_another_format_is_refused() -> None:
    with pytest.raises(ArgumentError, match="an array of f16"):
        as_operand(view(np.zeros((2, 3), np.float16), "bf16"), "a")


@pytest.mark.parametrize(
    ("shape", "strides", "normal"),
    [((1, 8), (-99, 1), (8, 1)), ((8, 1), (1, -99), (1, 1)), ((0, 8), (-3, 77), (8, 1))],
)
def test_strides_of_single_rows_and_empty_arrays_are_made_dense(
    shape: tuple[int, ...], strides: tuple[int, ...], normal: tuple[int, ...]
) -> None:
    assert as_operand(RawArray(POINTER, shape, strides, "e4m3"), "a").strides_bytes == normal


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize(
    ("kind", "name"),
    [((4, 16), "bf16"), ((10, 8), "e4m3"), ((12, 8), "e5m2"), ((2, 16), "f16"), ((1, 8), "uint8")],
)
def test_dlpack_capsules_of_both_kinds_are_read(
    kind: tuple[int, int], name: str, versioned: bool
) -> None:
    x = as_operand(Exporter(kind, versioned=versioned), "a")
    step = kind[1] // 8
    assert (x.dtype, x.shape, x.strides_bytes) == (name, (3, 5), (8 * step, step))
    assert (x.pointer, x.device_index, x.readonly) == (POINTER, 1, False)


@pytest.mark.parametrize(("ours", "theirs"), [(0, 1), (1, 1), (2, 2), (0x5500, 0x5500)])
def test_dlpack_producers_are_given_our_stream(ours: int, theirs: int) -> None:
    producer = Exporter((2, 32), versioned=True)
    as_operand(producer, "a", ours)
    assert producer.streams == [theirs]


def test_dlpack_memory_is_given_back_with_the_operand() -> None:
    from ptxgen.launcher import dlpack_export

    held = len(dlpack_export._exported)
    x = as_operand(Exporter((2, 32), versioned=True), "a")
    assert len(dlpack_export._exported) == held + 1
    del x
    assert len(dlpack_export._exported) == held


def test_dlpack_host_arrays_become_numpy_arrays_over_the_same_memory() -> None:
    class Host:
        def __init__(self) -> None:
            self.array = np.zeros((4, 6), np.float16)

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

        def __dlpack__(self, **options: Any) -> Any:
            assert options.get("stream") is None
            return self.array[:, 1:].__dlpack__(**options)

    producer = Host()
    x = as_operand(producer, "a")
    assert x.host is not None
    x.host[...] = 3
    assert producer.array.tolist() == [[0, 3, 3, 3, 3, 3]] * 4


def test_dlpack_read_only_arrays_are_known_as_such() -> None:
    array = np.zeros((2, 2), np.float32)
    array.flags.writeable = False

    class ReadOnly:
        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

        def __dlpack__(self, **options: Any) -> Any:
            return array.__dlpack__(**options)

    assert as_operand(ReadOnly(), "out").readonly


def test_a_producer_that_refuses_is_named() -> None:
    class Refusing:
        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

        def __dlpack__(self, **options: Any) -> Any:
            raise BufferError("requires grad")

    with pytest.raises(ArgumentError, match="b: Refusing cannot be shared: requires grad"):
        as_operand(Refusing(), "b")


def test_the_cuda_array_interface_is_read() -> None:
    x = as_operand(Interface(strides=(64, 4), stream=7, data=(POINTER, True)), "a")
    assert (x.dtype, x.shape, x.strides_bytes, x.pointer) == ("f32", (4, 8), (64, 4), POINTER)
    assert (x.readonly, x.stream, x.device_index) == (True, 7, 2)


def test_void_bytes_take_the_format_of_the_array_dtype() -> None:
    """CuPy exports bf16 as <V2, and ml_dtypes spells e5m2 <f1."""
    bf16 = Interface(np.dtype(ml_dtypes.bfloat16), typestr="<V2")
    e5m2 = Interface(np.dtype(ml_dtypes.float8_e5m2), typestr="<f1")
    assert [as_operand(x, "a").dtype for x in (bf16, e5m2)] == ["bf16", "e5m2"]


def test_an_empty_array_has_pointer_zero_by_every_route() -> None:
    cai = as_operand(Interface(shape=(0, 8), data=(0, False)), "a")
    raw = as_operand(RawArray(0, (0, 8), None, "f32"), "a")
    assert (cai.size, cai.pointer, raw.size, raw.pointer) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mask": object()}, "a: masked arrays"),
        ({"stream": 0}, "a: stream 0 is not allowed"),
        ({"typestr": ">f4"}, "a: typestr '>f4' must be little endian"),
        ({"data": None}, "a: __cuda_array_interface__ must have"),
    ],
)
def test_a_bad_cuda_array_interface_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        as_operand(Interface(**changes), "a")


def test_lists_are_refused_by_name() -> None:
    with pytest.raises(ArgumentError, match=r"b: must be a numpy array.*got list"):
        as_operand([[1.0]], "b")


def raw(start: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Operand:
    return as_operand(RawArray(POINTER + start, shape, strides, "e4m3"), "x")


def test_column_slices_of_one_allocation_do_not_overlap() -> None:
    assert not overlaps(raw(0, (16, 8), (16, 1)), raw(8, (16, 8), (16, 1)))


def test_column_slices_that_share_a_column_overlap() -> None:
    assert overlaps(raw(0, (16, 9), (16, 1)), raw(8, (16, 8), (16, 1)))


def test_arrays_on_different_devices_do_not_overlap() -> None:
    other = as_operand(RawArray(POINTER, (16, 8), None, "e4m3", device=1), "x")
    assert not overlaps(raw(0, (16, 8), (8, 1)), other)


def test_a_raw_array_needs_a_stride_per_axis() -> None:
    with pytest.raises(ArgumentError, match="a: must have one stride per axis"):
        as_operand(RawArray(POINTER, (2, 3), (3,), "bf16"), "a")


@pytest.mark.parametrize("pointer", [-5, 1 << 64, True, 1.0, "5", None])
def test_a_raw_array_needs_an_address(pointer: Any) -> None:
    with pytest.raises(ArgumentError, match=r"a: pointer must be .*; try x.data_ptr\(\)"):
        as_operand(RawArray(pointer, (2, 3), None, "bf16"), "a")
