"""bar, barrier.cta, bar.warp, barrier.cluster, elect, setmaxnreg."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ptxgen.emulator.emitter import Emitter
from ptxgen.emulator.fragment import Wait
from ptxgen.emulator.lanes import lane_indices, lowest
from ptxgen.emulator.micro import Effect, Micro, lowers, unknown
from ptxgen.emulator.observer import Rendezvous
from ptxgen.emulator.op_shuffle import groups_of
from ptxgen.emulator.runtime import runtime
from ptxgen.errors import BarrierError
from ptxgen.ptx.module import Immediate, Instruction, Operand, Pair

if TYPE_CHECKING:
    from ptxgen.emulator.fragment import Fragment

_REDUCTIONS = ("popc", "and", "or")


@lowers("bar", "barrier")
def barrier(instruction: Instruction) -> list[Micro]:
    """Named barriers, warp barriers, cluster barriers."""
    modifiers = [m for m in instruction.modifiers if m not in ("cta", "aligned")]
    if "cluster" in modifiers:
        if "arrive" in modifiers:
            return [Effect(instruction, _cluster_arrive, joins="aligned" in instruction.modifiers)]
        if "wait" in modifiers:
            return [
                Effect(instruction, _cluster_wait, ends=True,
                       joins="aligned" in instruction.modifiers)
            ]  # fmt: skip
        raise unknown(instruction)
    if modifiers[:2] == ["warp", "sync"]:
        return [
            Effect(instruction, _warp_sync, joins=True, members=instruction.operands[0],
                   anywhere="warp")
        ]  # fmt: skip
    aligned = instruction.name == "bar" or "aligned" in instruction.modifiers
    anywhere = "" if aligned else "cta"
    if modifiers[0] == "sync":
        return [Effect(instruction, _sync, ends=True, joins=True, anywhere=anywhere)]
    if modifiers[0] == "arrive":
        return [Effect(instruction, _arrive, joins=True, anywhere=anywhere)]
    if modifiers[0] == "red" and modifiers[1] in _REDUCTIONS:
        return [Effect(instruction, _reduce, ends=True, joins=True, anywhere=anywhere)]
    raise unknown(instruction)


def _count(em: Emitter, operands: tuple[Operand, ...], index: int) -> str:
    return em.read_uniform(operands[index], "u32") if len(operands) > index else "0"


def _sync(em: Emitter, instruction: Instruction) -> None:
    index = em.read_uniform(instruction.operands[0], "u32")
    count = _count(em, instruction.operands, 1)
    em.line(f"return sync_threads(F, {index}, {count}, {instruction.line}, {em.following()})")


@runtime
def sync_threads(F: "Fragment", index: int, count: int, line: int, following: Any) -> Any:
    """bar.sync."""
    if F.cta.barrier_arrive(F, index, count, line, True):
        return following
    F.block(Wait("bar", line, index), following)
    return None


def _arrive(em: Emitter, instruction: Instruction) -> None:
    index = em.read_uniform(instruction.operands[0], "u32")
    count = _count(em, instruction.operands, 1)
    em.line(f"F.cta.barrier_arrive(F, {index}, {count}, {instruction.line}, False)")


def _reduce(em: Emitter, instruction: Instruction) -> None:
    operands = instruction.operands
    operation = next(m for m in instruction.modifiers if m in _REDUCTIONS)
    index = em.read_uniform(operands[1], "u32")
    count = _count(em, operands, 2) if len(operands) == 4 else "0"
    form, code = em.read(operands[-1], "pred")
    mask = em.assign(em.spread(code, "pred") if form == "S" else code)
    number = em.bind_home(operands[0], "S")
    em.line(
        f"return reduce_threads(F, {index}, {count}, {mask}, {operation!r}, {number}, "
        f"{instruction.line}, {em.following()})"
    )


@runtime
def reduce_threads(
    F: "Fragment", index: int, count: int, mask: int, operation: str, register: int, line: int,
    following: Any,
) -> Any:  # fmt: skip
    """bar.red: the barrier, and popc, and, or of a predicate over its threads."""
    state = F.cta.barriers[index & 15]
    state.reduction.append((F, mask & F.mask, F.mask, register))
    everyone = list(state.reduction)
    completed = F.cta.barrier_arrive(F, index, count, line, True)
    if not completed:
        F.block(Wait("bar", line, index), following)
        return None
    total = sum(m.bit_count() for _, m, _, _ in everyone)
    result: int | bool = total
    if operation == "and":
        result = all(m == active for _, m, active, _ in everyone)
    elif operation == "or":
        result = total > 0
    for fragment, _, _, home in everyone:
        fragment.registers[home] = result
    return following


def _warp_sync(em: Emitter, instruction: Instruction) -> None:
    em.line(f"if F.observer is not None: warp_synced(F, {instruction.line})")


@runtime
def warp_synced(F: "Fragment", line: int) -> None:
    """Tell the observer of bar.warp.sync."""
    assert F.observer is not None
    for kind in ("arrive", "wait"):
        F.observer.on_rendezvous(Rendezvous(kind, "warp", 0, 0, F.origin(line)))


def _cluster_arrive(em: Emitter, instruction: Instruction) -> None:
    relaxed = "relaxed" in instruction.modifiers
    em.line(f"cluster_arrive(F, {relaxed}, {instruction.line})")


@runtime
def cluster_arrive(F: "Fragment", relaxed: bool, line: int) -> None:
    """barrier.cluster.arrive."""
    cluster = F.cta.cluster
    if F.observer is not None:
        F.observer.on_rendezvous(
            Rendezvous("arrive", "cluster", 0, cluster.generation, F.origin(line), relaxed)
        )
    F.machine.epoch += 1
    F.machine.meetings += 1
    cluster.barrier_arrive(F)


def _cluster_wait(em: Emitter, instruction: Instruction) -> None:
    em.line(f"return cluster_wait(F, {instruction.line}, {em.following()})")


@runtime
def cluster_wait(F: "Fragment", line: int, following: Any) -> Any:
    """barrier.cluster.wait."""
    cluster = F.cta.cluster
    phase = cluster.arrival_phase.get(F.warp, -1)
    if cluster.barrier_passed(F):
        if F.observer is not None:
            F.observer.on_rendezvous(Rendezvous("wait", "cluster", 0, phase, F.origin(line)))
        return following
    F.block(Wait("cluster", line), following)
    cluster.waiting.append((F, phase))
    return None


@lowers("elect")
def elect(instruction: Instruction) -> list[Micro]:
    """elect.sync: the lowest lane of the mask, as an H200 chooses."""
    return [Effect(instruction, _elect, joins=True, members=instruction.operands[1])]


def _elect(em: Emitter, instruction: Instruction) -> None:
    destination, members = instruction.operands
    first: Operand
    second: Operand
    if isinstance(destination, Pair):
        first, second = destination.first, destination.second
    else:
        first = second = destination
    if em.mode == "one":
        em.write(second, "pred", "S", "True")
        if isinstance(destination, Pair):
            em.write(first, "b32", "S", "F.lane")
        return
    if em.read(members, "u32")[0] == "V":
        leaders = em.assign(f"leaders_of(F, {em.read_lanes(members, 'b32')})")
        em.write(second, "pred", "V", f"mask_of({leaders} == LANES)")
        if isinstance(destination, Pair):
            em.write(first, "b32", "V", leaders)
        return
    mask = em.read_uniform(members, "u32")
    if em.mode == "full" and isinstance(members, Immediate):
        lane = str(lowest(int(members.value) & 0xFFFFFFFF))
    else:
        lane = em.assign(f"lowest({mask} & F.mask)")
    em.write(second, "pred", "V", f"1 << {lane}")
    if isinstance(destination, Pair):
        em.write(first, "b32", "S", lane)


@runtime
def leaders_of(F: "Fragment", members: Any) -> Any:
    """elect.sync of lanes that name different members: the lowest lane of each group."""
    found = np.zeros(32, np.uint32)
    for _named, active in groups_of(F, members):
        found[lane_indices(active)] = lowest(active)
    return found


@lowers("setmaxnreg")
def set_max_registers(instruction: Instruction) -> list[Micro]:
    """setmaxnreg."""
    if instruction.modifiers[0] not in ("inc", "dec"):
        raise unknown(instruction)
    return [Effect(instruction, _set_max_registers, ends=True, joins=True)]


def _set_max_registers(em: Emitter, instruction: Instruction) -> None:
    operand = instruction.operands[0]
    if not isinstance(operand, Immediate):
        raise unknown(instruction, "the count must be a literal")
    em.line(
        f"return registers_changed(F, {instruction.modifiers[0]!r}, {int(operand.value)}, "
        f"{instruction.line}, {em.following()})"
    )


@runtime
def registers_changed(F: "Fragment", kind: str, count: int, line: int, following: Any) -> Any:
    """setmaxnreg: an inc waits until the pool holds what it asks for.

    Raises: BarrierError for a count that is not a multiple of 8 in [24, 256].
    """
    if count % 8 or not 24 <= count <= 256:
        raise BarrierError(f"setmaxnreg: must be a multiple of 8 in [24, 256], got {count}")
    if F.cta.registers.change(F, kind, count, line):
        return following
    F.next = following
    return None
