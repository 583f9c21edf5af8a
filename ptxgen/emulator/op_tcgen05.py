"""tcgen05: what the instructions say. tcgen05.py holds what they do."""

import re

from ptxgen.emulator.emitter import Emitter
from ptxgen.emulator.micro import Effect, Micro, lowers, unknown
from ptxgen.emulator.op_matrix import bind_rows, items_of
from ptxgen.emulator.op_mbarrier import begin_lanes, located_address, per_lane
from ptxgen.emulator.op_memory import address_code, space_of
from ptxgen.emulator.runtime import static
from ptxgen.emulator.tcgen05_mma import parse_tcgen05_mma
from ptxgen.emulator.touches import loaded_registers
from ptxgen.ptx.module import Address, Immediate, Instruction, Operand, Vector

_COPY_SHAPES = ("128x256b", "128x128b", "4x256b", "64x128b", "32x128b")


@lowers("tcgen05")
def tcgen05(instruction: Instruction) -> list[Micro]:
    """All tcgen05 instructions.

    Raises: UnknownInstructionError.
    """
    action = instruction.modifiers[0] if instruction.modifiers else ""
    if action.startswith("fence::"):
        return [Effect(instruction, _fence)]
    if action.startswith("wait::"):
        return [Effect(instruction, _wait, ends=True, joins=True)]
    if action == "alloc":
        return [Effect(instruction, _alloc, ends=True, joins=True)]
    emit = {
        "dealloc": _dealloc, "relinquish_alloc_permit": _relinquish, "ld": _load, "st": _store,
    }.get(action)  # fmt: skip
    if emit is not None:
        return [Effect(instruction, emit, joins=True)]
    emit = {"mma": _mma, "cp": _copy, "shift": _shift, "commit": _commit}.get(action)
    if emit is None:
        raise unknown(instruction)
    return [Effect(instruction, emit)]


def _group(instruction: Instruction) -> int:
    found = next((m for m in instruction.modifiers if m.startswith("cta_group::")), "")
    if found not in ("cta_group::1", "cta_group::2"):
        raise unknown(instruction, "needs .cta_group::1 or ::2")
    return int(found[-1])


def _fence(em: Emitter, instruction: Instruction) -> None:
    side = instruction.modifiers[0].removeprefix("fence::")
    kind = {"before_thread_sync": "tcgen05.before", "after_thread_sync": "tcgen05.after"}.get(side)
    if kind is None:
        raise unknown(instruction)
    em.line(
        f"if F.observer is not None: fence_passed(F, {kind!r}, {em.active_mask()}, "
        f"{instruction.line})"
    )


def _wait(em: Emitter, instruction: Instruction) -> None:
    kind = instruction.modifiers[0].removeprefix("wait::")
    if kind not in ("ld", "st"):
        raise unknown(instruction)
    em.line(f"return wait_tmem(F, {kind!r}, {instruction.line}, {em.following()})")


def _alloc(em: Emitter, instruction: Instruction) -> None:
    address, count = instruction.operands
    form, code = located_address(em, address, space_of(instruction))
    code = code if form == "S" else f"int({em.assign(code)}[F.lead()])"
    em.line(
        f"return allocate_tmem(F, {code}, {em.read_uniform(count, 'b32')}, {_group(instruction)}, "
        f"{instruction.line}, {em.following()})"
    )


def _dealloc(em: Emitter, instruction: Instruction) -> None:
    address, count = instruction.operands
    em.line(
        f"free_tmem(F, {_tmem(em, address)}, {em.read_uniform(count, 'b32')}, {instruction.line})"
    )


def _relinquish(em: Emitter, instruction: Instruction) -> None:
    em.line(f"relinquish_tmem(F, {instruction.line})")


def _tmem(em: Emitter, operand: Operand) -> str:
    """One tensor memory address for the warp."""
    if isinstance(operand, Address):
        form, code = address_code(em, operand, "tmem")
        return code if form == "S" else f"same_address({code}, F.mask)"
    return em.read_uniform(operand, "b32")


def _shape(instruction: Instruction) -> tuple[str, int, bool]:
    """(shape, repeat, 16-bit packing) of ld and st."""
    modifiers = instruction.modifiers
    shape = next((m for m in modifiers if re.fullmatch(r"\d+x\d+b(x2)?", m)), "")
    repeat = next((int(m[1:]) for m in modifiers if re.fullmatch(r"x\d+", m)), 0)
    if not shape or not repeat:
        raise unknown(instruction, "needs a shape and a repeat")
    return shape, repeat, any(m in ("pack::16b", "unpack::16b") for m in modifiers)


def _split(instruction: Instruction, operand: Operand | None) -> int:
    if operand is None:
        return 0
    if not isinstance(operand, Immediate):
        raise unknown(instruction, "the split must be a literal")
    return int(operand.value)


def _load(em: Emitter, instruction: Instruction) -> None:
    shape, repeat, packed = _shape(instruction)
    destination, *rest = instruction.operands
    reduced: Operand | None = None
    if "red" in instruction.modifiers:
        reduced = rest.pop(0)
    split = _split(instruction, rest[1] if len(rest) > 1 else None)
    name = em.assign(
        f"load_tmem(F, {_tmem(em, rest[0])}, {shape!r}, {repeat}, {split}, {packed}, "
        f"{instruction.line})"
    )
    bind_rows(em, items_of(destination), name)
    if em.program.image.observed:
        em.line(f"registers_loading(F, {loaded_registers(em.flow, instruction)})")
    if reduced is not None:
        modifiers = instruction.modifiers
        operation = "min" if "min" in modifiers else "max"
        kind = modifiers[-1]
        code = (
            f"reduce_rows({name}, {operation!r}, {kind!r}, {'abs' in modifiers}, "
            f"{'NaN' in modifiers})"
        )
        em.write(reduced, "b32", "V", code)


def _store(em: Emitter, instruction: Instruction) -> None:
    shape, repeat, packed = _shape(instruction)
    address, *rest = instruction.operands
    source = rest.pop()
    split = _split(instruction, rest[0] if rest else None)
    items = items_of(source)
    values = em.gather_operands(items, "b32")
    em.line(
        f"store_tmem(F, {_tmem(em, address)}, {values}, {len(items)}, {shape!r}, {repeat}, "
        f"{split}, {packed}, {instruction.line})"
    )


def _mma(em: Emitter, instruction: Instruction) -> None:
    operation = parse_tcgen05_mma(instruction.modifiers)
    d, a, b, description, *rest = instruction.operands
    codes: dict[str, tuple[str, str]] = {
        "d": address_code(em, d, "tmem"),
        "b": em.read(b, "b64"),
        "instruction": em.read(description, "b32"),
    }
    in_tmem = isinstance(a, Address)
    codes["a"] = address_code(em, a, "tmem") if isinstance(a, Address) else em.read(a, "b64")
    lanes: tuple[Operand, ...] = ()
    if operation.blocks:
        for name in ("scale_a", "scale_b"):
            codes[name] = address_code(em, rest.pop(0), "tmem")
    elif rest and isinstance(rest[0], Vector):
        lanes = items_of(rest.pop(0))
    if not rest:
        raise unknown(instruction, "needs enable-input-d")
    form, enable = em.read(rest.pop(0), "pred")
    if rest:
        key = "zero_columns" if operation.ws else "scale_d"
        codes[key] = em.read(rest.pop(0), "b64")
    if rest:
        raise unknown(instruction, "has too many operands")
    named = {k: (f, em.assign(c)) for k, (f, c) in codes.items()}
    words = [(f, em.assign(c)) for f, c in (em.read(lane, "b32") for lane in lanes)]
    enable = em.assign(enable)
    begin_lanes(em)
    texts = [f"{k}={per_lane(*c)}" for k, c in named.items()]
    if words:
        texts.append(f"disabled_lanes=({', '.join(per_lane(*w) for w in words)},)")
    flag = f"bool({enable})" if form == "S" else f"bool({enable} >> lane & 1)"
    texts += [f"a_in_tmem={in_tmem}", f"accumulate={flag}"]
    em.line(
        f"issue_mma(F, lane, {static(operation)}, MmaOperands({', '.join(texts)}), "
        f"{instruction.line})"
    )
    em.indent -= 1


def _copy(em: Emitter, instruction: Instruction) -> None:
    modifiers = instruction.modifiers
    shape = next((m for m in modifiers if m in _COPY_SHAPES), "")
    multicast = next((m for m in modifiers if m.startswith("warpx")), "")
    packed = next((m for m in modifiers if m in ("b6x16_p32", "b4x16_p64")), "")
    if not shape:
        raise unknown(instruction, "needs a shape")
    address, descriptor = instruction.operands
    to = address_code(em, address, "tmem")
    come = em.read(descriptor, "b64")
    to, come = (to[0], em.assign(to[1])), (come[0], em.assign(come[1]))
    begin_lanes(em)
    em.line(
        f"issue_copy(F, lane, {per_lane(*to)}, {per_lane(*come)}, {shape!r}, {multicast!r}, "
        f"{packed!r}, {_group(instruction)}, {instruction.line})"
    )
    em.indent -= 1


def _shift(em: Emitter, instruction: Instruction) -> None:
    form, code = address_code(em, instruction.operands[0], "tmem")
    code = em.assign(code)
    begin_lanes(em)
    em.line(
        f"issue_shift(F, lane, {per_lane(form, code)}, {_group(instruction)}, {instruction.line})"
    )
    em.indent -= 1


def _commit(em: Emitter, instruction: Instruction) -> None:
    address, *rest = instruction.operands
    form, code = located_address(em, address, space_of(instruction))
    mask = ("S", "0")
    if "multicast::cluster" in instruction.modifiers:
        mask = em.read(rest[0], "b16")
    code, mask = em.assign(code), (mask[0], em.assign(mask[1]))
    begin_lanes(em)
    em.line(
        f"commit_mma(F, lane, {per_lane(form, code)}, {per_lane(*mask)}, {_group(instruction)}, "
        f"{instruction.line})"
    )
    em.indent -= 1
