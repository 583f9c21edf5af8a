"""Tensor copy cases: loads, stores and reductions of boxes; im2col; multicast; edited maps."""

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any

import numpy as np
from hardware_async import CLUSTER_SYNC, STORES_DONE, async_case, one_thread, wait
from hardware_runs import Case
from hardware_values import image
from numpy.typing import NDArray

from ptxgen.emulator.tensor_map import DecodedMap, Im2col, encode
from ptxgen.launch import TensorMap

SIZES = {
    "uint8": 1, "uint16": 2, "uint32": 4, "int32": 4, "uint64": 8, "int64": 8, "float16": 2,
    "float32": 4, "float64": 8, "bfloat16": 2, "float32_ftz": 4, "tfloat32": 4, "tfloat32_ftz": 4,
}  # fmt: skip
_VALUES = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float32_ftz": "f32",
           "tfloat32": "f32", "tfloat32_ftz": "f32", "float64": "f64"}  # fmt: skip


def _tensor(element_type: str, dims: tuple[int, ...], seed: int) -> NDArray[np.uint8]:
    """Bytes of a tensor: values of a float type, some of them special; else any bytes."""
    nbytes = prod(dims) * SIZES[element_type]
    kind = ("normal", "wide", "bits", "small")[seed % 4]
    return image(_VALUES.get(element_type, "int"), kind, nbytes, seed)


def tensor_map_of(
    element_type: str, dims: tuple[int, ...], box: tuple[int, ...], **fields: Any
) -> TensorMap:
    """A map of a packed tensor in `aux`."""
    strides, stride = [], dims[0] * SIZES[element_type]
    for extent in dims[1:]:
        strides.append(stride)
        stride *= extent
    return TensorMap("aux", 0, element_type, dims, tuple(strides[: len(dims) - 1]), box, **fields)


def box_bytes(tensor_map: TensorMap) -> int:
    """Bytes that a load counts: dimension 0 whole, the others divided by their strides."""
    steps = (1, *tensor_map.element_strides[1:]) if tensor_map.element_strides else (1,) * 5
    counts = [-(-b // s) for b, s in zip(tensor_map.box, steps, strict=False)]
    return prod(counts) * SIZES[tensor_map.element_type]


def _coordinates(rank: int) -> str:
    return "{" + ", ".join(f"%v{i}" for i in range(rank)) + "}"


def load_case(
    tensor_map: TensorMap, start: tuple[int, ...], offset: int = 0, seed: int = 0
) -> Case:
    """A load of one box to `offset` in shared memory."""
    m = tensor_map
    rank = len(m.dims)
    load = (
        f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        f"[%r4], [%map, {_coordinates(rank)}], [%bar];"
    )
    body = (
        one_thread(
            f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], %v{rank};\n"
            f"add.u32 %r4, %smem, %v{rank + 1};\n{load}"
        )
        + "\n"
        + wait()
    )
    steps = f" strides {m.element_strides}" if m.element_strides else ""
    name = (
        f"load {m.element_type} {m.dims} box {m.box} at {start} {m.swizzle} {m.oob_fill}{steps}"
        f" +{offset}"
    )
    return async_case(
        name, body, smem_bytes=16384, values=(*start, box_bytes(m), offset), tensor_map=m,
        aux=_tensor(m.element_type, m.dims, seed), num_results=box_bytes(m),
    )  # fmt: skip


def load_cases() -> Iterator[Case]:
    """Tile mode: ranks, types, swizzles, borders, strides, fills."""
    dims, box = (32, 9, 5, 4, 3), (16, 4, 3, 2, 2)
    for rank in range(1, 6):
        inner = (-16, 0, 8, 24)
        for index, first in enumerate(inner):
            corner = (first, *((-1, 2, 7)[(index + d) % 3] for d in range(rank - 1)))
            m = tensor_map_of(
                "bfloat16", dims[:rank], box[:rank], oob_fill=("zero", "nan")[index % 2]
            )
            yield load_case(m, corner, 128 * index, index)
    for index, (element_type, size) in enumerate(SIZES.items()):
        m = tensor_map_of(element_type, (64 // size, 20), (32 // size, 8))
        yield load_case(m, (16 // size, 15), seed=index)
        if element_type in _VALUES:
            yield load_case(m, (0, 0), seed=2)
            m = tensor_map_of(element_type, (64 // size, 20), (32 // size, 8), oob_fill="nan")
            yield load_case(m, (-16 // size, 15), seed=index)
    for swizzle, width, offset in product(("32B", "64B", "128B"), (16, 32, 48, 64, 128), (0, 384)):
        if width <= int(swizzle[:-1]):
            yield load_case(
                tensor_map_of("uint8", (256, 40), (width, 24), swizzle=swizzle), (32, 5), offset
            )
    for swizzle in ("none", "64B", "128B"):
        m = tensor_map_of("uint16", (96, 7, 6), (32, 5, 3), swizzle=swizzle)
        for start in ((0, 0, 0), (72, 4, 5), (-24, -3, -2), (96, 0, 0), (2**31 - 32, 1, 1)):
            yield load_case(m, start, 1024)
    for steps in ((1, 2), (3, 2), (2, 3), (1, 8), (8, 1)):
        m = tensor_map_of("uint16", (64, 30), (32, 7), element_strides=steps)
        yield load_case(m, (8, 3))
        yield load_case(m, (-8, 25), 128)
    m = tensor_map_of("uint32", (24, 12, 9), (8, 5, 4), element_strides=(1, 2, 3), swizzle="32B")
    yield load_case(m, (4, 3, 2))


_STORE_DIMS = ((40, 6), (40, 5, 4), (40, 5, 3, 2), (40, 3, 3, 2, 2))


def store_case(
    tensor_map: TensorMap, start: tuple[int, ...], operation: str = "", offset: int = 0,
    values: str = "int", seed: int = 1,
) -> Case:  # fmt: skip
    """A store or reduction of one box from `offset` in shared memory."""
    m = tensor_map
    rank = len(m.dims)
    head = f"cp.reduce.async.bulk.tensor.{rank}d" if operation else f"cp.async.bulk.tensor.{rank}d"
    suffix = f".{operation}" if operation else ""
    body = one_thread(
        f"add.u32 %r4, %smem, %v{rank};\n"
        f"{head}.global.shared::cta{suffix}.tile.bulk_group [%map, {_coordinates(rank)}], [%r4];\n"
        f"{STORES_DONE}"
    )
    steps = f" strides {m.element_strides}" if m.element_strides else ""
    name = (
        f"{operation or 'store'} {m.element_type} {m.dims} box {m.box} at {start} {m.swizzle}"
        f"{steps} +{offset} of {values} {seed}"
    )
    kind = ("normal", "wide", "bits", "small")[seed % 4]
    return async_case(
        name, body, smem_bytes=8192, values=(*start, offset), tensor_map=m,
        aux=_tensor(m.element_type, m.dims, seed),
        data=image(values, kind, 8192, seed + 7), num_results=box_bytes(m),
    )  # fmt: skip


def store_cases() -> Iterator[Case]:
    """Stores clipped at borders, swizzled; reductions of every type and operation."""
    for dims in ((64,), *_STORE_DIMS):
        rank = len(dims)
        box = (16, 4, 3, 2, 2)[:rank]
        for start in ((0,) * rank, (24, *(d - 2 for d in dims[1:])), (32, *(d for d in dims[1:]))):
            yield store_case(tensor_map_of("bfloat16", dims, box), start)
    for columns, first in product((33, 36, 39, 40), (16, 24, 32)):
        m = TensorMap("aux", 0, "bfloat16", (columns, 6), (96,), (16, 4))
        yield _ragged(m, (first, 3), "")
        yield _ragged(m, (first, 3), "add")
    for swizzle, inner in (("32B", 32), ("64B", 64), ("128B", 128), ("128B", 48), ("64B", 16)):
        m = tensor_map_of("uint8", (160, 20), (inner, 16), swizzle=swizzle)
        yield store_case(m, (32, 3), offset=384)
        m = tensor_map_of("uint32", (40, 20), (inner // 4, 16), swizzle=swizzle)
        yield store_case(m, (8, 3), "xor")
    yield store_case(tensor_map_of("uint16", (64, 30), (32, 7), element_strides=(1, 2)), (8, 3))
    integers = ("add", "min", "max", "and", "or", "xor")
    for element_type, operations in {
        "uint32": (*integers, "inc", "dec"), "int32": integers, "uint64": integers,
        "int64": ("min", "max"), "float16": ("add", "min", "max"),
        "bfloat16": ("add", "min", "max"),
        "float32": ("add",), "float32_ftz": ("add",),
    }.items():  # fmt: skip
        size = SIZES[element_type]
        for operation in operations:
            for seed in (0, 1, 2, 3) if element_type in _VALUES else (1,):
                m = tensor_map_of(element_type, (128 // size, 8), (64 // size, 4))
                yield store_case(
                    m, (32 // size, 2), operation, values=_VALUES.get(element_type, "int"),
                    seed=seed,
                )  # fmt: skip


def _ragged(m: TensorMap, start: tuple[int, ...], operation: str) -> Case:
    """A store into rows that end inside a 16-byte unit; the gap behind is compared as well."""
    rank = 2
    head = "cp.reduce.async.bulk.tensor.2d" if operation else "cp.async.bulk.tensor.2d"
    suffix = f".{operation}" if operation else ""
    body = one_thread(
        f"{head}.global.shared::cta{suffix}.tile.bulk_group [%map, {_coordinates(rank)}], [%smem];"
        f"\n{STORES_DONE}"
    )
    return async_case(
        f"{operation or 'store'} at the edge of {m.dims[0]} columns, from {start}", body,
        values=start, tensor_map=m, aux=image("bf16", "normal", 96 * 6, 5),
        data=image("bf16", "normal", 4096, 6), num_results=64,
    )  # fmt: skip


def _im2col_map(
    dims: tuple[int, ...], column: Im2col, strides: tuple[int, ...], swizzle: str, fill: str
) -> DecodedMap:
    pitch, stride = [], dims[0] * 2
    for extent in dims[1:]:
        pitch.append(stride)
        stride *= extent
    return DecodedMap(
        16, "float16", dims, tuple(pitch), (), strides or (1,) * len(dims), swizzle, oob_fill=fill,
        im2col=column,
    )  # fmt: skip


def im2col_store_case(
    dims: tuple[int, ...], column: Im2col, start: tuple[int, ...], operation: str
) -> Case:
    """A store, or a sum, of one column."""
    opcode = f"cp.{'reduce.' if operation else ''}async.bulk.tensor.{len(dims)}d"
    body = one_thread(
        f"{opcode}.global.shared::cta{operation}.im2col_no_offs.bulk_group "
        f"[%map, {_coordinates(len(dims))}], [%smem];\n{STORES_DONE}"
    )
    name = f"im2col store{operation} {dims} {column.upper_corner} at {start}"
    return async_case(
        name, body, values=start, tensor_map=encode(_im2col_map(dims, column, (), "none", "zero")),
        aux=image("f16", "normal", prod(dims) * 2, 2), data=image("f16", "normal", 4096, 3),
        num_results=column.channels * column.pixels,
    )  # fmt: skip


def im2col_case(
    dims: tuple[int, ...], column: Im2col, start: tuple[int, ...], offsets: tuple[int, ...],
    strides: tuple[int, ...] = (), swizzle: str = "none", fill: str = "zero",
) -> Case:  # fmt: skip
    """A load through an im2col map that the kernel completes with its address."""
    rank = len(dims)
    m = _im2col_map(dims, column, strides, swizzle, fill)
    nbytes = column.channels * column.pixels * 2
    moved = ", ".join(f"%h{i}" for i in range(rank - 2))
    narrow = "\n".join(f"mov.u16 %h{i}, {offset};" for i, offset in enumerate(offsets))
    body = (
        one_thread(
            f"{{ .reg .b16 %h<3>;\n{narrow}\n"
            f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {nbytes};\n"
            f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.im2col.mbarrier::complete_tx"
            f"::bytes [%smem], [%map, {_coordinates(rank)}], [%bar], {{{moved}}};\n}}"
        )
        + "\n"
        + wait()
    )
    name = (
        f"im2col {dims} corners {column.lower_corner} {column.upper_corner} {column.channels}x"
        f"{column.pixels} at {start} offsets {offsets} strides {strides} {swizzle} {fill}"
    )
    tensor = image("f16", "normal", prod(dims) * 2, rank)
    return async_case(
        name, body, smem_bytes=8192, values=start, tensor_map=encode(m), aux=tensor,
        num_results=nbytes // 2,
    )  # fmt: skip


_COLUMNS: tuple[tuple[tuple[int, ...], ...], ...] = (
    ((0,), (0,), (0,), (0,)), ((0,), (0,), (5,), (0,)), ((-1,), (-1,), (-1,), (2,)),
    ((-2,), (1,), (3,), (1,)), ((1,), (-2,), (1,), (0,)), ((0,), (-3,), (2,), (5,)),
    ((0, 0), (0, 0), (0, 0), (0, 0)), ((-1, -1), (-1, -1), (-1, 0), (2, 1)),
    ((-1, -2), (1, 0), (3, 2), (0, 3)), ((0, 0, 0), (0, 0, 0), (0, 0, 0), (0, 0, 0)),
    ((0, 0, 0), (0, 0, 0), (4, 2, 3), (0, 0, 0)),
    ((-1, -1, -1), (-1, -1, -1), (-1, 0, 1), (2, 1, 0)),
    ((-2, 0, -1), (1, 0, 0), (2, 1, 0), (0, 1, 3)),
)  # fmt: skip
"""Lower corner, upper corner, start and offsets in W, H, D."""


_TENSORS: dict[int, tuple[int, int, tuple[int, ...], tuple[int, ...]]] = {
    1: (16, 24, (32, 11, 4), (1, 2, 1)), 2: (8, 40, (16, 7, 5, 3), (1, 2, 2, 1)),
    3: (8, 100, (16, 5, 4, 4, 3), (1, 2, 1, 2, 1)),
}  # fmt: skip
"""Spatial dimensions -> channels, pixels, extents, traversal strides."""


def im2col_cases() -> Iterator[Case]:
    """3-D, 4-D and 5-D columns with corners, offsets, strides, borders."""
    for lower, upper, start, offsets in _COLUMNS:
        channels, pixels, dims, steps = _TENSORS[len(start)]
        column = Im2col(lower, upper, channels, pixels)
        yield im2col_case(dims, column, (8, *start, 0), offsets)
        swizzle, fill = ("32B", "nan") if len(start) < 3 else ("none", "zero")
        yield im2col_case(dims, column, (0, *start, 1), offsets, steps, swizzle, fill)


def multicast_cases() -> Iterator[Case]:
    """Loads to several CTAs of a cluster: each arms its own barrier."""
    m = tensor_map_of("uint8", (64, 40), (64, 16), swizzle="64B")
    for cluster, mask, issuer in product((2, 4), (1, 2, 3, 5, 10, 15), (0, 1)):
        if mask >> cluster:
            continue
        load = (
            f"{{ .reg .b16 %mask; mov.b16 %mask, {mask};\n"
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
            ".multicast::cluster [%smem], [%map, {0, 5}], [%bar], %mask; }"
        )
        body = f"""
mov.u32 %r5, {mask};
shr.u32 %r6, %r5, %rank;
and.b32 %r6, %r6, 1;
setp.ne.u32 %p, %r6, 0;
{one_thread("@%p mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 1024;")}
{CLUSTER_SYNC}
setp.ne.u32 %q, %rank, {issuer};
@%q bra FOLLOWERS;
{one_thread(load)}
FOLLOWERS:
@!%p bra WAITED;
{wait()}
WAITED:
"""
        yield async_case(
            f"multicast to {mask:04b} of {cluster} from {issuer}", body, cluster=cluster,
            tensor_map=m, aux=_tensor("uint8", m.dims, 3), num_results=1024,
        )  # fmt: skip


def _hinted_case() -> Case:
    """Prefetches of the map and of a box, then a load with a cache policy."""
    m = tensor_map_of("uint8", (128, 32), (64, 8), l2_promotion="128B")
    body = (
        one_thread(
            "prefetch.tensormap [%map];\n"
            "cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%map, {16, 3}];\n"
            "mov.u64 %x2, 0x14F0000000000000;\n"
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 512;\n"
            "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
            ".L2::cache_hint [%smem], [%map, {16, 3}], [%bar], %x2;"
        )
        + "\n"
        + wait()
    )
    aux = _tensor("uint8", m.dims, 3)
    return async_case("load with prefetch and hint", body, tensor_map=m, aux=aux, num_results=512)


def edited_map_cases() -> Iterator[Case]:
    """tensormap.replace of every field, then a load through the edited map."""
    m = DecodedMap(16, "float16", (128, 32), (256,), (32, 8), (1, 1))
    edits = {
        "b64 global_stride, 0": 128, "b32 global_dim, 0": 20, "b32 global_dim, 1": 3,
        "b32 box_dim, 0": 16, "b32 box_dim, 1": 5, "b32 element_stride, 1": 2,
        "b32 swizzle_mode": 2, "b32 elemtype": 0, "b32 fill_mode": 1,
    }  # fmt: skip
    after = {"b32 box_dim, 0": 256, "b32 box_dim, 1": 320, "b32 element_stride, 1": 256,
             "b32 elemtype": 256}  # fmt: skip
    for edit, value in edits.items():
        width, field = edit.split(" ", 1)
        name, _, ordinal = field.partition(", ")
        operand = f"{ordinal}, {value}" if ordinal else f"{value}"
        if width == "b64":
            operand = f"{ordinal}, %x5"
        nbytes = after.get(edit, 512)
        body = (
            one_thread(
                f"mov.u64 %x5, {value};\n"
                f"tensormap.replace.tile.{name}.global.b1024.{width} [%work], {operand};\n"
                "fence.proxy.tensormap::generic.release.gpu;\n"
                "fence.proxy.tensormap::generic.acquire.gpu [%work], 128;\n"
                f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {nbytes};\n"
                "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                "[%smem], [%map, {-16, 1}], [%bar];"
            )
            + "\n"
            + wait()
        )
        yield async_case(
            f"tensormap.replace {field} = {value}", body, tensor_map=encode(m),
            aux=_tensor("uint8", (256, 40), 3), num_results=nbytes,
        )  # fmt: skip


def im2col_store_cases() -> Iterator[Case]:
    """Stores and sums of whole columns."""
    for lower, upper, start, _offsets in _COLUMNS:
        channels, pixels, dims, _steps = _TENSORS[len(start)]
        if min(lower) >= 0 and max(upper) <= 0 and min(start) >= 0:
            column = Im2col(lower, upper, channels, pixels)
            for operation in ("", ".add"):
                yield im2col_store_case(dims, column, (0, *start, 0), operation)


def all_cases() -> dict[str, list[Case]]:
    """By family."""
    return {
        "loads": list(load_cases()), "stores": list(store_cases()),
        "im2col": list(im2col_cases()), "multicast": list(multicast_cases()),
        "im2col stores": list(im2col_store_cases()),
        "edited maps": list(edited_map_cases()), "hints": [_hinted_case()],
    }  # fmt: skip
