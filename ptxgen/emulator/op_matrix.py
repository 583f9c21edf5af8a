"""ldmatrix, stmatrix and mma.sync."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ptxgen.emulator.access import _parts, check_lanes, report
from ptxgen.emulator.emitter import Emitter, Slab, Value
from ptxgen.emulator.lanes import lane_indices
from ptxgen.emulator.micro import Effect, Micro, lowers, unknown
from ptxgen.emulator.observer import AccessKind
from ptxgen.emulator.op_memory import address_code, space_of
from ptxgen.emulator.runtime import runtime
from ptxgen.ptx.module import Instruction, Operand, Register, Vector

if TYPE_CHECKING:
    from ptxgen.emulator.fragment import Fragment


@lowers("ldmatrix")
def load_matrix(instruction: Instruction) -> list[Micro]:
    """ldmatrix.sync.aligned."""
    return [Effect(instruction, _load, joins=True)]


@lowers("stmatrix")
def store_matrix(instruction: Instruction) -> list[Micro]:
    """stmatrix.sync.aligned."""
    return [Effect(instruction, _store, joins=True)]


def _shape(instruction: Instruction) -> tuple[int, bool]:
    modifiers = instruction.modifiers
    count = next((int(m[1:]) for m in modifiers if m in ("x1", "x2", "x4")), 0)
    if "m8n8" not in modifiers or "b16" not in modifiers or not count:
        raise unknown(instruction, "only m8n8 of b16 is supported")
    return count, "trans" in modifiers


def bind_rows(em: Emitter, items: tuple[Operand, ...], name: str) -> None:
    """Give registers the rows of an array (n, 32)."""
    slab = Slab({"u": name})
    for row, item in enumerate(items):
        if isinstance(item, Register):
            if em.mode == "one":
                em.write(item, "b32", "S", f"int({name}[{row}, F.lane])")
            else:
                em.store_value(em.flow.number[item.name], Value("V", {}, slab, row))


def _load(em: Emitter, instruction: Instruction) -> None:
    count, transposed = _shape(instruction)
    destination, address = instruction.operands
    items = destination.items if isinstance(destination, Vector) else (destination,)
    form, code = address_code(em, address, space_of(instruction))
    if form == "S":
        code = f"np.full(32, {code}, I8)"
    name = em.assign(
        f"load_matrices(F, {space_of(instruction)!r}, {code}, {count}, {transposed}, "
        f"{instruction.line})"
    )
    bind_rows(em, items, name)


def _store(em: Emitter, instruction: Instruction) -> None:
    count, transposed = _shape(instruction)
    address, source = instruction.operands
    items = source.items if isinstance(source, Vector) else (source,)
    form, code = address_code(em, address, space_of(instruction))
    if form == "S":
        code = f"np.full(32, {code}, I8)"
    values = em.gather_operands(items, "b32")
    em.line(
        f"store_matrices(F, {space_of(instruction)!r}, {code}, {values}, {count}, {transposed}, "
        f"{instruction.line})"
    )


def _rows(
    F: "Fragment", space: str, addresses: Any, count: int
) -> "tuple[Any, Any, int, Any]":
    lanes = lane_indices((1 << 8 * count) - 1)
    wide = addresses[: 8 * count].astype(np.int64)
    parts = _parts(F, space, wide, lanes, 16)
    if len(parts) != 1:
        from ptxgen.errors import OutOfBoundsError

        raise OutOfBoundsError("the rows of a matrix must lie in one CTA's shared memory")
    target, where, owner, inner, _ = parts[0]
    check_lanes(inner, 16)
    return target, where, owner, inner


@runtime
def load_matrices(
    F: "Fragment", space: str, addresses: Any, count: int, transposed: bool, line: int
) -> Any:
    """ldmatrix: `count` 8x8 matrices of 16-bit elements as registers (count, 32).

    Lane 8 j + r gives the address of row r of matrix j; lane t gets row t // 4, columns 2 (t % 4)
    and the next, or of a transposed one row and column exchanged.
    """
    target, where, owner, inner = _rows(F, space, addresses, count)
    raw = target.load_vector(inner, 4, 4)
    if F.observer is not None:
        report(F, AccessKind.READ, where, owner, inner, 16, line, "weak", (1 << 8 * count) - 1)
    rows = np.ascontiguousarray(raw.T)
    if not transposed:
        return rows.reshape(count, 32)
    halves = rows.view(np.uint16).reshape(count, 8, 8)
    return np.ascontiguousarray(halves.transpose(0, 2, 1)).view(np.uint32).reshape(count, 32)


@runtime
def store_matrices(
    F: "Fragment", space: str, addresses: Any, values: Any, count: int, transposed: bool, line: int
) -> None:
    """stmatrix: the inverse of load_matrices."""
    F.machine.epoch += 1
    target, where, owner, inner = _rows(F, space, addresses, count)
    rows = np.ascontiguousarray(np.broadcast_to(values, (count, 32)))
    if transposed:
        halves = rows.view(np.uint16).reshape(count, 8, 8)
        rows = np.ascontiguousarray(halves.transpose(0, 2, 1)).view(np.uint32)
    target.store_vector(inner, rows.reshape(8 * count, 4).T, 4)
    if F.observer is not None:
        report(F, AccessKind.WRITE, where, owner, inner, 16, line, "weak", (1 << 8 * count) - 1)
