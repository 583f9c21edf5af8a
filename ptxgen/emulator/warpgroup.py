"""Warpgroups: wgmma is executed once, when the fourth warp has issued it."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxgen.emulator.fragment import Accumulator, Wait
from ptxgen.emulator.memory import POISON
from ptxgen.emulator.observer import (
    Access,
    AccessKind,
    AsyncOperation,
    Origin,
    Product,
    Proxy,
    Space,
)
from ptxgen.emulator.pending import Pending
from ptxgen.emulator.runtime import runtime
from ptxgen.emulator.wgmma import Wgmma, accumulator_values, execute_wgmma, wgmma_reads
from ptxgen.errors import EmulationError

if TYPE_CHECKING:
    from ptxgen.emulator.cta import Cta
    from ptxgen.emulator.fragment import Fragment
    from ptxgen.emulator.warp import Warp

_POISON = np.full((256, 32), POISON * 0x01010101, np.uint32)
_POISON.flags.writeable = False
"""What the accumulators of a wgmma in flight hold: NaN."""


@dataclass(slots=True, eq=False)
class WgmmaOperation:
    """One wgmma.mma_async of a warpgroup."""

    instruction: Wgmma
    line: int
    a: int
    """Descriptor; unused where A is in registers."""
    b: int
    accumulate: bool
    a_parts: list[Any] = field(default_factory=lambda: [None] * 4)
    metadata: list[Any] = field(default_factory=lambda: [None] * 4)
    """Of each warp, of a sparse operation."""
    inputs: list[Any] = field(default_factory=lambda: [None] * 4)
    """Of each warp: its accumulator registers, or the operation that computes them."""
    holders: list[Accumulator | None] = field(default_factory=lambda: [None] * 4)
    arrived: int = 0
    result: Any = None
    """Accumulator registers of the warpgroup, (n, 128)."""
    pending: Pending | None = None

    @property
    def done(self) -> bool:
        """Whether the result is there."""
        return self.result is not None


class Warpgroup:
    """Four consecutive warps."""

    def __init__(self, cta: "Cta", warps: "list[Warp]") -> None:
        self.cta = cta
        self.warps = warps
        self._operations: dict[int, WgmmaOperation] = {}
        """Not issued by all four warps yet, by number in order of issue."""
        for position, warp in enumerate(warps):
            warp.wgmma = WgmmaQueue(self, position)

    def issue(
        self, F: "Fragment", queue: "WgmmaQueue", instruction: Wgmma, a: Any, b: int,
        accumulate: bool, inputs: Any, metadata: Any, line: int,
    ) -> Accumulator:  # fmt: skip
        """One warp issues; the fourth one puts the operation in flight.

        Raises: EmulationError if the warps do not issue the same operation.
        """
        number = queue.issued
        queue.issued += 1
        operation = self._operations.get(number)
        in_registers = instruction.a_in_registers
        if operation is None:
            operation = WgmmaOperation(instruction, line, 0 if in_registers else a, b, accumulate)
            self._operations[number] = operation
        elif (
            operation.instruction != instruction
            or operation.b != b
            or (not in_registers and operation.a != a)
            or operation.accumulate != accumulate
        ):
            raise EmulationError(
                "the four warps of a warpgroup must execute the same wgmma with the same "
                f"descriptors; warp {self.warps[0].index} group issued line {operation.line}"
            )
        position = queue.position
        operation.metadata[position] = metadata
        if in_registers:
            operation.a_parts[position] = a
        if accumulate:
            if inputs is None:
                F.machine.undefined_register(F, "accumulators", line)
                inputs = _POISON[: instruction.accumulator_registers]
            if isinstance(inputs, Accumulator):
                previous = inputs.operation
                if previous is not None and previous.holders[position] is not inputs:
                    previous = None
                inputs = previous if previous is not None else inputs.array
            operation.inputs[position] = inputs
        holder = Accumulator(_POISON[: instruction.accumulator_registers], operation)
        operation.holders[position] = holder
        operation.arrived += 1
        queue.open.append(operation)
        if F.observer is not None:
            F.observer.on_wgmma(F.origin(line))
        if operation.arrived == 4:
            del self._operations[number]
            self._launch(F, operation)
        return holder

    def _launch(self, F: "Fragment", operation: WgmmaOperation) -> None:
        machine = self.cta.machine
        previous = operation.inputs[0]
        after = previous.pending if isinstance(previous, WgmmaOperation) else None
        described = None
        origin = F.origin(operation.line)
        if machine.observer is not None:
            a = None if operation.instruction.a_in_registers else operation.a
            pieces = wgmma_reads(operation.instruction, a, operation.b, self.cta.smem)
            reads = Access(
                AccessKind.READ, Proxy.ASYNC, Space.SHARED, self.cta.index, pieces, 16, origin
            )
            described = AsyncOperation("wgmma", origin, (reads,), group="wgmma")

        def finish() -> None:
            before = self._accumulators(operation)
            operation.result = execute_wgmma(
                operation.instruction, before, self._a(operation), operation.b, self.cta.smem,
                accumulate=operation.accumulate, exact=machine.options.exact,
                metadata=_metadata(operation),
            )  # fmt: skip
            if machine.observer is not None and machine.observer.wants_products:
                machine.observer.on_product(_product(operation, before, origin))

        operation.pending = Pending(
            "wgmma", origin, self.warps[0], [finish], [], described, after, tuple(self.warps)
        )
        machine.issue(operation.pending)

    def _accumulators(self, operation: WgmmaOperation) -> Any:
        inputs = operation.inputs
        rows = operation.instruction.accumulator_registers
        if not operation.accumulate:
            return _POISON[:rows, :0]
        first = inputs[0]
        if isinstance(first, WgmmaOperation) and all(i is first for i in inputs):
            return first.result
        parts = []
        for position, part in enumerate(inputs):
            if isinstance(part, WgmmaOperation):
                part = part.result[:, 32 * position : 32 * position + 32]
            parts.append(np.broadcast_to(part, (rows, 32)))
        return np.concatenate(parts, axis=1)

    def _a(self, operation: WgmmaOperation) -> Any:
        if not operation.instruction.a_in_registers:
            return operation.a
        return np.concatenate([np.broadcast_to(p, (4, 32)) for p in operation.a_parts], axis=1)


def _metadata(operation: WgmmaOperation) -> Any:
    if not operation.instruction.sparse:
        return None
    parts = [np.broadcast_to(np.asarray(p, np.uint32), (32,)) for p in operation.metadata]
    return np.concatenate(parts)


def _product(operation: WgmmaOperation, before: Any, origin: Origin) -> Product:
    instruction = operation.instruction
    return Product(
        origin, instruction.k, accumulator_values(instruction, operation.result),
        accumulator_values(instruction, before) if operation.accumulate else None,
    )  # fmt: skip


class WgmmaQueue:
    """What one warp has issued and not waited for."""

    def __init__(self, group: Warpgroup, position: int) -> None:
        self.group = group
        self.position = position
        self.issued = 0
        self.open: list[WgmmaOperation] = []
        """Not committed yet."""
        self.committed: list[list[WgmmaOperation]] = []
        self.unfenced = -1
        """Registers touched since the last wgmma.fence; all before the first. Observed runs only,
        as the next two."""
        self.open_registers: list[tuple[int, int]] = []
        """(accumulators, A registers) of the operations in `open`."""
        self.committed_registers: list[list[tuple[int, int]]] = []

    def in_flight(self) -> tuple[int, int]:
        """Accumulators, and all registers, of operations that were not waited for."""
        accumulators = everything = 0
        for group in (self.open_registers, *self.committed_registers):
            for d, a in group:
                accumulators |= d
                everything |= d | a
        return accumulators, everything

    def outstanding(self, allowed: int) -> list[WgmmaOperation]:
        """Operations of all but the `allowed` most recent groups."""
        count = len(self.committed) - allowed
        return [o for g in self.committed[: max(count, 0)] for o in g]

    def retire(self, allowed: int) -> None:
        """Hand the results of finished groups to the registers."""
        count = max(len(self.committed) - allowed, 0)
        first = 32 * self.position
        for group in self.committed[:count]:
            for operation in group:
                holder = operation.holders[self.position]
                assert holder is not None
                holder.array = operation.result[:, first : first + 32]
        del self.committed[:count]
        del self.committed_registers[:count]


@runtime
def issue_wgmma(
    F: "Fragment", instruction: Wgmma, a: Any, b: int, accumulate: bool, inputs: Any,
    metadata: Any, line: int,
) -> Accumulator:  # fmt: skip
    """wgmma.mma_async of one warp: its accumulators from now on."""
    queue = F.warp.wgmma
    if len(queue.group.warps) != 4:
        raise EmulationError(
            "wgmma needs whole warpgroups of four warps; the CTA has "
            f"{len(F.cta.warps)} warps, so warp {F.warp.index} is in none"
        )
    return queue.group.issue(F, queue, instruction, a, b, bool(accumulate), inputs, metadata, line)


@runtime
def commit_wgmma(F: "Fragment", line: int) -> None:
    """wgmma.commit_group."""
    queue = F.warp.wgmma
    operations, queue.open = queue.open, []
    queue.committed.append(operations)
    queue.committed_registers.append(queue.open_registers)
    queue.open_registers = []
    if F.observer is not None:
        described = [
            o.pending.operation
            for o in operations
            if o.pending is not None and o.pending.operation is not None
        ]
        F.observer.on_commit(F.origin(line), "wgmma", described)


@runtime
def wait_wgmma(F: "Fragment", allowed: int, line: int, following: Any) -> Any:
    """wgmma.wait_group: wait, then the accumulators may be read."""
    queue = F.warp.wgmma

    def passed() -> bool:
        if any(not o.done for o in queue.outstanding(allowed)):
            return False
        queue.retire(allowed)
        if F.observer is not None:
            F.observer.on_wait_group(F.origin(line), "wgmma", allowed, False)
        return True

    if passed():
        return following
    F.block(Wait("wgmma", line, passed), following)
    return None
