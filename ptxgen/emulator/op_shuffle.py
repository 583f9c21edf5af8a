"""shfl, vote, match, redux, activemask: exchange between the lanes of a warp."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ptxgen.emulator.emitter import Emitter
from ptxgen.emulator.lanes import F4, I4, LANES, U4, lane_indices, lane_list, lanes, mask_of
from ptxgen.emulator.micro import Effect, Micro, lowers, unknown
from ptxgen.emulator.runtime import runtime
from ptxgen.ptx.module import Immediate, Instruction, Operand, Pair, Sink

if TYPE_CHECKING:
    from ptxgen.emulator.fragment import Fragment


@lowers("shfl")
def shuffle(instruction: Instruction) -> list[Micro]:
    """shfl.sync.{up,down,bfly,idx}.b32."""
    if instruction.modifiers[0] != "sync" or instruction.modifiers[-1] != "b32":
        raise unknown(instruction)
    return [Effect(instruction, _shuffle, joins=True, members=instruction.operands[-1])]


def _results(destination: Operand) -> tuple[Operand, Operand]:
    if isinstance(destination, Pair):
        return destination.first, destination.second
    return destination, Sink()


def _shuffle(em: Emitter, instruction: Instruction) -> None:
    mode = instruction.modifiers[1]
    value, valid = _results(instruction.operands[0])
    _, source, b, c, _ = instruction.operands
    form, code = em.read(source, "b32")
    b_form, b_code = em.read(b, "b32")
    if form == "S" and isinstance(valid, Sink):
        em.write(value, "b32", "S", code)
        return
    broadcast = mode == "idx" and b_form == "S" and isinstance(valid, Sink)
    whole_warp = isinstance(c, Immediate) and int(c.value) & 0x1F1F == 31
    if broadcast and whole_warp and em.mode == "full":
        em.write(value, "b32", "S", f"int({em.assign(code)}[{b_code} & 31])")
        return
    data = em.spread(code, "b32") if form == "S" else code
    index = em.spread(b_code, "b32") if b_form == "S" else b_code
    control = em.read_lanes(c, "b32")
    name, mask = em.name(), em.name()
    em.line(f"{name}, {mask} = exchange(F, {mode!r}, {data}, {index}, {control})")
    if em.mode == "one":
        em.write(value, "b32", "S", f"int({name}[F.lane])")
        em.write(valid, "pred", "S", f"bool({mask} >> F.lane & 1)") if not isinstance(
            valid, Sink
        ) else None
        return
    em.write(value, "b32", "V", name)
    if not isinstance(valid, Sink):
        em.write(valid, "pred", "V", mask)


@runtime
def exchange(F: "Fragment", mode: str, values: Any, b: Any, c: Any) -> tuple[Any, int]:
    """shfl: new values, and the mask of lanes whose source was in range."""
    offset = (b & 31).astype(I4)
    segment = (c >> 8 & 31).astype(I4)
    clamp = (c & 31).astype(I4)
    lane = LANES.astype(I4)
    low = lane & segment
    high = low | (clamp & ~segment)
    if mode == "up":
        source = lane - offset
        valid = source >= high
    elif mode == "down":
        source = lane + offset
        valid = source <= high
    elif mode == "bfly":
        source = lane ^ offset
        valid = source <= high
    else:
        source = low | (offset & ~segment)
        valid = source <= high
    source = np.where(valid, source, lane)
    return values[source], mask_of(valid)


_VOTES = ("all", "any", "uni", "ballot")


@lowers("vote")
def vote(instruction: Instruction) -> list[Micro]:
    """vote.sync.{all,any,uni}.pred and .ballot.b32; ptxas takes .sync in either place."""
    if "sync" not in instruction.modifiers or not set(_VOTES) & set(instruction.modifiers):
        raise unknown(instruction)
    return [Effect(instruction, _vote, joins=True, members=instruction.operands[-1])]


def _vote(em: Emitter, instruction: Instruction) -> None:
    mode = next(m for m in instruction.modifiers if m in _VOTES)
    kind = "b32" if mode == "ballot" else "pred"
    destination, source, members = instruction.operands
    form, code = em.read(source, "pred")
    mask = em.assign(em.spread(code, "pred") if form == "S" else code)
    if em.read(members, "b32")[0] == "V":
        groups = em.read_lanes(members, "b32")
        name = em.assign(f"vote_apart(F, {mode!r}, {mask}, {groups})")
        em.write(destination, kind, "V", name)
        return
    active = em.assign(f"{em.read_uniform(members, 'b32')} & F.mask")
    em.write(destination, kind, "S", VOTES[mode].format(mask=mask, active=active))


VOTES = {
    "ballot": "{mask} & {active}", "all": "({mask} & {active} == {active})",
    "any": "({mask} & {active} != 0)", "uni": "({mask} & {active} in (0, {active}))",
}  # fmt: skip
"""Result of a vote of the lanes in `active`, of which those in `mask` say yes."""


def groups_of(F: "Fragment", members: Any) -> list[tuple[int, int]]:
    """(lanes that name the same members, these members as far as they are here) of a fragment."""
    groups: dict[int, int] = {}
    for lane in lane_list(F.mask):
        named = int(members[lane])
        groups[named] = groups.get(named, 0) | 1 << lane
    return [(lanes_, named & F.mask) for named, lanes_ in groups.items()]


@runtime
def vote_apart(F: "Fragment", mode: str, mask: int, members: Any) -> Any:
    """A vote in which lanes name different members, as tiles of a warp do."""
    found = np.zeros(32, U4)
    for named, active in groups_of(F, members):
        yes = mask & active
        result = yes if mode == "ballot" else int(
            yes == active if mode == "all" else yes != 0 if mode == "any" else yes in (0, active)
        )  # fmt: skip
        found[lanes(named)] = result
    return found if mode == "ballot" else mask_of(found != 0)


@lowers("activemask")
def active_mask(instruction: Instruction) -> list[Micro]:
    """activemask.b32."""
    return [Effect(instruction, _active_mask)]


def _active_mask(em: Emitter, instruction: Instruction) -> None:
    em.write(instruction.operands[0], "b32", "S", "F.mask")


@lowers("match")
def match(instruction: Instruction) -> list[Micro]:
    """match.sync.{any,all}.{b32,b64}."""
    return [Effect(instruction, _match, joins=True, members=instruction.operands[-1])]


def _match(em: Emitter, instruction: Instruction) -> None:
    value, valid = _results(instruction.operands[0])
    kind = instruction.modifiers[-1]
    data = em.read_lanes(instruction.operands[1], kind)
    members = em.read_lanes(instruction.operands[2], "b32")
    name, mask = em.name(), em.name()
    every = "all" in instruction.modifiers
    em.line(f"{name}, {mask} = matching(F, {data}, {members}, {every})")
    if em.mode == "one":
        em.write(value, "b32", "S", f"int({name}[F.lane])")
        em.write(valid, "pred", "S", f"bool({mask} >> F.lane & 1)")
        return
    em.write(value, "b32", "V", name)
    em.write(valid, "pred", "V", mask)


@runtime
def matching(F: "Fragment", values: Any, members: Any, every: bool) -> tuple[Any, int]:
    """match: lanes with an equal value; with `every` all members or nothing."""
    found = np.zeros(32, U4)
    agreed = 0
    for named, active in groups_of(F, members):
        if every:
            chosen = values[lane_indices(active)]
            if (chosen == chosen[0]).all():
                found[lanes(named)] = active
                agreed |= named
            continue
        for lane in lane_list(named):
            found[lane] = mask_of(values == values[lane]) & active
        agreed |= named
    return found, agreed


@lowers("redux")
def reduce(instruction: Instruction) -> list[Micro]:
    """redux.sync: add, min, max, and, or, xor."""
    return [Effect(instruction, _reduce, joins=True, members=instruction.operands[-1])]


def _reduce(em: Emitter, instruction: Instruction) -> None:
    operation = instruction.modifiers[1]
    kind = instruction.modifiers[-1]
    absolute, nan = "abs" in instruction.modifiers, "NaN" in instruction.modifiers
    data = em.read_lanes(instruction.operands[1], kind)
    flags = f"{absolute}, {nan}"
    if em.read(instruction.operands[2], "b32")[0] == "V":
        groups = em.read_lanes(instruction.operands[2], "b32")
        name = em.assign(f"reduced_apart(F, {operation!r}, {data}, {groups}, {flags})")
        em.write(instruction.operands[0], "b32", "V", name)
        return
    members = em.read_uniform(instruction.operands[2], "b32")
    code = f"reduced({operation!r}, {data}, {members} & F.mask, {flags})"
    em.write(instruction.operands[0], "b32", "S", code)


@runtime
def reduced_apart(
    F: "Fragment", operation: str, values: Any, members: Any, absolute: bool, nan: bool
) -> Any:
    """redux in which lanes name different members."""
    found = np.zeros(32, U4)
    for named, active in groups_of(F, members):
        found[lanes(named)] = reduced(operation, values, active, absolute, nan)
    return found


@runtime
def reduced(operation: str, values: Any, active: int, absolute: bool, nan: bool) -> int:
    """One value from those of the active lanes, as bits."""
    chosen = values[lanes(active)]
    if absolute:
        chosen = np.abs(chosen)
    if operation == "add":
        return int(chosen.astype(np.int64).sum()) & 0xFFFFFFFF
    if operation in ("min", "max"):
        pick: Any
        if chosen.dtype == F4 and not nan:
            pick = np.fmin if operation == "min" else np.fmax
        else:
            pick = np.minimum if operation == "min" else np.maximum
        found = pick.reduce(chosen)
        return int(np.asarray(found).view(U4))
    function = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[operation]
    return int(function.reduce(chosen.astype(U4)))
