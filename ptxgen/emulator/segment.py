"""Writing a segment: micro-operations from one position to the next branch, label or wait.

Elementwise operations only touch registers, so they are evaluated when something needs them, and
then together with all others of the same operation that are ready: an epilogue of 128 multiplies
and 64 conversions becomes two numpy calls.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from ptxgen.emulator.emitter import Emitter
from ptxgen.emulator.micro import Compute, Elementwise
from ptxgen.emulator.tid import uniform_of_tid
from ptxgen.emulator.values import (
    TYPE_BITS,
    UNDEFINED,
    Code,
    Slab,
    Value,
    domain,
    numpy_type,
    register_of,
)
from ptxgen.ptx.module import Negated, Operand, Register, Sink

FUSE_FROM = 3
"""Fewer equal operations than this are emitted one by one."""


@dataclass(slots=True, eq=False)
class _Node:
    micro: Compute
    sources: list["_Node | None"]
    """Defining node of each source register; None where the value was there before."""
    value: Value | None = None
    initial: list[Value | None] = field(default_factory=list)
    waiting: int = 0
    users: list["_Node"] = field(default_factory=list)


class SegmentWriter:
    """Writes micro-operations into an emitter."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self._bound: dict[int, _Node] = {}
        """Register -> the pending or evaluated node that defines it now."""
        self._ready: dict[Elementwise, list[_Node]] = {}

    def add(self, micros: Sequence[Compute]) -> None:
        """Take the elementwise operations of one instruction, which all read before one writes;
        they are written once they are needed."""
        nodes = [self._node(m) for m in micros if not isinstance(m.destination, Sink)]
        for node in nodes:
            destination = node.micro.destination
            assert isinstance(destination, Register)
            self._bound[self.emitter.flow.number[destination.name]] = node
            if not node.waiting:
                self._ready.setdefault(node.micro.operation, []).append(node)

    def _node(self, micro: Compute) -> _Node:
        number_of = self.emitter.flow.number
        sources: list[_Node | None] = []
        initial: list[Value | None] = []
        node = _Node(micro, sources)
        for operand in micro.sources:
            register = register_of(operand)
            number = None if register is None else number_of.get(register.name)
            if number is None:
                sources.append(None)
                initial.append(None)
                continue
            source = self._bound.get(number)
            sources.append(source)
            initial.append(self._initial(number) if source is None else None)
            if source is not None and source.value is None:
                source.users.append(node)
                node.waiting += 1
        node.initial = initial
        return node

    def settle(self, registers: Sequence[int]) -> None:
        """Evaluate what some registers wait for, and bind them in the emitter."""
        env = self.emitter.env
        for number in registers:
            node = self._bound.get(number)
            if node is not None:
                self._evaluate(node)
                assert node.value is not None
                env[number] = node.value
                self.emitter.dirty.add(number)
                del self._bound[number]

    def settle_all(self, live: int) -> None:
        """Settle all registers in a set."""
        self.settle([n for n in self._bound if live >> n & 1])

    def forget(self, registers: Sequence[int]) -> None:
        """An effect is about to overwrite these registers."""
        for number in registers:
            self._bound.pop(number, None)

    def _initial(self, number: int) -> Value:
        value = self.emitter.lookup(number)
        if value is None or value.form == UNDEFINED:
            value = self.emitter.undefined(number)
        return value

    def _evaluate(self, node: _Node) -> None:
        while node.value is None:
            pending = node
            while pending.waiting:
                pending = next(s for s in pending.sources if s is not None and s.value is None)
            self._write_group(pending.micro.operation)

    def _write_group(self, operation: Elementwise) -> None:
        group = self._ready.pop(operation)
        vectors: dict[tuple[int, ...], list[_Node]] = {}
        for node in group:
            values = self._values(node)
            if self._write_special(node, values):
                continue
            sources = node.micro.sources
            if all(self._form(values[i], sources[i]) == "S" for i in _used(operation)):
                self._write_one(node, values)
                continue
            slabs = tuple(0 if v is None or v.slab is None else id(v.slab) for v in values)
            vectors.setdefault(slabs, []).append(node)
        for nodes in vectors.values():
            if (
                len(nodes) < FUSE_FROM
                or operation.out == "pred"
                or "pred" in operation.ins
                or self._are_equal(nodes)
            ):
                for node in nodes:
                    self._write_one(node, self._values(node))
            else:
                self._write_fused(operation, nodes)
        for node in group:
            for user in node.users:
                user.waiting -= 1
                if not user.waiting:
                    self._ready.setdefault(user.micro.operation, []).append(user)

    def _are_equal(self, nodes: list[_Node]) -> bool:
        """Whether all nodes have the same operands: gathered, these would be one row."""
        first, values = nodes[0].micro.sources, self._values(nodes[0])
        return all(
            y is x and (x is not None or operand == others)
            for n in nodes[1:]
            for x, y, operand, others in zip(
                values, self._values(n), first, n.micro.sources, strict=True
            )
        )

    def _values(self, node: _Node) -> list[Value | None]:
        return [
            initial if source is None else source.value
            for source, initial in zip(node.sources, node.initial, strict=True)
        ]

    def _form(self, value: Value | None, operand: Operand) -> str:
        return self.emitter.read(operand, "b32")[0] if value is None else value.form

    def _write_special(self, node: _Node, values: list[Value | None]) -> bool:
        """Moves alias; some functions of %tid.x are uniform."""
        operation = node.micro.operation
        emitter = self.emitter
        operand = node.micro.sources[0]
        if operation.vector == "{0}" and operation.out == operation.ins[0]:
            value = values[0]
            if value is not None and not isinstance(operand, Negated):
                destination = node.micro.destination
                assert isinstance(destination, Register)
                if emitter.register_bits(destination.name) == self._bits(operand):
                    node.value = value
                    return True
            if isinstance(operand, Register) and operand.name == "%tid.x" and emitter.tid_is_linear:
                form, code = emitter.read(operand, "u32")
                node.value = Value(form, {"u": code}, tid=form == "V")
                return True
        found = uniform_of_tid(node.micro, values)
        if found is not None:
            emitter.ptx_line = node.micro.instruction.line
            form, code = found
            key = "p" if operation.out == "pred" else "u"
            node.value = Value(form, {key: emitter.assign(code)})
            return True
        return False

    def _bits(self, operand: Operand) -> int:
        return self.emitter.register_bits(operand.name) if isinstance(operand, Register) else 0

    def _write_one(self, node: _Node, values: list[Value | None]) -> None:
        emitter = self.emitter
        operation = node.micro.operation
        emitter.ptx_line = node.micro.instruction.line
        codes: list[Code] = []
        for value, operand, kind in zip(values, node.micro.sources, operation.ins, strict=True):
            codes.append(emitter.read_as(value, operand, kind))
        uniform = all(codes[i][0] == "S" for i in _used(operation))
        code = expression(emitter, operation, codes, uniform)
        node.value = self._result(node, "S" if uniform else "V", code)

    def _result(self, node: _Node, form: str, code: str) -> Value:
        destination = node.micro.destination
        assert isinstance(destination, Register)
        return self.emitter.make_value(destination.name, node.micro.operation.out, form, code)

    def _write_fused(self, operation: Elementwise, nodes: list[_Node]) -> None:
        emitter = self.emitter
        columns = list(zip(*(self._values(n) for n in nodes), strict=True))
        order = list(range(len(nodes)))
        for column in columns:
            if column[0] is not None and column[0].slab is not None:
                order.sort(key=lambda i: column[i].row)
                break
        nodes = [nodes[i] for i in order]
        emitter.ptx_line = min(n.micro.instruction.line for n in nodes)
        texts = []
        for position, kind in enumerate(operation.ins):
            operands = [n.micro.sources[position] for n in nodes]
            values = [self._values(n)[position] for n in nodes]
            texts.append(emitter.gather(values, operands, kind))
        code = operation.vector.format(*texts)
        key = domain(operation.out)
        destination = nodes[0].micro.destination
        assert isinstance(destination, Register)
        bits = emitter.register_bits(destination.name)
        if TYPE_BITS[operation.out] < bits:
            code = f"({code}).astype({'I' if key == 's' else 'U'}{bits // 8})"
            key = "s" if key == "s" else "u"
        name = emitter.name()
        emitter.line(f"{name} = {code}")
        slab = Slab({key: name})
        for row, node in enumerate(nodes):
            node.value = Value("V", {}, slab, row)


_TWO_OPERANDS = re.compile(r"\{\d\} [-+*&|^] \{\d\}")


@lru_cache(maxsize=4096)
def _used(operation: Elementwise) -> tuple[int, ...]:
    """Positions of the operands that matter: a constant selector may pick from one of them."""
    return tuple(i for i in range(len(operation.ins)) if f"{{{i}}}" in operation.vector)


def compute_now(emitter: Emitter, micros: Sequence[Compute]) -> None:
    """Write the elementwise operations of one instruction at once, under the emitter's guard."""
    found = [_computed(emitter, m) for m in micros if not isinstance(m.destination, Sink)]
    for number, value in found:
        emitter.store_value(number, value)


def _computed(emitter: Emitter, micro: Compute) -> tuple[int, Value]:
    assert isinstance(micro.destination, Register)
    operation = micro.operation
    codes = [emitter.read(o, k) for o, k in zip(micro.sources, operation.ins, strict=True)]
    uniform = all(codes[i][0] == "S" for i in _used(operation))
    code = expression(emitter, operation, codes, uniform)
    value = emitter.make_value(micro.destination.name, operation.out, "S" if uniform else "V", code)
    return emitter.flow.number[micro.destination.name], value


def expression(
    emitter: Emitter, operation: Elementwise, codes: Sequence[Code], uniform: bool
) -> str:
    """The Python expression of an operation on operands that were read."""
    texts = []
    # a Python number beside an array takes its type; two of them would make a third type
    typed = not uniform and _TWO_OPERANDS.fullmatch(operation.vector) is None
    for (form, code), kind in zip(codes, operation.ins, strict=True):
        if kind == "pred" and not uniform:
            mask = emitter.spread(code, "pred") if form == "S" else code
            texts.append(mask if operation.out == "pred" else f"lanes({mask})")
        elif typed and form == "S" and domain(kind) in "us":
            texts.append(f"{numpy_type(kind)}({code})")
        else:
            texts.append(code)
    return (operation.scalar if uniform else operation.vector).format(*texts)
