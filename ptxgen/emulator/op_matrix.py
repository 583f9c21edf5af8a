"""ldmatrix, stmatrix, movmatrix and mma.sync."""

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxgen.emulator.access import parts_of, report
from ptxgen.emulator.emitter import Emitter
from ptxgen.emulator.lanes import lane_indices
from ptxgen.emulator.matrix_moves import ldmatrix, movmatrix, stmatrix
from ptxgen.emulator.micro import Effect, Micro, lowers, unknown
from ptxgen.emulator.mma_batches import can_batch, execute_batch
from ptxgen.emulator.mma_sync import MmaSync, execute_mma_sync, gather_scales, parse_mma_sync
from ptxgen.emulator.observer import AccessKind
from ptxgen.emulator.op_memory import address_code, space_of
from ptxgen.emulator.op_wmma import is_mapped, mapped_mma
from ptxgen.emulator.runtime import runtime, static
from ptxgen.emulator.values import Slab, Value
from ptxgen.errors import OutOfBoundsError
from ptxgen.ptx.module import Immediate, Instruction, Operand, Register, Vector

if TYPE_CHECKING:
    from ptxgen.emulator.fragment import Fragment

_ROW_BYTES = {"b4x16_p64": 8, "b6x16_p32": 12}
"""Bytes of a row of 16 that an unpacking form takes; the others are padding."""
_SHAPES = ("m8n8", "m16n16", "m8n16", "m16n8")


@lowers("ldmatrix", "stmatrix", "movmatrix", "mma")
def matrix(instruction: Instruction) -> list[Micro]:
    """Everything that a warp does with small matrices."""
    emit = {"ldmatrix": _load, "stmatrix": _store, "movmatrix": _move, "mma": _mma}
    if instruction.name == "mma" and is_mapped(instruction):
        return mapped_mma(instruction)
    if instruction.name == "mma" and can_batch(parse_mma_sync(instruction.modifiers)):
        return [Effect(instruction, _mma, joins=True, merged=_mma_run)]
    return [Effect(instruction, emit[instruction.name], joins=True)]


def _form(instruction: Instruction) -> tuple[str, int, bool, str]:
    """(shape, count of .xN, transposed, unpacking)."""
    modifiers = instruction.modifiers
    shape = next((m for m in modifiers if m in _SHAPES), "")
    count = next((int(m[1:]) for m in modifiers if re.fullmatch(r"x[124]", m)), 0)
    packed = next((m for m in modifiers if m in ("b4x16_p64", "b6x16_p32")), "")
    if not shape or not count:
        raise unknown(instruction, "needs a shape and .x1, .x2 or .x4")
    return shape, count, "trans" in modifiers, packed


def items_of(operand: Operand) -> tuple[Operand, ...]:
    """The registers of a vector, or the one operand."""
    return operand.items if isinstance(operand, Vector) else (operand,)


def bind_rows(em: Emitter, items: tuple[Operand, ...], name: str) -> None:
    """Give registers the rows of an array (n, 32)."""
    slab = Slab({"u": name})
    for row, item in enumerate(items):
        if isinstance(item, Register):
            if em.mode == "one":
                em.write(item, "b32", "S", f"int({name}[{row}, F.lane])")
            else:
                em.store_value(em.flow.number[item.name], Value("V", {}, slab, row))


def _check_count(instruction: Instruction, registers: Operand) -> None:
    shape, count, _, _ = _form(instruction)
    wanted = 2 * count if shape == "m16n16" else count
    if len(items_of(registers)) != wanted:
        raise unknown(instruction, f"it must have {wanted} registers")


def _address(em: Emitter, operand: Operand, instruction: Instruction) -> str:
    form, code = address_code(em, operand, space_of(instruction))
    return f"np.full(32, {code}, I8)" if form == "S" else code


def _load(em: Emitter, instruction: Instruction) -> None:
    destination, address = instruction.operands
    _check_count(instruction, destination)
    name = em.assign(
        f"load_matrices(F, {space_of(instruction)!r}, {_address(em, address, instruction)}, "
        f"{_form(instruction)!r}, {instruction.line})"
    )
    bind_rows(em, items_of(destination), name)


def _store(em: Emitter, instruction: Instruction) -> None:
    address, source = instruction.operands
    _check_count(instruction, source)
    values = em.gather_operands(items_of(source), "b32")
    em.line(
        f"store_matrices(F, {space_of(instruction)!r}, {_address(em, address, instruction)}, "
        f"{values}, {_form(instruction)!r}, {instruction.line})"
    )


def _move(em: Emitter, instruction: Instruction) -> None:
    destination, source = instruction.operands
    name = em.assign(f"move_matrix({em.read_lanes(source, 'b32')})")
    bind_rows(em, (destination,), name)


@runtime
def move_matrix(values: Any) -> Any:
    """movmatrix."""
    return movmatrix(values[None])


def _rows(F: "Fragment", space: str, addresses: Any, num_rows: int) -> Any:
    """(memory, space, owner, addresses of the rows in it)."""
    wide = addresses[:num_rows].astype(np.int64)
    parts = parts_of(F, space, wide, lane_indices((1 << num_rows) - 1), 16)
    if len(parts) != 1:
        raise OutOfBoundsError("the rows of a matrix must lie in one CTA's shared memory")
    return parts[0][:4]


@runtime
def load_matrices(
    F: "Fragment", space: str, addresses: Any, form: tuple[str, int, bool, str], line: int
) -> Any:
    """ldmatrix: registers (n, 32)."""
    shape, count, transposed, packed = form
    num_rows = (16 if shape == "m16n16" else 8) * count
    target, where, owner, inner = _rows(F, space, addresses, num_rows)
    found = ldmatrix(target, inner, shape, count, transpose=transposed, packed=packed)
    if F.observer is not None:
        mask = (1 << num_rows) - 1
        nbytes = _ROW_BYTES.get(packed, 16)
        report(F, AccessKind.READ, where, owner, inner, nbytes, line, "weak", mask)
    return found


@runtime
def store_matrices(
    F: "Fragment", space: str, addresses: Any, values: Any, form: tuple[str, int, bool, str],
    line: int,
) -> None:  # fmt: skip
    """stmatrix."""
    shape, count, transposed, _ = form
    F.machine.epoch += 1
    target, where, owner, inner = _rows(F, space, addresses, 8 * count)
    registers = np.broadcast_to(values, (count, 32))
    stmatrix(target, inner, registers, shape, transpose=transposed)
    if F.observer is not None:
        mask = (1 << 8 * count) - 1
        report(F, AccessKind.WRITE, where, owner, inner, 16, line, "weak", mask)


def _mma(em: Emitter, instruction: Instruction) -> None:
    operation = parse_mma_sync(instruction.modifiers)
    d, a, b, c, *scales = instruction.operands
    counts = [len(items_of(x)) for x in (a, b, c)]
    texts = [em.gather_operands(items_of(x), "b32") for x in (a, b, c)]
    extra = "()"
    if operation.sparse:
        if len(scales) != 2:
            raise unknown(instruction, "needs metadata and a selector")
        selector = scales[1]
        last = operation.num_selectors - 1
        if not isinstance(selector, Immediate) or not 0 <= int(selector.value) <= last:
            raise unknown(instruction, f"its selector must be a literal from 0 to {last}")
        extra = f"({em.read_lanes(scales[0], 'b32')}, {int(selector.value)})"
    elif scales:
        if len(scales) != 4:
            raise unknown(instruction, "needs scale-a, its selectors, scale-b, its selectors")
        parts = []
        for index in (0, 2):
            selectors = items_of(scales[index + 1])
            parts.append(
                f"({em.read_lanes(scales[index], 'b32')}, "
                + ", ".join(em.read_uniform(s, "u16") for s in selectors)
                + ")"
            )
        extra = f"({', '.join(parts)})"
    name = em.assign(
        f"multiply_matrices(F, {static(operation)}, {', '.join(texts)}, {tuple(counts)}, {extra})"
    )
    bind_rows(em, items_of(d), name)


def _mma_run(em: Emitter, instructions: list[Instruction]) -> None:
    """Independent mma.sync of one form."""
    operation = parse_mma_sync(instructions[0].modifiers)
    texts = []
    for index in (1, 2, 3):
        items = [x for i in instructions for x in items_of(i.operands[index])]
        texts.append(f"{em.gather_operands(items, 'b32')}, {len(items)}")
    name = em.assign(
        f"multiply_batch(F, {static(operation)}, {len(instructions)}, {', '.join(texts)})"
    )
    results = tuple(x for i in instructions for x in items_of(i.operands[0]))
    bind_rows(em, results, name)


@runtime
def multiply_batch(
    F: "Fragment", operation: MmaSync, count: int, a: Any, num_a: int, b: Any, num_b: int, c: Any,
    num_c: int,
) -> Any:  # fmt: skip
    """Registers of D of `count` instructions, one after the other."""
    a, b, c = whole(a, num_a), whole(b, num_b), whole(c, num_c)
    if not F.machine.options.exact:
        return execute_batch(operation, count, a, b, c)
    native = F.machine.image.native_fp8
    parts = zip(*(np.split(x, count) for x in (a, b, c)), strict=True)
    return np.concatenate(
        [execute_mma_sync(operation, *p, exact=True, native_fp8=native) for p in parts]
    )


def whole(registers: Any, count: int) -> Any:
    """(n, 1) or (n, 32) as (n, 32)."""
    return registers if registers.shape == (count, 32) else np.broadcast_to(registers, (count, 32))


@runtime
def multiply_matrices(
    F: "Fragment", operation: MmaSync, a: Any, b: Any, c: Any, counts: tuple[int, int, int],
    scales: tuple[Any, ...],
) -> Any:  # fmt: skip
    """mma.sync: the registers of D (n, 32)."""
    image = F.machine.image
    options: dict[str, Any] = {}
    if operation.sparse:
        options = {"metadata": scales[0], "selector": scales[1]}
    elif scales:
        (scale_a, byte_a, thread_a), (scale_b, byte_b, thread_b) = scales
        blocks = operation.blocks
        options["scale_a"] = gather_scales(scale_a[None], byte_a, thread_a, blocks, True)
        options["scale_b"] = gather_scales(scale_b[None], byte_b, thread_b, blocks, False)
    return execute_mma_sync(
        operation, whole(a, counts[0]), whole(b, counts[1]), whole(c, counts[2]),
        exact=F.machine.options.exact,
        native_fp8=image.native_fp8, **options,
    )  # fmt: skip
