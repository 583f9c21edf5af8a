"""wmma.load, wmma.store, wmma.mma, and mma.sync of the shapes beside m16n8."""

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxgen.emulator.access import parts_of, report
from ptxgen.emulator.emitter import Emitter
from ptxgen.emulator.lanes import FULL, lane_indices
from ptxgen.emulator.micro import Effect, Micro, lowers, unknown
from ptxgen.emulator.mma_mapped import MappedMma, multiply
from ptxgen.emulator.mma_maps import (
    BITS,
    FragmentMap,
    join_words,
    operand_map,
    result_map,
    split_words,
    volta_map,
)
from ptxgen.emulator.observer import AccessKind
from ptxgen.emulator.op_memory import address_code, space_of
from ptxgen.emulator.runtime import runtime, static
from ptxgen.emulator.values import Slab, Value
from ptxgen.errors import OutOfBoundsError
from ptxgen.ptx.module import Instruction, Operand, Register, Vector

if TYPE_CHECKING:
    from ptxgen.emulator.fragment import Fragment

Shape = tuple[int, int, int]

_WIDE = {(16, 16, 16), (32, 8, 16), (8, 32, 16)}
_WMMA_K = {
    "f16": _WIDE, "bf16": _WIDE, "s8": _WIDE, "u8": _WIDE, "tf32": {(16, 16, 8)},
    "f64": {(8, 8, 4)}, "s4": {(8, 8, 32)}, "u4": {(8, 8, 32)}, "b1": {(8, 8, 128)},
}  # fmt: skip
_MMA_K = {
    "f16": {(8, 8, 4)}, "f64": {(8, 8, 4), (16, 8, 4), (16, 8, 8), (16, 8, 16)},
    "s8": {(8, 8, 16)}, "u8": {(8, 8, 16)}, "s4": {(8, 8, 32)}, "u4": {(8, 8, 32)},
    "b1": {(8, 8, 128), (16, 8, 128), (16, 8, 256)},
}  # fmt: skip
"""Shapes by type of A, beside those of mma_sync.py."""


def _shape(instruction: Instruction) -> Shape:
    found = next(
        (m for m in (re.fullmatch(r"m(\d+)n(\d+)k(\d+)", x) for x in instruction.modifiers) if m),
        None,
    )
    if found is None:
        raise unknown(instruction, "it has no shape")
    return int(found[1]), int(found[2]), int(found[3])


def _types(instruction: Instruction) -> list[str]:
    return [m for m in instruction.modifiers if m in BITS]


def is_mapped(instruction: Instruction) -> bool:
    """Whether an mma.sync is of a shape that is executed here."""
    types = _types(instruction)
    if "sp" in instruction.modifiers or len(types) != 4:
        return False
    shape = _shape(instruction)
    if types[1] == "b1" and shape[0] == 16:
        return "xor" in instruction.modifiers
    return shape in _MMA_K.get(types[1], ())


def _operation(instruction: Instruction) -> MappedMma:
    modifiers, types = instruction.modifiers, _types(instruction)
    if len(types) == 2:
        types = [types[0], "f16", "f16", types[1]]
    layouts = [m for m in modifiers if m in ("row", "col")]
    shape = _shape(instruction)
    legal = (_WMMA_K if instruction.name == "wmma" else _MMA_K).get(types[1] if types else "", ())
    if len(types) != 4 or len(layouts) != 2 or shape not in legal:
        raise unknown(instruction, "no such combination of shape and types")
    d, a, b, c = types
    saturates = "satfinite" in modifiers
    return MappedMma(shape, d, a, b, c, layouts[0], layouts[1], saturates, "xor" in modifiers)


def mapped_mma(instruction: Instruction) -> list[Micro]:
    """mma.sync of a shape beside m16n8."""
    _operation(instruction)
    return [Effect(instruction, _multiply, joins=True)]


@lowers("wmma")
def wmma(instruction: Instruction) -> list[Micro]:
    """wmma.{load.a, load.b, load.c, store.d, mma}."""
    action = instruction.modifiers[0] if instruction.modifiers else ""
    if action == "mma":
        return mapped_mma(instruction)
    if action in ("load", "store"):
        return [Effect(instruction, _load if action == "load" else _store, joins=True)]
    raise unknown(instruction)


def _maps(op: MappedMma) -> tuple[FragmentMap, FragmentMap, FragmentMap, FragmentMap]:
    """Of A, B transposed, C and D."""
    m, n, k = op.shape
    if op.is_volta:
        c, d = (volta_map("c16" if t == "f16" else "c32", "") for t in (op.c_type, op.d_type))
        return volta_map("a", op.a_layout), volta_map("b", op.b_layout), c, d
    bits = BITS[op.a_type]
    result = result_map(m, n)
    return operand_map(m, k, bits, True), operand_map(n, k, bits, False), result, result


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


def _bind(em: Emitter, items: tuple[Operand, ...], name: str, kind: str) -> None:
    """Give registers the rows of an array (n, 32) of a plain type."""
    slab = Slab({"u": name})
    for row, item in enumerate(items):
        if not isinstance(item, Register):
            continue
        if em.mode == "one":
            em.write(item, kind, "S", f"int({name}[{row}, F.lane])")
        else:
            em.store_value(em.flow.number[item.name], Value("V", {}, slab, row))


def _multiply(em: Emitter, instruction: Instruction) -> None:
    op = _operation(instruction)
    d, *sources = (_items(o) for o in instruction.operands[:4])
    plain = "b64" if op.a_type == "f64" else "b32"
    parts = [f"{em.gather_operands(s, plain)}, {len(s)}" for s in sources]
    name = em.assign(f"multiply_mapped(F, {static(op)}, {len(d)}, {', '.join(parts)})")
    _bind(em, d, name, plain)


@runtime
def multiply_mapped(
    F: "Fragment", op: MappedMma, num_d: int, a: Any, num_a: int, b: Any, num_b: int, c: Any,
    num_c: int,
) -> Any:  # fmt: skip
    """The registers of D (n, 32)."""
    map_a, map_b, map_c, map_d = _maps(op)
    kinds = (op.a_type, op.b_type, op.c_type)
    codes = [
        split_words(np.broadcast_to(x, (count, 32)), BITS[kind])
        for x, count, kind in zip((a, b, c), (num_a, num_b, num_c), kinds, strict=True)
    ]
    left, right, addend = (m.gather(x) for m, x in zip((map_a, map_b, map_c), codes, strict=True))
    found = multiply(op, left, right, addend, F.machine.options.exact)
    return join_words(map_d.scatter(found), BITS[op.d_type], num_d)


def _access(instruction: Instruction) -> tuple[str, Shape, str, bool]:
    """(role a, b, c or d; shape; element type; row-major) of a load or store."""
    role, kind = instruction.modifiers[1], instruction.modifiers[-1]
    shape = _shape(instruction)
    known = kind in _WMMA_K or kind in ("f32", "s32")
    if role not in "abcd" or not known or not {"row", "col"} & set(instruction.modifiers):
        raise unknown(instruction)
    return role, shape, kind, "row" in instruction.modifiers


def _operands(em: Emitter, instruction: Instruction, address: Operand, rest: Any) -> str:
    """Arguments that loads and stores share: space, address, stride, role, shape, type, layout."""
    role, (m, n, k), kind, by_rows = _access(instruction)
    space = space_of(instruction)
    form, code = address_code(em, address, space)
    if form == "V":
        code = f"int({em.assign(code)}[F.lead()])"
    if rest:
        stride = em.read_uniform(rest[0], "u32")
    else:
        rows, columns = {"a": (m, k), "b": (k, n)}.get(role, (m, n))
        stride = str(columns if by_rows else rows)
    return f"{space!r}, {code}, {stride}, {role!r}, {(m, n, k)}, {kind!r}, {by_rows}"


def _load(em: Emitter, instruction: Instruction) -> None:
    destination, address, *rest = instruction.operands
    items = _items(destination)
    arguments = _operands(em, instruction, address, rest)
    kind = _access(instruction)[2]
    name = em.assign(f"load_fragment(F, {arguments}, {len(items)}, {instruction.line})")
    _bind(em, items, name, "b64" if kind == "f64" else "b32")


def _store(em: Emitter, instruction: Instruction) -> None:
    address, source, *rest = instruction.operands
    items = _items(source)
    kind = "b64" if _access(instruction)[2] == "f64" else "b32"
    values = f"{em.gather_operands(items, kind)}, {len(items)}"
    arguments = _operands(em, instruction, address, rest)
    em.line(f"store_fragment(F, {arguments}, {values}, {instruction.line})")


def _layout(
    role: str, shape: Shape, kind: str, by_rows: bool
) -> tuple[FragmentMap, bool, int, int]:
    """(fragment, whether memory holds it row by row, lines in memory, elements of a line)."""
    m, n, k = shape
    if role == "a":
        found = operand_map(m, k, BITS[kind], True)
    elif role == "b":
        # the fragment is B transposed, (n, k)
        found, by_rows = operand_map(n, k, BITS[kind], False), not by_rows
    else:
        found = result_map(m, n)
    _, rows, columns = found.shape
    return found, by_rows, *((rows, columns) if by_rows else (columns, rows))


def _place(F: "Fragment", space: str, address: int, stride: int, lines: int, bits: int) -> Any:
    """(memory, space, owner, addresses of the lines in it)."""
    starts = address + np.arange(lines, dtype=np.int64) * (stride * bits // 8)
    parts = parts_of(F, space, starts, lane_indices((1 << lines) - 1), 1)
    if len(parts) != 1:
        raise OutOfBoundsError("a matrix of wmma must lie in one memory")
    return parts[0][:4]


@runtime
def load_fragment(
    F: "Fragment", space: str, address: int, stride: int, role: str, shape: Shape, kind: str,
    by_rows: bool, num_registers: int, line: int,
) -> Any:  # fmt: skip
    """wmma.load: registers (n, 32)."""
    fragment, straight, lines, length = _layout(role, shape, kind, by_rows)
    bits = BITS[kind]
    target, where, owner, starts = _place(F, space, address, stride, lines, bits)
    size = max(bits // 8, 1)
    units = length * bits // 8 // size
    places = starts[:, None] + np.arange(units) * size
    raw = target.load(places.ravel(), size).reshape(lines, units)
    if bits < 8:
        per_byte = 8 // bits
        shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(bits)
        raw = (raw[:, :, None] >> shifts & np.uint8((1 << bits) - 1)).reshape(lines, length)
    if F.observer is not None:
        mask = (1 << lines) - 1 & FULL
        report(F, AccessKind.READ, where, owner, starts, units * size, line, "weak", mask)
    matrix = raw if straight else raw.T
    return join_words(fragment.scatter(matrix[None]), bits, num_registers)


@runtime
def store_fragment(
    F: "Fragment", space: str, address: int, stride: int, role: str, shape: Shape, kind: str,
    by_rows: bool, values: Any, num_registers: int, line: int,
) -> None:  # fmt: skip
    """wmma.store."""
    fragment, straight, lines, length = _layout(role, shape, kind, by_rows)
    bits = BITS[kind]
    F.machine.epoch += 1
    target, where, owner, starts = _place(F, space, address, stride, lines, bits)
    codes = split_words(np.broadcast_to(values, (num_registers, 32)), bits)
    matrix = fragment.gather(codes)[0]
    size = bits // 8
    places = starts[:, None] + np.arange(length) * size
    rows = matrix if straight else matrix.T
    dtype = {2: np.uint16, 4: np.uint32, 8: np.uint64}[size]
    target.store(places.ravel(), np.ascontiguousarray(rows, dtype).ravel(), size)
    if F.observer is not None:
        mask = (1 << lines) - 1 & FULL
        report(F, AccessKind.WRITE, where, owner, starts, length * size, line, "weak", mask)
