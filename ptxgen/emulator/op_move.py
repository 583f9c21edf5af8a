"""mov, cvta and what finds out about addresses."""

from ptxgen.emulator.addresses import LOCAL_WINDOW, SHARED_WINDOW
from ptxgen.emulator.emitter import Emitter
from ptxgen.emulator.micro import Compute, Effect, Elementwise, Micro, lowers, unknown
from ptxgen.emulator.values import TYPE_BITS
from ptxgen.ptx.module import Immediate, Instruction, Operand, Register, Sink, Symbol, Vector

PLAIN = {"pred": "pred", "f32": "b32", "f64": "b64", "f16": "b16", "bf16": "b16"}


def plain_type(kind: str) -> str:
    """The bit type of a type's width."""
    return PLAIN.get(kind) or f"b{TYPE_BITS[kind]}"


@lowers("mov")
def move(instruction: Instruction) -> list[Micro]:
    """mov, also packing and unpacking vectors."""
    kind = plain_type(instruction.modifiers[-1])
    destination, source = instruction.operands
    if isinstance(destination, Vector):
        return _unpack(instruction, destination, source, kind)
    if isinstance(source, Vector):
        return _pack(instruction, destination, source, kind)
    if isinstance(source, Register) and source.name.startswith(("%clock", "%globaltimer")):
        return [Effect(instruction, _read_clock)]
    if kind == "b128":
        return [Effect(instruction, _move_wide)]
    return [Compute(instruction, Elementwise(kind, (kind,), "{0}", "{0}"), destination, (source,))]


def _read_clock(em: Emitter, instruction: Instruction) -> None:
    kind = plain_type(instruction.modifiers[-1])
    destination, source = instruction.operands
    form, code = em.read(source, kind)
    if isinstance(destination, Register):
        decides = em.program.deciding >> em.flow.number[destination.name] & 1
        if not decides:
            code = code.replace("clock()", "clock(False)")
    em.write(destination, kind, form, code)


def _move_wide(em: Emitter, instruction: Instruction) -> None:
    form, code = em.read(instruction.operands[1], "b128")
    em.write(instruction.operands[0], "b128", form, code)


def _unpack(instruction: Instruction, parts: Vector, source: Operand, kind: str) -> list[Micro]:
    if kind == "b128":
        return [Effect(instruction, _unpack_wide)]
    each = TYPE_BITS[kind] // len(parts.items)
    micros: list[Micro] = []
    for index, part in enumerate(parts.items):
        if isinstance(part, Sink):
            continue
        shifted = f"({{0}} >> {index * each})" if index else "{0}"
        scalar = f"{shifted} & {(1 << each) - 1:#x}"
        vector = f"{shifted}.astype(U{each // 8})" if each >= 8 else scalar
        micros.append(
            Compute(instruction, Elementwise(f"b{each}", (kind,), vector, scalar), part, (source,))
        )
    return micros


def _pack(instruction: Instruction, destination: Operand, parts: Vector, kind: str) -> list[Micro]:
    if kind == "b128":
        return [Effect(instruction, _pack_wide)]
    bits = TYPE_BITS[kind]
    each = bits // len(parts.items)
    terms, scalars = [], []
    for index in range(len(parts.items)):
        term = f"widen({{{index}}}, {bits})"
        terms.append(f"({term} << {index * each})" if index else term)
        scalars.append(f"({{{index}}} << {index * each})" if index else f"{{{index}}}")
    operation = Elementwise(
        kind, (f"b{each}",) * len(parts.items), " | ".join(terms), " | ".join(scalars)
    )
    return [Compute(instruction, operation, destination, parts.items)]


def _unpack_wide(em: Emitter, instruction: Instruction) -> None:
    parts, source = instruction.operands
    assert isinstance(parts, Vector)
    form, code = em.read(source, "b128")
    name = em.assign(code)
    each = 128 // len(parts.items)
    if each != 64:
        raise unknown(instruction)
    for index, part in enumerate(parts.items):
        if form == "S":
            em.write(part, "b64", "S", f"{name} >> {64 * index} & {(1 << 64) - 1:#x}")
        else:
            em.write(part, "b64", "V", f"{name}[{index}]")


def _pack_wide(em: Emitter, instruction: Instruction) -> None:
    destination, parts = instruction.operands
    assert isinstance(parts, Vector)
    if len(parts.items) != 2:
        raise unknown(instruction)
    codes = [em.read(p, "b64") for p in parts.items]
    if all(form == "S" for form, _ in codes):
        em.write(destination, "b128", "S", f"{codes[0][1]} | {codes[1][1]} << 64")
    else:
        low, high = (c if f == "V" else em.spread(c, "b64") for f, c in codes)
        em.write(destination, "b128", "V", f"np.array(({low}, {high}))")


@lowers("cvta")
def convert_address(instruction: Instruction) -> list[Micro]:
    """cvta and cvta.to: between a state space and generic addresses."""
    modifiers = instruction.modifiers
    to_space = modifiers[0] == "to"
    space = modifiers[1] if to_space else modifiers[0]
    kind = "b" + modifiers[-1][1:]
    space = space.split("::")[0]
    source = instruction.operands[1]
    window = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "global": 0, "const": 0, "param": 0}
    if space not in window:
        raise unknown(instruction, f"state space .{space}")
    base = window[space]
    if space == "param" and not to_space:
        return [Effect(instruction, _address_of_parameter)]
    if not base or kind == "b32":
        text = "{0}"
    else:
        text = "{0} - " + str(base) if to_space else "{0} + " + str(base)
    return [
        Compute(instruction, Elementwise(kind, (kind,), text, text), instruction.operands[0],
                (source,))
    ]  # fmt: skip


def _address_of_parameter(em: Emitter, instruction: Instruction) -> None:
    source = instruction.operands[1]
    form, code = em.read(source, "b64")
    image = em.program.image
    in_block = em.program.function.is_entry
    if isinstance(source, Symbol):
        in_block = image.address_of(em.program.function, source)[0] == "param"
    base = "F.machine.param_base" if in_block else str(LOCAL_WINDOW)
    em.write(instruction.operands[0], "b64", form, f"{code} + {base}")


@lowers("isspacep")
def is_in_space(instruction: Instruction) -> list[Micro]:
    """isspacep: whether a generic address lies in a space."""
    space = instruction.modifiers[0]
    own = ", F.cta.rank" if space in ("shared", "shared::cta") else ""
    text = f"in_space({{0}}, {space!r}{own})"
    if space in ("shared", "shared::cta", "shared::cluster", "local", "global", "const", "param"):
        return [
            Compute(instruction, Elementwise("pred", ("b64",), f"mask_of({text})", f"bool({text})"),
                    instruction.operands[0], instruction.operands[1:])
        ]  # fmt: skip
    raise unknown(instruction)


@lowers("mapa")
def map_address(instruction: Instruction) -> list[Micro]:
    """mapa: the address of the same variable in another CTA of the cluster."""
    kind = "b" + instruction.modifiers[-1][1:]
    if "shared::cluster" in instruction.modifiers:
        text = "({0} & 0xFFFFFF) | ({1} << 24)"
        ins = (kind, "u32")
        vector = text if kind == "b32" else "({0} & 0xFFFFFF) | widen({1}, 64) << 24"
    else:
        text = "({0} & 0xFFFFFFFF00FFFFFF) | ({1} << 24)"
        vector = "({0} & 0xFFFFFFFF00FFFFFF) | widen({1}, 64) << 24"
        ins = (kind, "u32")
    return [
        Compute(instruction, Elementwise(kind, ins, vector, text), instruction.operands[0],
                instruction.operands[1:])
    ]  # fmt: skip


@lowers("getctarank")
def rank_of_address(instruction: Instruction) -> list[Micro]:
    """getctarank: the CTA rank that a shared::cluster address names."""
    kind = "b" + instruction.modifiers[-1][1:]
    text = "{0} >> 24 & 0xFF"
    vector = text if kind == "b32" else "({0} >> 24 & 0xFF).astype(U4)"
    return [
        Compute(instruction, Elementwise("b32", (kind,), vector, text), instruction.operands[0],
                instruction.operands[1:])
    ]  # fmt: skip


@lowers("createpolicy")
def create_policy(instruction: Instruction) -> list[Micro]:
    """createpolicy: cache hints do nothing here."""
    return [
        Compute(instruction, Elementwise("b64", ("b64",), "{0}", "{0}"), instruction.operands[0],
                (Immediate(0x1000000000000000),))
    ]  # fmt: skip
