"""wgmma: fence, mma_async, commit_group, wait_group."""

from ptxgen.emulator.emitter import Emitter
from ptxgen.emulator.micro import Effect, Micro, lowers, unknown
from ptxgen.emulator.runtime import static
from ptxgen.emulator.touches import register_sets
from ptxgen.emulator.values import UNDEFINED, Slab, Value
from ptxgen.emulator.wgmma import parse_wgmma
from ptxgen.ptx.module import Immediate, Instruction, Register, Vector


@lowers("wgmma")
def wgmma(instruction: Instruction) -> list[Micro]:
    """All wgmma instructions."""
    action = instruction.modifiers[0] if instruction.modifiers else ""
    if action == "fence":
        return [Effect(instruction, _fence, joins=True)]
    if action == "commit_group":
        return [Effect(instruction, _commit, joins=True)]
    if action == "wait_group":
        return [Effect(instruction, _wait, ends=True, joins=True)]
    if action == "mma_async":
        return [Effect(instruction, _mma, joins=True)]
    raise unknown(instruction)


def _fence(em: Emitter, instruction: Instruction) -> None:
    if em.program.image.observed:
        em.line("fence_wgmma(F)")
        em.line(f"fence_passed(F, 'wgmma', FULL, {instruction.line})")


def _commit(em: Emitter, instruction: Instruction) -> None:
    em.line(f"commit_wgmma(F, {instruction.line})")


def _wait(em: Emitter, instruction: Instruction) -> None:
    allowed = instruction.operands[0]
    if not isinstance(allowed, Immediate):
        raise unknown(instruction, "the number of groups must be a literal")
    em.line(f"return wait_wgmma(F, {int(allowed.value)}, {instruction.line}, {em.following()})")


def _mma(em: Emitter, instruction: Instruction) -> None:
    d, a, b, *rest = instruction.operands
    metadata, selector = "None", 0
    if "sp" in instruction.modifiers:
        held, chosen, *rest = rest
        if not isinstance(chosen, Immediate):
            raise unknown(instruction, "the sparsity selector must be a literal")
        metadata, selector = em.assign(em.read(held, "b32")[1]), int(chosen.value)
    scale, *rest = rest
    if not isinstance(d, Vector):
        raise unknown(instruction, "D must be a vector of registers")
    immediates = []
    for operand in rest:
        if not isinstance(operand, Immediate):
            raise unknown(instruction, "scales and majors must be literals")
        value = int(operand.value)
        immediates.append(value - (1 << 32) if value >= 1 << 31 else value)
    operation = parse_wgmma(instruction.modifiers, immediates, isinstance(a, Vector), selector)
    if len(d.items) != operation.accumulator_registers:
        raise unknown(instruction, f"D must have {operation.accumulator_registers} registers")
    if isinstance(a, Vector):
        a_code = em.gather_operands(a.items, "b32")
    else:
        a_code = em.read_uniform(a, "b64")
    b_code = em.read_uniform(b, "b64")
    form, scale_code = em.read(scale, "pred")
    if form == "V":
        scale_code = f"({scale_code} >> F.lane & 1)"
    inputs = "None" if scale_code == "False" else _inputs(em, d)
    name = em.name()
    if em.program.image.observed:
        accumulators, a_registers = register_sets(em.flow, instruction)
        em.line(
            f"check_fenced(F, {accumulators}, {a_registers}, {instruction.line}, "
            f"{static(tuple(em.flow.names))})"
        )
    em.line(
        f"{name} = issue_wgmma(F, {static(operation)}, {a_code}, {b_code}, {scale_code}, "
        f"{inputs}, {metadata}, {instruction.line})"
    )
    slab = Slab({"u": f"{name}.array"}, holder=name)
    for row, item in enumerate(d.items):
        assert isinstance(item, Register)
        em.store_value(em.flow.number[item.name], Value("V", {}, slab, row))


def _inputs(em: Emitter, d: Vector) -> str:
    """The accumulators as they are: a whole holder, or an array."""
    values = []
    for item in d.items:
        assert isinstance(item, Register)
        value = em.lookup(em.flow.number[item.name])
        values.append(value)
    if all(v is None or v.form == UNDEFINED for v in values):
        return "None"
    first = values[0]
    slab = None if first is None else first.slab
    if slab is not None and slab.holder and all(
        v is not None and v.slab is slab and v.row == i for i, v in enumerate(values)
    ):  # fmt: skip
        return slab.holder
    return em.assign(em.gather_operands(d.items, "b32"))
