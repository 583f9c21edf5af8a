"""Control flow and what has no effect on data: bra, brx, ret, exit, trap, fences, nanosleep."""

from typing import TYPE_CHECKING, Any

from ptxgen.emulator.emitter import Emitter
from ptxgen.emulator.micro import Effect, Micro, lowers, unknown
from ptxgen.emulator.observer import Rendezvous
from ptxgen.emulator.runtime import runtime
from ptxgen.errors import DeadlockError, EmulationError
from ptxgen.ptx.module import Instruction

if TYPE_CHECKING:
    from ptxgen.emulator.fragment import Fragment


@lowers("bra")
def branch(instruction: Instruction) -> list[Micro]:
    """bra; a guard is handled where versions are written."""
    return [Effect(instruction, _jump, ends=True)]


def _jump(em: Emitter, instruction: Instruction) -> None:
    if em.flow.is_endless(em.at):
        em.line(f"spin(F, F.mask, {instruction.line})")
    (name,) = em.exits_to(em.flow.target(instruction))
    em.line(f"return {name}")


@runtime
def spin(F: "Fragment", taken: int, line: int) -> None:
    """Stop lanes that take a branch which `Flow.is_endless`.

    Raises: DeadlockError if there are any.
    """
    if taken & F.mask:
        raise DeadlockError(
            f"endless loop: lanes {taken & F.mask:#010x} branch back and nothing in the loop can "
            "change whether they do; the loop may lack its try_wait or load",
            line,
        )


@lowers("brx")
def indexed_branch(instruction: Instruction) -> list[Micro]:
    """brx.idx: a jump table."""
    return [Effect(instruction, _indexed_jump, ends=True)]


def _indexed_jump(em: Emitter, instruction: Instruction) -> None:
    labels = em.flow.branch_list(instruction)
    form, code = em.read(instruction.operands[0], "b32")
    code = em.assign(code)
    names = em.exits_to(*(em.flow.function.labels[label] for label in labels))
    targets = ", ".join(names)
    if form == "S":
        em.line(f"return jump_table(F, {code}, ({targets},))")
    else:
        em.line(f"return jump_apart(F, {code}, ({targets},))")


@runtime
def jump_table(F: "Fragment", index: int, targets: tuple[Any, ...]) -> Any:
    """The target of a uniform index.

    Raises: EmulationError outside the table.
    """
    if index >= len(targets):
        raise EmulationError(
            f"brx.idx: index must be below {len(targets)}, the length of its table, got {index}"
        )
    return targets[index]


@runtime
def jump_apart(F: "Fragment", indices: Any, targets: tuple[Any, ...]) -> Any:
    """Part the lanes by their index; the first group goes on."""
    groups: dict[int, int] = {}
    for lane in range(32):
        if F.mask >> lane & 1:
            groups[int(indices[lane])] = groups.get(int(indices[lane]), 0) | 1 << lane
    first, *rest = [(jump_table(F, i, targets), m) for i, m in sorted(groups.items())]
    if not rest:
        return first[0]
    everyone = F.mask
    for target, mask in rest:
        F.split(F.mask & ~mask, first[0], target)
        everyone &= ~mask
    return None


@lowers("ret", "exit")
def leave(instruction: Instruction) -> list[Micro]:
    """ret and exit."""
    return [Effect(instruction, _leave, ends=True)]


def _leave(em: Emitter, instruction: Instruction) -> None:
    if instruction.name == "ret" and not em.program.function.is_entry:
        from ptxgen.emulator.op_call import emit_return

        emit_return(em)
    else:
        em.line("return leave(F)")


@lowers("trap", "brkpt")
def trap(instruction: Instruction) -> list[Micro]:
    """trap ends the run with an error."""
    return [Effect(instruction, _trap, ends=True)]


def _trap(em: Emitter, instruction: Instruction) -> None:
    em.line(f"return fell_into_trap(F, {instruction.line})")


@runtime
def fell_into_trap(F: "Fragment", line: int) -> None:
    """Raises: EmulationError."""
    printed = F.machine.printed[-1].strip() if F.machine.printed else ""
    note = f"; it last printed: {printed}" if printed else ""
    raise EmulationError(f"the kernel executed trap (lanes {F.mask:#010x}){note}", line)


@lowers("nanosleep", "pmevent")
def pause(instruction: Instruction) -> list[Micro]:
    """nanosleep gives the other warps a turn."""
    if instruction.name == "pmevent":
        return []
    return [Effect(instruction, _pause, ends=True)]


def _pause(em: Emitter, instruction: Instruction) -> None:
    em.line(f"return yield_turn(F, {em.following()})")


@runtime
def yield_turn(F: "Fragment", following: Any) -> None:
    """Give the other warps a turn."""
    F.next = following
    F.warp.yielded = True


@lowers("fence", "membar")
def fence(instruction: Instruction) -> list[Micro]:
    """Fences order accesses for an observer; execution here is in order anyway."""
    return [Effect(instruction, _fence)]


def _fence(em: Emitter, instruction: Instruction) -> None:
    if instruction.name == "membar":
        scope = {"cta": "cta", "gl": "gpu", "sys": "sys"}.get(instruction.modifiers[0])
        kind = f"sc.{scope}" if scope else ".".join(instruction.modifiers)
    else:
        kind = ".".join(instruction.modifiers)
    if not kind:
        raise unknown(instruction)
    em.line(f"if F.observer is not None: fence_passed(F, {kind!r}, {em.active_mask()}, "
            f"{instruction.line})")  # fmt: skip


@runtime
def fence_passed(F: "Fragment", kind: str, mask: int, line: int) -> None:
    """Tell the observer of a fence."""
    mask &= F.mask
    if mask and F.observer is not None:
        F.observer.on_fence(F.origin(line, mask), kind)


@lowers("griddepcontrol")
def dependent_grids(instruction: Instruction) -> list[Micro]:
    """griddepcontrol: launches run one after the other, so earlier grids have always finished."""
    if instruction.modifiers[0] not in ("wait", "launch_dependents"):
        raise unknown(instruction)
    return [Effect(instruction, _dependent_grids)]


def _dependent_grids(em: Emitter, instruction: Instruction) -> None:
    kind = "wait" if instruction.modifiers[0] == "wait" else "arrive"
    em.line(f"if F.observer is not None: grid_passed(F, {kind!r}, {instruction.line})")


@runtime
def grid_passed(F: "Fragment", kind: str, line: int) -> None:
    """Tell the observer that earlier grids were waited for, or later ones let in."""
    assert F.observer is not None
    F.observer.on_rendezvous(Rendezvous(kind, "grid", 0, 0, F.origin(line)))
