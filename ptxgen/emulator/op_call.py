"""call: device functions of the module, and the few that the driver provides."""

import struct
from typing import TYPE_CHECKING, Any

from ptxgen.emulator.emitter import Emitter
from ptxgen.emulator.fragment import Frame
from ptxgen.emulator.micro import Effect, Micro, lowers, unknown
from ptxgen.emulator.runtime import runtime
from ptxgen.errors import EmulationError
from ptxgen.ptx.module import Instruction, Register, Symbol, Vector

if TYPE_CHECKING:
    from ptxgen.emulator.fragment import Fragment

PROVIDED = ("vprintf", "__assertfail")
"""Functions without a body that the emulator knows."""


@lowers("call")
def call(instruction: Instruction) -> list[Micro]:
    """call, direct."""
    return [Effect(instruction, _call, ends=True, splits=True)]


def _call(em: Emitter, instruction: Instruction) -> None:
    returns, callee, arguments = instruction.operands[:3]
    assert isinstance(returns, Vector)
    assert isinstance(arguments, Vector)
    if not isinstance(callee, Symbol):
        raise unknown(instruction, "indirect calls are not supported")
    image = em.program.image
    function = image.module.functions.get(callee.name)
    if function is None:
        raise unknown(instruction, f"{callee.name} is not declared")
    names = [o.name for o in (*returns.items, *arguments.items) if isinstance(o, Symbol)]
    offsets = {n: image.local.get(f"{em.program.function.name}::{n}", -1) for n in names}
    if function.is_declaration:
        if callee.name not in PROVIDED:
            raise unknown(instruction, f"{callee.name} has no body in this module")
        places = ", ".join(str(offsets[o.name]) for o in arguments.items if isinstance(o, Symbol))
        back = [offsets[o.name] for o in returns.items if isinstance(o, Symbol)]
        em.line(
            f"provided_function(F, {callee.name!r}, ({places},), {back[0] if back else -1}, "
            f"{instruction.line})"
        )
        em.line(f"return {em.following()}")
        return
    if any(isinstance(o, Register) for o in (*returns.items, *arguments.items)):
        raise unknown(instruction, "only parameters in .param space are supported")
    moves = []
    for operand, parameter in zip(arguments.items, function.params, strict=True):
        assert isinstance(operand, Symbol)
        target = image.local[f"{callee.name}::{parameter.name}"]
        moves.append((offsets[operand.name], target, parameter.nbytes))
    backs = []
    for operand, parameter in zip(returns.items, function.returns, strict=True):
        assert isinstance(operand, Symbol)
        backs.append(
            (image.local[f"{callee.name}::{parameter.name}"], offsets[operand.name],
             parameter.nbytes)
        )  # fmt: skip
    frame = image.frame_bytes[em.program.function.name]
    em.line(
        f"return enter_function(F, PROGRAM, {callee.name!r}, {tuple(moves)}, {tuple(backs)}, "
        f"{frame}, {em.following()})"
    )


@runtime
def enter_function(
    F: "Fragment", caller: Any, name: str, moves: tuple[Any, ...], backs: tuple[Any, ...],
    frame_bytes: int, following: Any,
) -> None:  # fmt: skip
    """Go into a function: a new register file and frame, arguments copied."""
    program = caller.image.program_of(caller.image.module.functions[name])
    base = F.local_base + frame_bytes
    _copy_frames(F, [(F.local_base + a, base + b, n) for a, b, n in moves])
    F.frames.append(Frame(F.registers, following, F.local_base))
    F.local_base = base
    F.backs = (*F.backs, backs)
    F.registers = [0] * program.num_slots
    F.next = program.entry(F.mode)


def _copy_frames(F: "Fragment", copies: list[tuple[int, int, int]]) -> None:
    local = F.warp.local_memory()
    rows = local.u8[: 32 * local.lane_bytes].reshape(32, local.lane_bytes)
    for start, target, nbytes in copies:
        if max(start, target) + nbytes > local.legal_bytes:
            raise EmulationError("local memory overflows: calls are nested too deeply")
        rows[:, target : target + nbytes] = rows[:, start : start + nbytes]


def emit_return(em: Emitter) -> None:
    """ret in a function."""
    em.line("return leave_function(F)")


@runtime
def leave_function(F: "Fragment") -> None:
    """Return to the caller, results copied."""
    frame = F.frames.pop()
    *rest, backs = F.backs
    F.backs = tuple(rest)
    _copy_frames(F, [(F.local_base + a, frame.local_base + b, n) for a, b, n in backs])
    F.local_base = frame.local_base
    F.registers = list(frame.registers)
    target = frame.resume
    if F.mode != "full":
        F.go_to(target)
    else:
        F.next = target


@runtime
def provided_function(
    F: "Fragment", name: str, arguments: tuple[int, ...], back: int, line: int
) -> None:
    """vprintf and __assertfail.

    Raises: EmulationError for a failed assertion.
    """
    lane = F.lane
    if name == "vprintf":
        for each in range(32):
            if F.mask >> each & 1:
                text = _format(F, each, arguments)
                F.machine.printed.append(text)
        if back >= 0:
            _write_local(F, back, 0)
        return
    message = _string(F, _local_int(F, lane, arguments[0], 8))
    place = _string(F, _local_int(F, lane, arguments[1], 8))
    number = _local_int(F, lane, arguments[2], 4)
    raise EmulationError(f"device assertion failed: {message} ({place}:{number})", line)


def _write_local(F: "Fragment", offset: int, value: int) -> None:
    local = F.warp.local_memory()
    for lane in range(32):
        local.store_int(lane * local.lane_bytes + F.local_base + offset, value, 4)


def _local_int(F: "Fragment", lane: int, offset: int, size: int) -> int:
    local = F.warp.local_memory()
    return local.load_int(lane * local.lane_bytes + F.local_base + offset, size)


def _generic_int(F: "Fragment", lane: int, address: int, size: int) -> int:
    from ptxgen.emulator.addresses import locate
    from ptxgen.emulator.observer import Space

    space, inner = locate(address)
    if space is Space.LOCAL:
        local = F.warp.local_memory()
        return local.load_int(lane * local.lane_bytes + inner, size)
    if space is Space.SHARED:
        cta, offset = F.cta.peer(inner)
        return cta.smem.load_int(offset, size)
    return F.machine.memory.load_int(inner, size)


def _string(F: "Fragment", address: int) -> str:
    found = bytearray()
    while len(found) < 4096:
        byte = _generic_int(F, F.lane, address + len(found), 1)
        if not byte:
            break
        found.append(byte)
    return found.decode("utf-8", "replace")


def _format(F: "Fragment", lane: int, arguments: tuple[int, ...]) -> str:
    """The text of one lane's printf; arguments are packed with their natural alignment."""
    import re

    template = _string(F, _local_int(F, lane, arguments[0], 8))
    address = _local_int(F, lane, arguments[1], 8)
    offset = 0

    def fetch(size: int) -> int:
        nonlocal offset
        offset = -(-offset // size) * size
        value = _generic_int(F, lane, address + offset, size)
        offset += size
        return value

    def replace(found: "re.Match[str]") -> str:
        flags, length, kind = found.group(1), found.group(2), found.group(3)
        if kind == "%":
            return "%"
        if kind in "eEfFgGaA":
            number: float = struct.unpack("<d", fetch(8).to_bytes(8, "little"))[0]
            return f"%{flags}{kind}" % number
        if kind == "s":
            return f"%{flags}s" % _string(F, fetch(8))
        if kind == "p":
            return hex(fetch(8))
        size = 8 if length in ("l", "ll", "z", "j", "t") else 4
        value = fetch(size)
        if kind in "di" and value >> (8 * size - 1):
            value -= 1 << 8 * size
        if kind == "c":
            return chr(value & 0xFF)
        return f"%{flags}{'d' if kind in 'iu' else kind}" % value

    return re.sub(r"%([-+ #0]*\d*(?:\.\d+)?)(hh|h|ll|l|z|j|t)?([a-zA-Z%])", replace, template)
