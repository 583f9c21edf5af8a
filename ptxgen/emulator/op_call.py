"""call: device functions of the module, and the few that the driver provides."""

import struct
from typing import TYPE_CHECKING, Any

from ptxgen.emulator.emitter import Emitter
from ptxgen.emulator.fragment import Frame, value_in_lane
from ptxgen.emulator.lanes import FULL, full, lane_indices, lane_list
from ptxgen.emulator.micro import Effect, Micro, lowers, unknown
from ptxgen.emulator.runtime import runtime
from ptxgen.errors import EmulationError
from ptxgen.ptx.module import Instruction, Register, Symbol, Vector

if TYPE_CHECKING:
    from ptxgen.emulator.fragment import Fragment

PROVIDED = ("vprintf", "__assertfail", "malloc", "free")
"""Functions without a body that the emulator knows."""
MAX_DEPTH = 1024
"""Calls that may be nested. A GPU's stack, 1 KiB per thread by default, holds 64 of 16 bytes."""


@lowers("call")
def call(instruction: Instruction) -> list[Micro]:
    """call, direct or through a register."""
    return [Effect(instruction, _call, ends=True, splits=True)]


def _call(em: Emitter, instruction: Instruction) -> None:
    returns, callee, arguments = instruction.operands[:3]
    assert isinstance(returns, Vector)
    assert isinstance(arguments, Vector)
    image = em.program.image
    own = em.program.function.name
    places = {
        o.name: image.local.get(f"{own}::{o.name}", -1)
        for o in (*returns.items, *arguments.items)
        if isinstance(o, Symbol)
    }
    if isinstance(callee, Symbol):
        function = image.module.functions.get(callee.name)
        if function is None:
            raise unknown(instruction, f"{callee.name} is not declared")
        if function.is_declaration:
            _call_provided(em, instruction, callee.name, returns, arguments, places)
            return
        enter, which = "enter_function", repr(callee.name)
    else:
        enter, which = "enter_pointed", em.assign(em.read_lanes(callee, "b64"))
    values = []
    for operand in arguments.items:
        if isinstance(operand, Symbol):
            values.append(f"('param', {places[operand.name]})")
        else:
            bits = em.register_bits(operand.name) if isinstance(operand, Register) else 32
            form, code = em.read(operand, "pred" if bits == 1 else f"b{bits}")
            values.append(f"({form!r}, {em.assign(code)})")
    results = []
    for operand in returns.items:
        if isinstance(operand, Symbol):
            results.append(f"('param', {places[operand.name]})")
        else:
            number = em.bind_home(operand, "S" if em.mode == "one" else "V")
            results.append(f"('register', {number})")
    em.line(
        f"return {enter}(F, PROGRAM, {which}, ({''.join(v + ', ' for v in values)}), "
        f"({''.join(r + ', ' for r in results)}), {image.frame_bytes[own]}, {em.following()})"
    )


def _call_provided(
    em: Emitter, instruction: Instruction, name: str, returns: Vector, arguments: Vector,
    places: dict[str, int],
) -> None:  # fmt: skip
    if name not in PROVIDED:
        raise unknown(instruction, f"{name} has no body in this module")
    given = ", ".join(str(places[o.name]) for o in arguments.items if isinstance(o, Symbol))
    back = [places[o.name] for o in returns.items if isinstance(o, Symbol)]
    em.line(
        f"provided_function(F, {name!r}, ({given},), {back[0] if back else -1}, {instruction.line})"
    )
    em.line(f"return {em.following()}")


@runtime
def enter_pointed(
    F: "Fragment", caller: Any, addresses: Any, values: tuple[Any, ...], results: tuple[Any, ...],
    frame_bytes: int, following: Any,
) -> None:  # fmt: skip
    """Go into the functions that pointers mean; lanes with different ones part.

    Raises: EmulationError for a pointer to no function.
    """
    names = {number: name for name, number in caller.image.function_ids.items()}
    groups: dict[int, int] = {}
    for lane in lane_list(F.mask):
        address = int(addresses[lane])
        groups[address] = groups.get(address, 0) | 1 << lane
    for address in groups:
        if address not in names:
            raise EmulationError(
                f"an indirect call needs a pointer to a function of the module, got {address:#x}"
            )
    *others, last = groups.items()
    for address, mask in others:
        part = F.part(mask)
        enter_function(
            part, caller, names[address], values, results, frame_bytes, following
        )  # fmt: skip
    enter_function(F, caller, names[last[0]], values, results, frame_bytes, following)


@runtime
def enter_function(
    F: "Fragment", caller: Any, name: str, values: tuple[Any, ...], results: tuple[Any, ...],
    frame_bytes: int, following: Any,
) -> None:  # fmt: skip
    """Go into a function: a new register file and frame, arguments copied.

    An argument is ("param", offset in the caller's frame) or (form, value) of a register; a result
    ("param", offset) or ("register", number in the caller).
    Raises: EmulationError where the call does not fit the function or recursion does not end.
    """
    if len(F.frames) >= MAX_DEPTH:
        raise EmulationError(
            f"{name}: more than {MAX_DEPTH} calls are nested: an endless recursion"
        )
    image = caller.image
    function = image.module.functions[name]
    if len(values) != len(function.params) or len(results) != len(function.returns):
        raise EmulationError(
            f"{name} takes {len(function.params)} and returns {len(function.returns)} values; the "
            f"call has {len(values)} and {len(results)}"
        )
    program = image.program_of(function)
    base = F.local_base + frame_bytes
    registers: list[Any] = [0] * program.num_slots
    forms: dict[int, str] = {}
    copies = []
    for (form, value), parameter in zip(values, function.params, strict=True):
        if parameter.is_register != (form != "param"):
            raise EmulationError(f"{name}: {parameter.name} is passed in another state space")
        if parameter.is_register:
            number = program.flow.number[parameter.name]
            if F.mode == "one":
                form, value = "S", value_in_lane(form, value, F.lane)
            registers[number], forms[number] = value, form
        else:
            target = base + image.local[f"{name}::{parameter.name}"]
            copies.append((F.local_base + value, target, parameter.nbytes))
    copy_frames(F, copies)
    F.frames.append(Frame(F.registers, following, F.local_base, function, results))
    F.local_base = base
    F.registers = registers
    F.next = program.entry(F.mode, forms)


def copy_frames(F: "Fragment", copies: list[tuple[int, int, int]]) -> None:
    """Copy bytes of local memory (from, to, count) in the active lanes.

    Raises: EmulationError when calls are nested too deeply.
    """
    local = F.warp.local_memory()
    lanes = lane_indices(F.mask)
    rows = local.u8[: 32 * local.lane_bytes].reshape(32, local.lane_bytes)
    for start, target, nbytes in copies:
        if max(start, target) + nbytes > local.legal_bytes:
            raise EmulationError("local memory overflows: calls are nested too deeply")
        rows[lanes, target : target + nbytes] = rows[lanes, start : start + nbytes]


def emit_return(em: Emitter) -> None:
    """ret in a function, with the results that are registers."""
    values = []
    for parameter in em.program.function.returns:
        if parameter.is_register:
            register = Register(parameter.name)
            bits = em.register_bits(parameter.name)
            values.append(em.assign(em.read(register, "pred" if bits == 1 else f"b{bits}")[1]))
    em.line(f"return leave_function(F, ({''.join(v + ', ' for v in values)}))")


@runtime
def leave_function(F: "Fragment", values: tuple[Any, ...]) -> None:
    """Return to the caller, results copied."""
    frame = F.frames.pop()
    image = F.machine.image
    function = frame.function
    registers = list(frame.registers)
    target: Any = frame.resume
    wanted = dict(target.context)
    rest = iter(values)
    copies = []
    for (kind, place), parameter in zip(frame.results, function.returns, strict=True):
        if not parameter.is_register:
            start = F.local_base + image.local[f"{function.name}::{parameter.name}"]
            copies.append((start, frame.local_base + place, parameter.nbytes))
            continue
        value = next(rest)
        if kind == "register" and place >= 0:
            if wanted.get(place) == "V" and isinstance(value, int):
                value = _spread(value, parameter.nbytes)
            registers[place] = value
    copy_frames(F, copies)
    F.local_base = frame.local_base
    F.registers = registers
    if F.mode != "full":
        F.go_to(target)
    else:
        F.next = target


def _spread(value: int, nbytes: int) -> Any:
    if isinstance(value, bool):
        return FULL if value else 0
    return full(value, 8 * nbytes)


@runtime
def provided_function(
    F: "Fragment", name: str, arguments: tuple[int, ...], back: int, line: int
) -> None:
    """vprintf, __assertfail, malloc and free.

    Raises: EmulationError for a failed assertion.
    """
    lane = F.lane
    memory = F.machine.memory
    if name == "malloc":
        for each in lane_list(F.mask):
            nbytes = _local_int(F, each, arguments[0], 8)
            found = memory.allocate(nbytes, "malloc on the device") if nbytes else 0
            _lane_write(F, each, back, found, 8)
        return
    if name == "free":
        for each in lane_list(F.mask):
            address = _local_int(F, each, arguments[0], 8)
            if address:
                memory.free(address)
        return
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
    for lane in lane_list(F.mask):
        _lane_write(F, lane, offset, value, 4)


def _lane_write(F: "Fragment", lane: int, offset: int, value: int, size: int) -> None:
    local = F.warp.local_memory()
    local.store_int(lane * local.lane_bytes + F.local_base + offset, value, size)


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
        if length in ("h", "hh"):
            size = 1 if length == "hh" else 2
            value &= (1 << 8 * size) - 1
        if kind in "di" and value >> (8 * size - 1):
            value -= 1 << 8 * size
        if kind == "c":
            return chr(value & 0xFF)
        return f"%{flags}{'d' if kind in 'iu' else kind}" % value

    return re.sub(r"%([-+ #0]*\d*(?:\.\d+)?)(hh|h|ll|l|z|j|t)?([a-zA-Z%])", replace, template)
