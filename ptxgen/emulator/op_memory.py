"""ld and st in all state spaces, and the hints that do nothing."""

from typing import TYPE_CHECKING

from ptxgen.emulator.access import report, uniform_target
from ptxgen.emulator.emitter import Emitter
from ptxgen.emulator.micro import Effect, Micro, lowers, unknown
from ptxgen.emulator.observer import AccessKind
from ptxgen.emulator.op_move import plain_type
from ptxgen.emulator.runtime import runtime
from ptxgen.emulator.values import TYPE_BITS, Slab, Value
from ptxgen.errors import MisalignedError
from ptxgen.ptx.module import (
    Address,
    Immediate,
    Instruction,
    Operand,
    Register,
    Sink,
    Symbol,
    Vector,
)

if TYPE_CHECKING:
    from ptxgen.emulator.fragment import Fragment

SPACES = ("global", "shared", "shared::cta", "shared::cluster", "local", "param", "const",
          "param::entry", "param::func")  # fmt: skip
ORDERS = ("weak", "relaxed", "acquire", "release", "volatile", "mmio")
SCOPES = ("cta", "cluster", "gpu", "sys")


def space_of(instruction: Instruction) -> str:
    """State space of an access as access.py names it."""
    for modifier in instruction.modifiers:
        if modifier in SPACES:
            return {"shared::cta": "shared", "const": "global"}.get(modifier, modifier)
    return "generic"


def semantics_of(instruction: Instruction) -> str:
    """Memory order and scope, e.g. weak or acquire.gpu."""
    order = next((m for m in instruction.modifiers if m in ORDERS), "weak")
    scope = next((m for m in instruction.modifiers if m in SCOPES), "")
    return f"{order}.{scope}" if scope else order


def address_code(em: Emitter, address: Operand, space: str) -> tuple[str, str]:
    """Form and expression of an address; of a varying one as int64 or unsigned array."""
    if not isinstance(address, Address):
        raise TypeError(f"not an address: {address}")
    base = address.base
    if isinstance(base, Symbol):
        code = em.program.image.address_of(em.program.function, base)[1]
        return "S", f"({code} + {address.offset})" if address.offset else code
    if isinstance(base, Immediate):
        return "S", str(int(base.value) + address.offset)
    kind = f"b{em.register_bits(base.name)}" if base.name in em.flow.number else "b32"
    if kind == "b64" and space.startswith("shared"):
        # public kernels name generic addresses here: the hardware takes the low half
        kind = "b32"
    form, code = em.read(base, kind)
    if address.offset:
        if form == "S":
            code = f"({code} + {address.offset} & {(1 << TYPE_BITS[kind]) - 1:#x})"
        elif address.offset > 0:
            code = f"({code} + {address.offset})"
        else:
            code = f"({code} - {-address.offset})"
    return form, code


@lowers("ld", "ldu")
def load(instruction: Instruction) -> list[Micro]:
    """ld: one register or a vector, from any space."""
    return [Effect(instruction, _load)]


def _load(em: Emitter, instruction: Instruction) -> None:
    kind = instruction.modifiers[-1]
    if kind not in TYPE_BITS:
        raise unknown(instruction, f"type .{kind}")
    destination = instruction.operands[0]
    items = destination.items if isinstance(destination, Vector) else (destination,)
    size = TYPE_BITS[kind] // 8
    space = space_of(instruction)
    address = instruction.operands[1]
    semantics = semantics_of(instruction)
    if space.startswith("param"):
        space, form, code = _parameter(em, instruction, address)
    else:
        form, code = address_code(em, address, space)
    each, count = (8, 2) if size == 16 else (size, len(items))
    per_lane = (space == "local" and em.mode != "one") or form == "V"
    if not per_lane and (em.guard is None or em.guard[0] == "S"):
        arguments = f"F, {space!r}, {code}, {each}"
        if count == 1:
            name = em.assign(f"load_uniform({arguments}, {instruction.line}, {semantics!r})")
            em.write(items[0], *_extended(em, items[0], kind, "S", name))
            return
        name = em.assign(
            f"load_uniform_vector({arguments}, {count}, {instruction.line}, {semantics!r})"
        )
        if size == 16:
            em.write(items[0], "b128", "S", f"{name}[0] | {name}[1] << 64")
            return
        for index, item in enumerate(items):
            em.write(item, *_extended(em, item, kind, "S", f"{name}[{index}]"))
        return
    if form == "S":
        code = f"np.full(32, {code}, I8)"
    mask = em.active_mask()
    if count == 1:
        name = em.assign(
            f"load_lanes(F, {space!r}, {code}, {size}, {mask}, {instruction.line}, {semantics!r})"
        )
        em.write(items[0], *_extended(em, items[0], kind, "V", name))
        return
    name = em.assign(
        f"load_lanes_vector(F, {space!r}, {code}, {each}, {count}, {mask}, {instruction.line}, "
        f"{semantics!r})"
    )
    if size == 16:
        em.write(items[0], "b128", "V", name)
        return
    slab = Slab({"u": name})
    for index, item in enumerate(items):
        whole = isinstance(item, Register) and em.register_bits(item.name) == 8 * size
        if whole and em.guard is None:
            assert isinstance(item, Register)
            em.store_value(em.flow.number[item.name], Value("V", {}, slab, index))
        else:
            em.write(item, *_extended(em, item, kind, "V", f"{name}[{index}]"))


def _extended(em: Emitter, item: Operand, kind: str, form: str, code: str) -> tuple[str, str, str]:
    """(type, form, expression) that store a loaded element, sign-extended where it must be."""
    bits = TYPE_BITS[kind]
    if kind[0] == "s" and isinstance(item, Register) and em.register_bits(item.name) > bits:
        if form == "V":
            return kind, form, f"{code}.view(I{bits // 8})"
        half = 1 << (bits - 1)
        return kind, form, f"(({code} ^ {half:#x}) - {half:#x})"
    return plain_type(kind) if kind not in ("u8", "s8", "b8") else "b8", form, code


def _parameter(em: Emitter, instruction: Instruction, address: Operand) -> tuple[str, str, str]:
    """Space, form and expression of an address in parameter space."""
    assert isinstance(address, Address)
    image = em.program.image
    if isinstance(address.base, Symbol):
        space, code = image.address_of(em.program.function, address.base)
        if space == "param":
            return "global", "S", f"(F.machine.param_base + {code} + {address.offset})"
        if space == "local":
            return "local", "S", f"({code} + {address.offset})"
        raise unknown(instruction, f"{address.base.name} is not a parameter")
    form, code = address_code(em, address, "param")
    if em.program.function.is_entry:
        return "global", form, f"(F.machine.param_base + {code})"
    return "local", form, code


@lowers("st")
def store(instruction: Instruction) -> list[Micro]:
    """st: one register or a vector, to any space; st.async and st.bulk are asynchronous."""
    if "async" in instruction.modifiers:
        from ptxgen.emulator.op_remote import store_async

        return store_async(instruction)
    if "bulk" in instruction.modifiers:
        return [Effect(instruction, _store_bulk)]
    return [Effect(instruction, _store)]


def _store(em: Emitter, instruction: Instruction) -> None:
    kind = instruction.modifiers[-1]
    if kind not in TYPE_BITS:
        raise unknown(instruction, f"type .{kind}")
    address, source = instruction.operands[:2]
    items = source.items if isinstance(source, Vector) else (source,)
    size = TYPE_BITS[kind] // 8
    space = space_of(instruction)
    semantics = semantics_of(instruction)
    if space.startswith("param"):
        space, form, code = _parameter(em, instruction, address)
    else:
        form, code = address_code(em, address, space)
    plain = "b8" if size == 1 else f"b{8 * size}"
    if size == 16:
        _store_wide(em, instruction, space, form, code, items[0], semantics)
        return
    values = [em.read(i, plain) for i in items]
    varying_guard = em.guard is not None and em.guard[0] == "V"
    per_lane = space == "local" and em.mode != "one"
    if form == "S" and not varying_guard and not per_lane and all(f == "S" for f, _ in values):
        texts = ", ".join(v for _, v in values)
        em.line(
            f"store_uniform(F, {space!r}, {code}, ({texts},), {size}, {instruction.line}, "
            f"{semantics!r})"
        )
        return
    if form == "S":
        code = f"np.full(32, {code}, I8)"
    if len(items) == 1:
        value_form, value = values[0]
        if value_form == "S":
            value = f"full({value}, {8 * size})"
    else:
        value = em.gather_operands(items, plain)
    em.line(
        f"store_lanes(F, {space!r}, {code}, {value}, {size}, {em.active_mask()}, "
        f"{instruction.line}, {semantics!r})"
    )


def _store_wide(
    em: Emitter, instruction: Instruction, space: str, form: str, code: str, item: Operand,
    semantics: str,
) -> None:  # fmt: skip
    value_form, value = em.read(item, "b128")
    varying_guard = em.guard is not None and em.guard[0] == "V"
    if form == "S" and value_form == "S" and not varying_guard:
        name = em.assign(value)
        em.line(
            f"store_uniform(F, {space!r}, {code}, ({name} & {(1 << 64) - 1}, {name} >> 64), 8, "
            f"{instruction.line}, {semantics!r})"
        )
        return
    if form == "S":
        code = f"np.full(32, {code}, I8)"
    em.line(
        f"store_lanes(F, {space!r}, {code}, wide({value}), 8, {em.active_mask()}, "
        f"{instruction.line}, {semantics!r})"
    )


def _store_bulk(em: Emitter, instruction: Instruction) -> None:
    """st.bulk: fill shared memory with zeros."""
    address, size, value = instruction.operands
    if not isinstance(value, Immediate) or value.value != 0:
        raise unknown(instruction, "the initial value must be 0")
    space = space_of(instruction)
    form, code = address_code(em, address, space)
    if form == "V":
        code = f"int({em.assign(code)}[F.lead()])"
    em.line(
        f"store_zeros(F, {space!r}, {code}, {em.read_uniform(size, 'b64')}, {em.active_mask()}, "
        f"{instruction.line})"
    )


@runtime
def store_zeros(F: "Fragment", space: str, address: int, nbytes: int, mask: int, line: int) -> None:
    """st.bulk.

    Raises: MisalignedError unless address and size are multiples of 8, OutOfBoundsError.
    """
    if not mask & F.mask or not nbytes:
        return
    if (address | nbytes) & 7:
        raise MisalignedError(
            f"st.bulk: address and size must be multiples of 8, got {address:#x} and {nbytes}"
        )
    target, where, owner, offset = uniform_target(F, space, address)
    target.write(offset, bytes(nbytes))
    F.machine.epoch += 1
    if F.observer is not None:
        report(F, AccessKind.WRITE, where, owner, offset, nbytes, line, "weak", mask & F.mask)


@lowers("prefetch", "prefetchu", "discard", "applypriority")
def hint(instruction: Instruction) -> list[Micro]:
    """Cache hints do nothing, apart from being checked for an address."""
    if not any(isinstance(o, Address) for o in instruction.operands):
        raise unknown(instruction, "needs an address")
    return []


__all__ = ["Sink", "address_code", "semantics_of", "space_of"]
