"""atom and red: one lane after the other, in lane order."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ptxgen.emulator.access import check_vector, parts_of, report, uniform_target
from ptxgen.emulator.emitter import Emitter
from ptxgen.emulator.lanes import UNSIGNED, lane_indices
from ptxgen.emulator.micro import Effect, Micro, lowers, unknown
from ptxgen.emulator.observer import AccessKind, Space
from ptxgen.emulator.op_mbarrier import begin_lanes, per_lane
from ptxgen.emulator.op_memory import address_code, semantics_of, space_of
from ptxgen.emulator.op_move import plain_type
from ptxgen.emulator.reductions import reduce_values
from ptxgen.emulator.runtime import runtime
from ptxgen.emulator.values import TYPE_BITS
from ptxgen.ptx.module import Instruction, Operand, Register, Sink, Vector

if TYPE_CHECKING:
    from ptxgen.emulator.fragment import Fragment

OPERATIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas")


@lowers("atom", "red")
def atomic(instruction: Instruction) -> list[Micro]:
    """atom and red; red.async is asynchronous."""
    if "async" in instruction.modifiers:
        from ptxgen.emulator.op_remote import reduce_async

        return reduce_async(instruction)
    if not any(m in OPERATIONS for m in instruction.modifiers):
        raise unknown(instruction, "no operation")
    return [Effect(instruction, _atomic)]


def _atomic(em: Emitter, instruction: Instruction) -> None:
    kind = next(m for m in reversed(instruction.modifiers) if m in TYPE_BITS)
    operation = next(m for m in instruction.modifiers if m in OPERATIONS)
    operands = list(instruction.operands)
    destination: Operand = operands.pop(0) if instruction.name == "atom" else Sink()
    space = space_of(instruction)
    form, code = address_code(em, operands[0], space)
    plain = plain_type(kind)
    order = semantics_of(instruction)
    if order == "weak":
        order = "relaxed.gpu"
    elif "." not in order:
        order += ".gpu"
    source = operands[1]
    items = source.items if isinstance(source, Vector) else (source,)
    results = destination.items if isinstance(destination, Vector) else (destination,)
    if instruction.name == "red":
        results *= len(items)
    values = [em.read(i, plain) for i in items]
    compare = em.read(operands[2], plain) if operation == "cas" else ("S", "0")
    names = [(f, em.assign(c)) for f, c in values]
    code = em.assign(code)
    compare = compare[0], em.assign(compare[1])
    size = TYPE_BITS[kind] // 8
    one = em.mode == "one"
    outs = []
    for result in results:
        outs.append(em.name() if isinstance(result, Register) else "")
        if outs[-1]:
            zeros = f"np.zeros(32, U{size})" if size <= 8 else "np.zeros(32, object)"
            em.line(f"{outs[-1]} = {0 if one else zeros}")
    for index, (value, out) in enumerate(zip(names, outs, strict=True)):
        _one_element(
            em, instruction, (space, form, f"{code} + {index * size}" if index else code),
            (operation, kind, size, order), value, compare, out,
        )  # fmt: skip
    for result, out in zip(results, outs, strict=True):
        if out:
            whole = out if one or size <= 8 else f"halves_of({out})"
            em.write(result, plain, "S" if one else "V", whole)


def _one_element(
    em: Emitter, instruction: Instruction, place: tuple[str, str, str],
    what: tuple[str, str, int, str], value: tuple[str, str], compare: tuple[str, str], out: str,
) -> None:  # fmt: skip
    """One element of all active lanes: at once where nobody observes and arrays hold it."""
    space, form, code = place
    operation, kind, size, order = what
    known = f"{operation!r}, {kind!r}, {size}"
    if em.mode != "one" and size <= 8:
        arrays = [
            f"np.full(32, {c}, {dtype})" if f == "S" else c
            for f, c, dtype in ((form, code, "I8"), (*value, f"U{size}"), (*compare, f"U{size}"))
        ]
        call = (
            f"atomic_lanes(F, {space!r}, {arrays[0]}, {known}, {arrays[1]}, {arrays[2]}, "
            f"{order!r}, {instruction.line}, {em.active_mask()})"
        )
        em.line(f"{out} = {call}" if out else call)
        return
    code = em.assign(code)
    begin_lanes(em)
    of_lane = per_lane if size <= 8 else _wide_per_lane
    call = (
        f"atomic_operation(F, lane, {space!r}, {per_lane(form, code)}, {known}, "
        f"{of_lane(*value)}, {of_lane(*compare)}, {order!r}, {instruction.line})"
    )
    em.line(call if not out else f"{out if em.mode == 'one' else out + '[lane]'} = {call}")
    em.indent -= 1


def _wide_per_lane(form: str, code: str) -> str:
    """A 128-bit operand inside a loop over lanes."""
    if form == "S":
        return code
    return f"(int({code}[0][lane]) | int({code}[1][lane]) << 64)"


@runtime
def halves_of(values: Any) -> Any:
    """128-bit integers as their low and high words, shape (2, 32)."""
    low = [int(v) & (1 << 64) - 1 for v in values]
    return np.array((low, [int(v) >> 64 for v in values]), np.uint64)


@runtime
def atomic_lanes(
    F: "Fragment", space: str, addresses: Any, operation: str, kind: str, size: int, values: Any,
    others: Any, order: str, line: int, mask: int,
) -> Any:  # fmt: skip
    """One atomic operation of each active lane, in lane order: the old values, shape (32,)."""
    mask &= F.mask
    lanes = lane_indices(mask)
    found = np.zeros(32, UNSIGNED[8 * size])
    if F.observer is not None:
        for lane in lanes.tolist():
            found[lane] = atomic_operation(
                F, lane, space, int(addresses[lane]), operation, kind, size, int(values[lane]),
                int(others[lane]), order, line,
            )  # fmt: skip
        return found
    if not len(lanes):
        return found
    wide = addresses[lanes].astype(np.int64)
    for target, where, _, inner, positions in parts_of(F, space, wide, lanes, size):
        chosen = lanes[positions]
        flush = where is not Space.SHARED
        given, others_here = values[chosen], others[chosen]
        chained = _chained(target, inner, operation, kind, size, given, others_here)
        if chained is not None:
            found[chosen], changed = chained
            F.machine.epoch += changed
            continue
        for some in rounds(inner):
            at = inner[some]
            old = target.load(at, size)
            if operation == "cas":
                new = np.where(old == given[some], others_here[some], old)
            elif operation == "exch":
                new = given[some]
            else:
                raw = reduce_values(
                    operation, kind, old.view(np.uint8),
                    np.ascontiguousarray(given[some]).view(np.uint8), flush=flush,
                )  # fmt: skip
                new = raw.view(old.dtype)
            found[chosen[some]] = old
            if not np.array_equal(new, old):
                F.machine.epoch += 1
                target.store(at, new, size)
    return found


_CHAINS: dict[str, Any] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip
_TYPES: dict[str, Any] = {
    "u32": np.uint32, "b32": np.uint32, "s32": np.int32, "u64": np.uint64, "b64": np.uint64,
    "s64": np.int64, "f32": np.float32, "f64": np.float64,
}  # fmt: skip


def _chained(
    target: Any, addresses: Any, operation: str, kind: str, size: int, values: Any, others: Any
) -> tuple[Any, bool] | None:  # fmt: skip
    """Lanes with equal addresses, one after the other as running sums: (old values, whether memory
    changed). None where that is not so simple: packed types, no equal addresses, subnormals,
    NaN."""
    dtype = _TYPES.get(kind)
    floating = kind[0] == "f"
    if dtype is None or (floating and operation not in ("add", "exch")):
        return None
    unique, which = np.unique(addresses, return_inverse=True)
    if len(unique) == len(addresses):
        return None
    first = target.load(unique, size)
    old = np.empty(len(addresses), values.dtype)
    last = np.empty_like(first)
    for index in range(len(unique)):
        members = np.flatnonzero(which == index)
        if operation in ("cas", "inc", "dec"):
            steps = _steps(operation, int(first[index]), values[members], others[members])
            old[members], last[index] = steps[:-1], steps[-1]
            continue
        sequence = np.concatenate((first[index : index + 1], values[members])).view(dtype)
        if operation != "exch":
            sequence = _CHAINS[operation].accumulate(sequence, dtype=dtype)
        if kind == "f32" and (np.isnan(sequence).any() or (np.abs(sequence) < F4_TINY).any()):
            return None
        codes = sequence.view(values.dtype)
        old[members], last[index] = codes[:-1], codes[-1]
    changed = not np.array_equal(first, last)
    if changed:
        target.store(unique, last, size)
    return old, changed


def _steps(operation: str, first: int, values: Any, others: Any) -> list[int]:
    """What an address holds before each of some cas, inc or dec, and after the last."""
    found = [first]
    for value, other in zip(values.tolist(), others.tolist(), strict=True):
        old = found[-1]
        if operation == "cas":
            found.append(other if old == value else old)
        elif operation == "inc":
            found.append(0 if old >= value else old + 1)
        else:
            found.append(value if old == 0 or old > value else old - 1)
    return found


F4_TINY = np.finfo(np.float32).tiny


def rounds(addresses: Any) -> list[Any]:
    """Positions of lanes that go together: in each round every address once, in lane order."""
    if len(addresses) == 1:
        return [slice(None)]
    order = np.argsort(addresses, kind="stable")
    ordered = addresses[order]
    same = ordered[1:] == ordered[:-1]
    if not same.any():
        return [slice(None)]
    place = np.arange(len(ordered))
    starts = np.maximum.accumulate(np.where(np.concatenate(([True], ~same)), place, 0))
    turn = place - starts
    return [np.sort(order[turn == i]) for i in range(int(turn.max()) + 1)]


@runtime
def atomic_operation(
    F: "Fragment", lane: int, space: str, address: int, operation: str, kind: str, size: int,
    value: int, other: int, order: str, line: int,
) -> int:  # fmt: skip
    """One atomic operation of one lane: the old value."""
    target, where, owner, offset = uniform_target(F, space, address)
    old = _load(target, offset, size)
    if operation == "cas":
        new = other if old == value else old
    else:
        new = combine(operation, kind, size, old, value, where is not Space.SHARED)
    if new != old:
        F.machine.epoch += 1
        _store(target, offset, new, size)
    if F.observer is not None:
        report(F, AccessKind.ATOMIC, where, owner, offset, size, line, order, 1 << lane)
    return old


def _load(target: Any, offset: int, size: int) -> int:
    if size == 16:
        return int(target.load_int(offset, 8)) | int(target.load_int(offset + 8, 8)) << 64
    return int(target.load_int(offset, size))


def _store(target: Any, offset: int, value: int, size: int) -> None:
    if size == 16:
        check_vector(offset, 16)
        target.store_int(offset, value, 8)
        target.store_int(offset + 8, value >> 64, 8)
        return
    target.store_int(offset, value, size)


def combine(operation: str, kind: str, size: int, old: int, value: int, flush: bool) -> int:
    """The new bits of one element."""
    bits = 8 * size
    mask = (1 << bits) - 1
    if kind[0] in "ub" and kind not in ("bf16", "bf16x2"):
        if operation == "add":
            return old + value & mask
        if operation == "exch":
            return value
        if operation == "and":
            return old & value
        if operation == "or":
            return old | value
    old_bytes = np.array([old], UNSIGNED[bits]).view(np.uint8)
    new_bytes = np.array([value], UNSIGNED[bits]).view(np.uint8)
    found: Any = reduce_values(operation, kind, old_bytes, new_bytes, flush=flush)
    return int.from_bytes(found.tobytes(), "little")
