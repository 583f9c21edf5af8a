"""mbarrier: init, inval, arrive, expect_tx, complete_tx, test_wait, try_wait, pending_count."""

from typing import TYPE_CHECKING, Any

from ptxgen.emulator.emitter import Emitter
from ptxgen.emulator.fragment import Wait
from ptxgen.emulator.lanes import lane_list
from ptxgen.emulator.mbarrier import pending_count
from ptxgen.emulator.micro import Effect, Micro, lowers, unknown
from ptxgen.emulator.observer import Origin
from ptxgen.emulator.op_memory import address_code, space_of
from ptxgen.emulator.runtime import runtime
from ptxgen.ptx.module import Address, Instruction, Operand, Register, Sink

if TYPE_CHECKING:
    from ptxgen.emulator.fragment import Fragment

_ARRIVES = ("arrive", "arrive_drop")


@lowers("mbarrier")
def mbarrier(instruction: Instruction) -> list[Micro]:
    """All mbarrier instructions."""
    action = instruction.modifiers[0] if instruction.modifiers else ""
    if action in ("init", "inval", "expect_tx", "complete_tx"):
        return [Effect(instruction, _simple)]
    if action in _ARRIVES:
        return [Effect(instruction, _arrive)]
    if action in ("test_wait", "try_wait"):
        return [Effect(instruction, _wait, ends=True, splits=True)]
    if action == "pending_count":
        return [Effect(instruction, _pending_count)]
    raise unknown(instruction)


def located_address(em: Emitter, operand: Operand, space: str) -> tuple[str, str]:
    """Form and expression of a barrier address as a shared::cluster address."""
    form, code = address_code(em, operand, space)
    if space == "generic":
        code = f"shared_address({code})"
    return form, code


def _target(space: str, form: str, code: str) -> str:
    """A barrier address inside a loop over lanes; that of .shared::cta must be the own CTA's."""
    address = per_lane(form, code)
    return f"(F.cta.own({address}) | F.cta.smem_base)" if space == "shared" else address


@runtime
def shared_address(address: Any) -> Any:
    """Generic addresses that must lie in the shared window, as shared::cluster addresses.

    Raises: OutOfBoundsError.
    """
    from ptxgen.emulator.addresses import SHARED_WINDOW
    from ptxgen.errors import OutOfBoundsError

    if isinstance(address, int):
        found = address - SHARED_WINDOW
        if not 0 <= found < 1 << 32:
            raise OutOfBoundsError(
                f"generic address {address:#x} must lie in shared memory; cvta.shared makes one"
            )
        return found
    return (address - SHARED_WINDOW).astype("uint32")


def semantics(instruction: Instruction, default: str) -> str:
    """Memory order and scope of a barrier operation, as keyword arguments."""
    order = next((m for m in instruction.modifiers if m in ("relaxed", "acquire", "release")), "")
    scope = next((m for m in instruction.modifiers if m in ("cluster", "cta")), "cta")
    return f"{order or default}.{scope}"


def _value(em: Emitter, operands: tuple[Operand, ...], index: int, default: str) -> tuple[str, str]:
    return em.read(operands[index], "u32") if len(operands) > index else ("S", default)


def per_lane(form: str, code: str) -> str:
    """An operand inside a loop over lanes."""
    return code if form == "S" else f"int({code}[lane])"


def begin_lanes(em: Emitter) -> None:
    """Start a loop over the active lanes."""
    if em.mode == "one":
        em.line("lane = F.lane")
        em.line("if 1:")
    else:
        em.line(f"for lane in lane_list({em.active_mask()}):")
    em.indent += 1


def _simple(em: Emitter, instruction: Instruction) -> None:
    action = instruction.modifiers[0]
    space = space_of(instruction)
    form, code = located_address(em, instruction.operands[0], space)
    value_form, value = _value(em, instruction.operands, 1, "0")
    code, value = em.assign(code), em.assign(value)
    begin_lanes(em)
    em.line(
        f"barrier_{action}(F, lane, {_target(space, form, code)}, {per_lane(value_form, value)}, "
        f"{instruction.line})"
    )
    em.indent -= 1


def _lane(F: "Fragment", lane: int, line: int) -> Origin | None:
    return F.origin(line, 1 << lane) if F.observer is not None else None


@runtime
def barrier_init(F: "Fragment", lane: int, address: int, count: int, line: int) -> None:
    """mbarrier.init."""
    F.machine.epoch += 1
    F.cta.mbarriers.init(F.cta.own(address), count, _lane(F, lane, line))


@runtime
def barrier_inval(F: "Fragment", lane: int, address: int, _: int, line: int) -> None:
    """mbarrier.inval."""
    F.cta.mbarriers.inval(F.cta.own(address), _lane(F, lane, line))


@runtime
def barrier_expect_tx(F: "Fragment", lane: int, address: int, nbytes: int, line: int) -> None:
    """mbarrier.expect_tx."""
    cta, offset = F.cta.peer(address, must_live=False)
    F.machine.epoch += 1
    cta.mbarriers.expect_tx(offset, nbytes, _lane(F, lane, line))


@runtime
def barrier_complete_tx(F: "Fragment", lane: int, address: int, nbytes: int, line: int) -> None:
    """mbarrier.complete_tx."""
    cta, offset = F.cta.peer(address, must_live=False)
    F.machine.epoch += 1
    if cta.mbarriers.complete_tx(offset, nbytes, _lane(F, lane, line)):
        cta.phase_completed(offset)


def _arrive(em: Emitter, instruction: Instruction) -> None:
    operands = instruction.operands
    state: Operand = Sink()
    if not isinstance(operands[0], Address):
        state, operands = operands[0], operands[1:]
    drop = instruction.modifiers[0] == "arrive_drop"
    expects = "expect_tx" in instruction.modifiers
    no_complete = "noComplete" in instruction.modifiers
    order = semantics(instruction, "release")
    space = space_of(instruction)
    form, code = located_address(em, operands[0], space)
    value_form, value = _value(em, operands, 1, "0" if expects else "1")
    code, value = em.assign(code), em.assign(value)
    keeps = isinstance(state, Register)
    result = em.name()
    if keeps:
        em.line(f"{result} = 0" if em.mode == "one" else f"{result} = np.zeros(32, U8)")
    begin_lanes(em)
    call = (
        f"barrier_arrive(F, lane, {_target(space, form, code)}, "
        f"{per_lane(value_form, value)}, {expects}, {drop}, {no_complete}, {order!r}, "
        f"{instruction.line}, {em.active_mask()})"
    )
    if keeps:
        target = result if em.mode == "one" else f"{result}[lane]"
        em.line(f"{target} = {call}")
    else:
        em.line(call)
    em.indent -= 1
    if keeps:
        em.write(state, "b64", "S" if em.mode == "one" else "V", result)


@runtime
def barrier_arrive(
    F: "Fragment", lane: int, address: int, value: int, expects: bool, drop: bool,
    no_complete: bool, order: str, line: int, lanes: int,
) -> int:  # fmt: skip
    """mbarrier.arrive in all forms, of one of the `lanes` that execute it; the state token."""
    cta, offset = F.cta.peer(address, must_live=False)
    F.machine.epoch += 1
    semantics, _, scope = order.partition(".")
    arrival = cta.mbarriers.arrive(
        offset, 1 if expects else value, tx_bytes=value if expects else 0, drop=drop,
        no_complete=no_complete, semantics=semantics, scope=scope,
        origin=None if F.observer is None else F.origin(line, lanes & F.mask),
    )  # fmt: skip
    if arrival.completed:
        cta.phase_completed(offset)
    return arrival.state


def _wait(em: Emitter, instruction: Instruction) -> None:
    operands = instruction.operands
    parity = "parity" in instruction.modifiers
    order = semantics(instruction, "acquire")
    spurious = instruction.modifiers[0] == "try_wait"
    form, code = located_address(em, operands[1], space_of(instruction))
    value_form, value = em.read(operands[2], "b32" if parity else "b64")
    if not parity:
        value = f"({value} >> 63)"
    if form == "S" and value_form == "S":
        code, value = em.assign(code), em.assign(value)
        number = em.bind_home(operands[0], "S")
        em.line(
            f"return wait_for_phase(F, {code}, {value} & 1, {number}, {order!r}, {spurious}, "
            f"{instruction.line}, {em.following()})"
        )
        return
    if form == "S":
        code = f"full({code}, 32)"
    if value_form == "S":
        value = f"full({value}, 32)"
    code, value = em.assign(code), em.assign(f"{value} & 1")
    number = em.bind_home(operands[0], "V")
    em.line(
        f"return wait_for_phases(F, {code}, {value}, {number}, {order!r}, {spurious}, "
        f"{instruction.line}, {em.following()})"
    )


@runtime
def wait_for_phase(
    F: "Fragment", address: int, parity: int, register: int, order: str, spurious: bool, line: int,
    following: Any,
) -> Any:  # fmt: skip
    """try_wait and test_wait: true at once, or park until the phase completes."""
    cta = F.cta
    offset = cta.own(address)
    semantics, _, scope = order.partition(".")
    origin = F.origin(line) if F.observer is not None else None
    failed = spurious and F.machine.spurious_failure()
    if not failed and cta.mbarriers.test(
        offset, parity, semantics=semantics, scope=scope, origin=origin
    ):
        if register >= 0:
            F.registers[register] = True
        return following
    if failed or (not spurious and F.machine.returns_early()):
        cta.mbarriers.at(offset)
        if register >= 0:
            F.registers[register] = False
        F.next = following
        F.warp.yielded = True
        return None
    F.block(
        Wait("mbarrier", line, (offset, parity, semantics, scope), register, peek=True), following
    )
    cta.mbarrier_waiters.setdefault(offset, []).append(F)
    return None


@runtime
def wait_for_phases(
    F: "Fragment", addresses: Any, parities: Any, register: int, order: str, spurious: bool,
    line: int, following: Any,
) -> Any:  # fmt: skip
    """try_wait and test_wait with operands per lane: park if they are all the same."""
    cta = F.cta
    semantics, _, scope = order.partition(".")
    lanes = lane_list(F.mask)
    wanted = {(cta.own(int(addresses[lane])), int(parities[lane])) for lane in lanes}
    failed = spurious and F.machine.spurious_failure()
    done = 0
    for lane in lanes if not failed else ():
        if cta.mbarriers.test(
            cta.own(int(addresses[lane])), int(parities[lane]), semantics=semantics, scope=scope,
            origin=_lane(F, lane, line),
        ):  # fmt: skip
            done |= 1 << lane
    if done or failed or len(wanted) > 1 or (not spurious and F.machine.returns_early()):
        if register >= 0:
            F.registers[register] = done
        if done == F.mask:
            return following
        F.next = following
        F.warp.yielded = True
        return None
    ((offset, parity),) = wanted
    F.block(
        Wait(
            "mbarrier", line, (offset, parity, semantics, scope), register, peek=True, varies=True
        ),
        following,
    )
    cta.mbarrier_waiters.setdefault(offset, []).append(F)
    return None


def _pending_count(em: Emitter, instruction: Instruction) -> None:
    form, code = em.read(instruction.operands[1], "b64")
    if form == "S":
        em.write(instruction.operands[0], "b32", "S", f"pending_of({code})")
    else:
        code = f"np.array([pending_of(int(x)) for x in {code}], U4)"
        em.write(instruction.operands[0], "b32", "V", code)


@runtime
def pending_of(state: int) -> int:
    """mbarrier.pending_count of one token."""
    return pending_count(state)
