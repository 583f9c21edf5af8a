"""Micro-operations: what one PTX instruction becomes before code is generated.

An `Elementwise` only maps registers to registers, so it may be moved, and runs of it fused into
one numpy operation on many registers. Everything else is an `Effect`, which emits its own code.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ptxgen.errors import UnknownInstructionError
from ptxgen.ptx.module import Instruction, Operand

if TYPE_CHECKING:
    from ptxgen.emulator.emitter import Emitter


@dataclass(frozen=True, slots=True)
class Elementwise:
    """A function of operand types, as text of Python expressions.

    In a template, {0}, {1} ... stand for the operands, read as their type: unsigned or signed
    ints, floats, bools, or numpy arrays of that type; at least one is an array in `vector`.
    """

    out: str
    """Type of the result: u32, s32, f32, pred ..."""
    ins: tuple[str, ...]
    """Types of the operands."""
    vector: str
    """Template on arrays; it must hold for any shape that broadcasts."""
    scalar: str
    """Template on Python numbers."""


@dataclass(frozen=True, slots=True)
class Compute:
    """`destination` = `operation`(`sources`)."""

    instruction: Instruction
    operation: Elementwise
    destination: Operand
    sources: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Effect:
    """Memory, synchronisation, control flow, or anything that needs all lanes."""

    instruction: Instruction
    emit: "Callable[[Emitter, Instruction], None]"
    ends: bool = False
    """The code ends with `return`: a branch, or an instruction that may have to wait."""
    joins: bool = False
    """All lanes that have not exited must execute it together."""
    members: Operand | None = None
    """With `joins`: the mask of the lanes that must come together, where not all."""
    anywhere: str = ""
    """With `joins`: lanes may also be at another instruction of this kind."""
    merged: "Callable[[Emitter, list[Instruction]], None] | None" = None
    """Emits a run of equal, independent instructions at once, where that pays."""
    splits: bool = False
    """With a guard that varies by lane, the lanes must part before it."""


Micro = Compute | Effect
Lowering = Callable[[Instruction], list[Micro]]

LOWERINGS: dict[str, Lowering] = {}
"""Base opcode -> what turns one of its instructions into micro-operations."""


def lowers(*names: str) -> Callable[[Lowering], Lowering]:
    """Register the lowering of some base opcodes."""

    def register(function: Lowering) -> Lowering:
        for name in names:
            LOWERINGS[name] = function
        return function

    return register


def lower(instruction: Instruction) -> list[Micro]:
    """The micro-operations of one instruction.

    Raises: UnknownInstructionError with its line; nothing is ever skipped.
    """
    lowering = LOWERINGS.get(instruction.name)
    if lowering is None:
        raise unknown(instruction)
    try:
        return lowering(instruction)
    except (LookupError, TypeError, ValueError, AttributeError, AssertionError) as error:
        raise unknown(instruction, f"its operands do not fit ({error})") from error


def unknown(instruction: Instruction, why: str = "") -> UnknownInstructionError:
    """The error for an instruction or form that the emulator does not execute."""
    reason = f": {why}" if why else ""
    return UnknownInstructionError(
        f"line {instruction.line}: the emulator does not know `{instruction.text[:120]}`{reason}",
        instruction.line,
    )
