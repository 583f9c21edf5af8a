"""wmma in every shape and layout, and mma.sync of the shapes beside m16n8, against numpy."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from emulator_kernels import execute, words
from numpy.typing import NDArray

from ptxgen.emulator import Options
from ptxgen.errors import UnknownInstructionError

RNG = np.random.default_rng(11)
NUMPY: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "f32": np.float32,
    "s8": np.int8, "u8": np.uint8, "s32": np.int32, "f64": np.float64,
}  # fmt: skip
REGISTERS = {
    ("f16", 16): 8, ("f16", 32): 8, ("f16", 8): 8, ("bf16", 16): 4, ("bf16", 32): 8,
    ("bf16", 8): 2, ("s8", 16): 2, ("s8", 32): 4, ("s8", 8): 1, ("u8", 16): 2, ("u8", 32): 4,
    ("u8", 8): 1, ("tf32", 16): 4, ("f64", 8): 1,
}  # fmt: skip
"""Registers of A by (type, M), and of B by (type, N)."""


def _matrix(kind: str, rows: int, columns: int) -> NDArray[Any]:
    """Small integers, so that every product and sum is exact."""
    low = 0 if kind[0] == "u" else -4
    return RNG.integers(low, 5, (rows, columns)).astype(NUMPY[kind])


def _registers(first: int, count: int, letter: str) -> str:
    return "{" + ", ".join(f"%{letter}{first + i}" for i in range(count)) + "}"


def _run(shape: tuple[int, int, int], types: str, layouts: str, mma_types: str) -> None:
    m, n, k = shape
    kind, c_kind, d_kind = types.split()
    a_layout, b_layout, c_layout, d_layout = layouts.split()
    a, b, c = _matrix(kind, m, k), _matrix(kind, k, n), _matrix(c_kind, m, n)
    held = [x if y == "row" else x.T for x, y in ((a, a_layout), (b, b_layout), (c, c_layout))]
    pads = [np.pad(np.ascontiguousarray(x), ((0, 0), (0, 16))) for x in held]
    strides = [x.shape[1] for x in pads]
    data = np.concatenate([np.frombuffer(x.tobytes().ljust(4096, b"\0"), np.uint8) for x in pads])
    wide = kind == "f64"
    letter = "e" if wide else "r"
    num_c = 2 if wide else (4 if c_kind == "f16" else 8)
    num_d = 2 if wide else (4 if d_kind == "f16" else 8)
    first_c, first_d = (2, 4) if wide else (30, 40)
    ra = _registers(0 if wide else 10, REGISTERS[kind, m], letter)
    rb = _registers(1 if wide else 20, REGISTERS[kind, n], letter)
    rc, rd = _registers(first_c, num_c, letter), _registers(first_d, num_d, letter)
    name = f"m{m}n{n}k{k}"
    body = f"""
add.s64 %d2, %d0, 4096;
add.s64 %d3, %d0, 8192;
wmma.load.a.sync.aligned.{a_layout}.{name}.global.{kind} {ra}, [%d0], {strides[0]};
wmma.load.b.sync.aligned.{b_layout}.{name}.{kind} {rb}, [%d2], {strides[1]};
wmma.load.c.sync.aligned.{c_layout}.{name}.{c_kind} {rc}, [%d3], {strides[2]};
wmma.mma.sync.aligned.{a_layout}.{b_layout}.{name}.{mma_types} {rd}, {ra}, {rb}, {rc};
wmma.store.d.sync.aligned.{d_layout}.{name}.global.{d_kind} [%d1], {rd};
"""
    found = words(execute(body, data), m * n, NUMPY[d_kind])
    found = found.reshape(m, n) if d_layout == "row" else found.reshape(n, m).T
    wanted = a.astype(np.float64) @ b.astype(np.float64) + c.astype(np.float64)
    assert np.array_equal(found.astype(np.float64), wanted)


@pytest.mark.parametrize("layouts", ["row row row row", "row col col row", "col row row col"])
@pytest.mark.parametrize("shape", [(16, 16, 16), (32, 8, 16), (8, 32, 16)])
@pytest.mark.parametrize(
    ("types", "mma_types"),
    [("f16 f32 f32", "f32.f32"), ("f16 f16 f16", "f16.f16"), ("f16 f16 f32", "f32.f16"),
     ("bf16 f32 f32", "f32.bf16.bf16.f32"), ("s8 s32 s32", "s32.s8.s8.s32"),
     ("u8 s32 s32", "s32.u8.u8.s32.satfinite")],
)  # fmt: skip
def test_wmma_of_16_rows_of_k_equals_numpy(
    shape: tuple[int, int, int], types: str, layouts: str, mma_types: str
) -> None:
    _run(shape, types, layouts, mma_types)


@pytest.mark.parametrize("layouts", ["row row row row", "row col row col"])
def test_wmma_of_tf32_and_f64_equals_numpy(layouts: str) -> None:
    _run((16, 16, 8), "tf32 f32 f32", layouts, "f32.tf32.tf32.f32")
    _run((8, 8, 4), "f64 f64 f64", layouts, "rn.f64.f64.f64.f64")


@pytest.mark.parametrize(
    ("kind", "bits", "operation"),
    [("s4", 4, ""), ("u4", 4, ""), ("b1", 1, "xor.popc."), ("b1", 1, "and.popc.")],
)
def test_wmma_below_8_bits_equals_numpy(kind: str, bits: int, operation: str) -> None:
    k = 128 // bits
    raw = RNG.integers(0, 256, (2, 8, 16)).astype(np.uint8)
    both = np.unpackbits(raw, axis=2, bitorder="little").reshape(2, 8, k, bits)
    values = (both << np.arange(bits)).sum(axis=3).astype(np.int64)
    if kind == "s4":
        values -= 16 * (values > 7)
    a, b = values
    wanted = a @ b.T
    if operation.startswith("xor"):
        wanted = (a[:, None] ^ b[None]).sum(axis=2)
    shape, kinds = f"m8n8k{k}", f"s32.{kind}.{kind}.s32"
    body = f"""
add.s64 %d2, %d0, 128;
wmma.load.a.sync.aligned.row.{shape}.global.{kind} {{%r10}}, [%d0], {k};
wmma.load.b.sync.aligned.col.{shape}.global.{kind} {{%r11}}, [%d2], {k};
mov.u32 %r12, 3;
wmma.mma.{operation}sync.aligned.row.col.{shape}.{kinds} {{%r14, %r15}}, {{%r10}}, {{%r11}},
    {{%r12, %r12}};
wmma.store.d.sync.aligned.row.{shape}.global.s32 [%d1], {{%r14, %r15}}, 8;
"""
    found = words(execute(body, raw), 64, np.int32).reshape(8, 8)
    assert np.array_equal(found, wanted + 3)


LANE = np.arange(32)
G, Q = LANE >> 2, LANE & 3


def _mma(opcode: str, registers: dict[str, NDArray[Any]], wide: bool, num_d: int) -> NDArray[Any]:
    """D (num_d, 32) of one mma.sync whose operand registers (n, 32) are given."""
    letter, size = ("d", 8) if wide else ("r", 4)
    data = np.concatenate([x.ravel() for x in registers.values()])
    lines = [f"mul.wide.u32 %d30, %r0, {size};", "add.s64 %d29, %d30, %d0;"]
    names: list[list[str]] = []
    at, number = 0, 8
    for values in registers.values():
        names.append([])
        for _ in values:
            lines.append(f"ld.global.b{8 * size} %{letter}{number}, [%d29+{at}];")
            names[-1].append(f"%{letter}{number}")
            at, number = at + 32 * size, number + 1
    lists = ["{" + ", ".join(x) + "}" for x in names]
    d = [f"%{letter}{number + i}" for i in range(num_d)]
    if wide:
        for name in [x for some in names for x in some] + d:
            assert int(name[2:]) < 28
    lines.append(f"{opcode} {{{', '.join(d)}}}, {', '.join(lists)};")
    lines.append("add.s64 %d29, %d30, %d1;")
    lines += [f"st.global.b{8 * size} [%d29+{32 * size * i}], {x};" for i, x in enumerate(d)]
    result = execute("\n".join(lines), data)
    return words(result, 32 * num_d, np.uint64 if wide else np.uint32).reshape(num_d, 32)


@pytest.mark.parametrize(("m", "k"), [(8, 4), (16, 4), (16, 8), (16, 16)])
def test_mma_of_f64_equals_numpy(m: int, k: int) -> None:
    a, b, c = (RNG.standard_normal(s) for s in ((m, k), (k, 8), (m, 8)))
    halves = m // 8
    ra = [a[G + 8 * h, Q + 4 * j] for j in range(k // 4) for h in range(halves)]
    rb = [b[Q + 4 * j, G] for j in range(k // 4)]
    rc = [c[G + 8 * h, 2 * Q + j] for h in range(halves) for j in range(2)]
    packed = {n: np.array(x).view(np.uint64) for n, x in (("a", ra), ("b", rb), ("c", rc))}
    opcode = f"mma.sync.aligned.m{m}n8k{k}.row.col.f64.f64.f64.f64"
    found = _mma(opcode, packed, True, 2 * halves).view(np.float64)
    wanted = a @ b + c
    rows = [wanted[G + 8 * h, 2 * Q + j] for h in range(halves) for j in range(2)]
    assert np.allclose(found, np.array(rows), rtol=1e-14)


@pytest.mark.parametrize("layouts", ["row.col", "col.row"])
@pytest.mark.parametrize("accumulates", ["f32", "f16"])
def test_mma_m8n8k4_multiplies_four_pairs_of_quads(layouts: str, accumulates: str) -> None:
    a, b = (RNG.integers(-3, 4, s).astype(np.float16) for s in ((4, 8, 4), (4, 4, 8)))
    high, pair = 4 * (LANE >= 16), LANE // 4 % 4
    if layouts == "row.col":
        ra = [a[pair, Q + high, i] for i in range(4)]
        rb = [b[pair, i, Q + high] for i in range(4)]
    else:
        ra = [a[pair, i + high, Q] for i in range(4)]
        rb = [b[pair, Q, i + high] for i in range(4)]

    def pack(x: list[NDArray[Any]]) -> NDArray[Any]:
        codes = np.array(x).view(np.uint16).astype(np.uint32)
        return codes[::2] | codes[1::2] << 16

    num = 8 if accumulates == "f32" else 4
    zero = np.zeros((num, 32), np.uint32)
    opcode = f"mma.sync.aligned.m8n8k4.{layouts}.{accumulates}.f16.f16.{accumulates}"
    found = _mma(opcode, {"a": pack(ra), "b": pack(rb), "c": zero}, False, num)
    wanted = a.astype(np.float32) @ b.astype(np.float32)
    if accumulates == "f32":
        rows = [wanted[pair, (LANE & 1) + (i & 2) + high, (i & 4) + (LANE & 2) + (i & 1)]
                for i in range(8)]  # fmt: skip
        assert np.array_equal(found.view(np.float32), np.array(rows))
    else:
        rows = [wanted[pair, Q + high, i] for i in range(8)]
        assert np.array_equal(found, pack([x.astype(np.float16) for x in rows]))


def test_mma_of_small_integers_equals_numpy() -> None:
    raw = RNG.integers(0, 256, (2, 8, 16)).astype(np.uint8)
    registers = {n: x.view(np.uint32)[G, Q][None] for n, x in zip("ab", raw, strict=True)}
    registers["c"] = np.full((2, 32), 5, np.uint32)
    found = _mma("mma.sync.aligned.m8n8k16.row.col.s32.s8.u8.s32", registers, False, 2)
    wanted = raw[0].view(np.int8).astype(int) @ raw[1].astype(int).T + 5
    assert np.array_equal(found.view(np.int32), np.array([wanted[G, 2 * Q + j] for j in (0, 1)]))


def test_exact_wmma_truncates_like_a_tensor_core() -> None:
    a = np.zeros((16, 16), np.float16)
    a[:, 0], a[:, 1:] = 1, 3 * 2.0**-13
    b = np.full((16, 16), 2.0**-13, np.float16)
    b[0] = 1
    data = np.concatenate([a, b])
    body = """
add.s64 %d2, %d0, 512;
mov.b32 %r30, 0;
wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r10,%r11,%r12,%r13,%r14,%r15,%r16,%r17}, [%d0];
wmma.load.b.sync.aligned.row.m16n16k16.f16 {%r20,%r21,%r22,%r23,%r24,%r25,%r26,%r27}, [%d2];
wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32 {%r40,%r41,%r42,%r43,%r44,%r45,%r46,%r47},
    {%r10,%r11,%r12,%r13,%r14,%r15,%r16,%r17}, {%r20,%r21,%r22,%r23,%r24,%r25,%r26,%r27},
    {%r30,%r30,%r30,%r30,%r30,%r30,%r30,%r30};
wmma.store.d.sync.aligned.row.m16n16k16.f32 [%d1], {%r40,%r41,%r42,%r43,%r44,%r45,%r46,%r47};
"""
    exact = words(execute(body, data, options=Options(exact=True)), 256, np.float32)
    # each of 15 products 1.5 * 2^-25 keeps 25 fractional bits, and the sum 23, toward zero
    assert (exact == 1 + 3 * 2.0**-23).all()


def test_a_shape_that_does_not_exist_is_refused() -> None:
    body = "wmma.load.a.sync.aligned.row.m16n16k16.f32 {%r10}, [%d0];\n"
    body += "wmma.mma.sync.aligned.row.row.m8n8k8.f32.f32 {%r1}, {%r2}, {%r3}, {%r4};\n"
    with pytest.raises(UnknownInstructionError, match="shape"):
        execute(body)
