"""How many instructions of which kind stand in a PTX text. Static: loops count once."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ptxgen.ptx.module import Function, Instruction, Module

FAMILIES = ("mma", "tma", "barrier", "memory", "alu", "control")
"""mma: Tensor Core arithmetic; tma: bulk copies, reductions, prefetches and tensor maps; barrier:
mbarriers, named and cluster barriers, fences, and everything that commits or waits; memory: other
accesses, tensor memory included; control: branches, calls, register and launch control; alu: the
rest."""

_BY_NAME = {
    name: family
    for family, names in (
        ("mma", "wgmma mma wmma"),
        ("tma", "tensormap"),
        ("barrier", "mbarrier bar barrier fence membar griddepcontrol"),
        (
            "memory",
            "ld ldu st ldmatrix stmatrix atom red multimem cp prefetch prefetchu discard "
            "applypriority createpolicy tex tld4 suld sust sured tcgen05",
        ),
        (
            "control",
            "bra brx call ret exit trap brkpt setmaxnreg elect nanosleep clusterlaunchcontrol "
            "pmevent",
        ),
    )
    for name in names.split()
}
_WAITS = ("commit_group", "wait_group", "wait_all", "commit", "fence", "mbarrier")
"""Second or later part of an opcode that makes it a synchronisation."""


@dataclass(frozen=True)
class InstructionMix:
    """Static counts, most frequent first."""

    total: int
    families: Mapping[str, int]
    """Every one of FAMILIES -> instructions."""
    opcodes: Mapping[str, int]
    """Base opcode -> instructions."""
    forms: Mapping[str, int]
    """Opcode with its modifiers -> instructions."""


def instruction_mix(source: Module | Function | Iterable[Instruction]) -> InstructionMix:
    """Count the instructions of a module (device functions included), function or list."""
    instructions = list(_instructions(source))
    families = Counter(family(instruction) for instruction in instructions)
    return InstructionMix(
        total=len(instructions),
        families={name: families[name] for name in FAMILIES},
        opcodes=dict(Counter(i.name for i in instructions).most_common()),
        forms=dict(Counter(i.opcode for i in instructions).most_common()),
    )


def family(instruction: Instruction) -> str:
    """Which of FAMILIES an instruction belongs to."""
    name, modifiers = instruction.name, instruction.modifiers
    if name in ("cp", "wgmma", "tcgen05") and _synchronises(modifiers):
        return "barrier"
    if name == "tcgen05" and modifiers[:1] == ("mma",):
        return "mma"
    if (name == "cp" and "bulk" in modifiers) or "tensormap" in modifiers[:2]:
        return "barrier" if name == "fence" else "tma"
    return _BY_NAME.get(name, "alu")


def _synchronises(modifiers: tuple[str, ...]) -> bool:
    parts = [part.partition("::")[0] for part in modifiers[:3]]
    return any(part in _WAITS or part == "wait" for part in parts)


def _instructions(source: Module | Function | Iterable[Instruction]) -> Iterable[Instruction]:
    if isinstance(source, Module):
        return (i for function in source.functions.values() for i in function.body)
    return source.body if isinstance(source, Function) else source
