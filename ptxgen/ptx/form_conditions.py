"""Conditions on the operands of an instruction that decide what it needs."""

from collections.abc import Iterable, Iterator

from ptxgen.ptx.module import Immediate, Instruction, Operand, Register, Vector


def counted(instruction: Instruction) -> bool:
    """An mbarrier arrival that states its count."""
    return len(instruction.operands) > 2


def three_inputs(instruction: Instruction) -> bool:
    """A minimum or maximum of three."""
    return len(instruction.operands) == 4


def scale_input_d(instruction: Instruction) -> bool:
    """tcgen05.mma with an immediate after the enable-input-d predicate."""
    if "ws" in instruction.modifiers or "block_scale" in instruction.modifiers:
        return False
    scalars = [o for o in instruction.operands if not isinstance(o, Vector)]
    expected = 6 if "sp" in instruction.modifiers else 5
    return len(scalars) > expected and isinstance(scalars[-1], Immediate)


def packed_element_type(instruction: Instruction) -> bool:
    """tensormap.replace with one of the sub-byte element types."""
    return _last_value(instruction) >= 13


def swizzle_96_bytes(instruction: Instruction) -> bool:
    """tensormap.replace with the 96-byte swizzle."""
    return _last_value(instruction) == 4


def reads_cluster_register(instruction: Instruction) -> bool:
    """It reads a special register of clusters."""
    prefixes = ("%cluster", "%nclusterid", "%is_explicit_cluster", "%aggr_smem_size")
    return any(name.startswith(prefixes) for name in _registers(instruction.operands))


def reads_aggregate_smem_size(instruction: Instruction) -> bool:
    """It reads %aggr_smem_size."""
    return "%aggr_smem_size" in _registers(instruction.operands)


def reads_graph_register(instruction: Instruction) -> bool:
    """It reads %current_graph_exec."""
    return "%current_graph_exec" in _registers(instruction.operands)


def _registers(operands: Iterable[Operand]) -> Iterator[str]:
    for operand in operands:
        if isinstance(operand, Register):
            yield operand.name
        elif isinstance(operand, Vector):
            yield from _registers(operand.items)


def _last_value(instruction: Instruction) -> int | float:
    last = instruction.operands[-1] if instruction.operands else None
    return last.value if isinstance(last, Immediate) else -1
