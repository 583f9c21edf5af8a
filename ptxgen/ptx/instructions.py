"""Instructions and their operands."""

import re
from collections.abc import Mapping

from ptxgen.ptx.constants import constant, integer, starts_constant
from ptxgen.ptx.lexer import IDENTIFIER_STARTS, Cursor
from ptxgen.ptx.module import (
    TYPE_BYTES,
    Address,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Pair,
    Parameter,
    Register,
    Sink,
    Symbol,
    Variable,
    Vector,
)
from ptxgen.ptx.scopes import Names

MAX_OPERANDS = 64
MAX_VECTOR_ITEMS = 1024

_OPCODE = re.compile(r"[a-z][a-z0-9_]*(?:\.\w+(?:::\w+)*)*", re.ASCII)
_MODIFIER = re.compile(r"\.\w+(?:::\w+)*", re.ASCII)
_SINK = Sink()


class InstructionReader:
    """Reads the instructions of one function into `body`."""

    def __init__(self, cursor: Cursor, names: Names, globals_: Mapping[str, Variable]) -> None:
        self.cursor = cursor
        self.names = names
        self.body: list[Instruction] = []
        self.labels: dict[str, int] = {}
        """Label -> index into body."""
        self.variables: dict[str, Variable] = {}
        """Variables declared in the function."""
        self.prototypes: dict[str, tuple[tuple[Parameter, ...], tuple[Parameter, ...]]] = {}
        self.pragmas: list[tuple[str, int]] = []
        """(text, index into body)."""
        self.undeclared: dict[str, int] = {}
        """Name that means nothing in the function -> line of its first use. It may be a function
        that is declared later."""
        self._globals = globals_
        self._opcodes: dict[str, tuple[str, tuple[str, ...]]] = {}

    def close_scope(self) -> None:
        """Leave the innermost scope."""
        for name, line in self.names.close(self.body):
            self.undeclared.setdefault(name, line)

    def read(self) -> None:
        """Pass one instruction with its semicolon.

        Raises: PtxSyntaxError.
        """
        cursor, tokens, visible = self.cursor, self.cursor.tokens, self.names.visible
        line = cursor.line()
        guard = self._guard() if tokens[cursor.position] == "@" else None
        name, modifiers = self._opcode()
        operands: list[Operand] = []
        if name == "call":
            operands = self._call()
        elif tokens[cursor.position] != ";":
            while True:
                position = cursor.position
                operand = visible.get(tokens[position])
                if operand is not None and tokens[position + 1] in (",", ";"):
                    position += 1
                else:
                    operand = self._operand()
                    position = cursor.position
                operands.append(operand)
                separator = tokens[position]
                cursor.position = position + 1
                if separator == ";":
                    break
                if separator != "," or len(operands) >= MAX_OPERANDS:
                    raise cursor.error("expected ',' or ';' after an operand", position)
        else:
            cursor.position += 1
        self.body.append(Instruction(name, modifiers, tuple(operands), guard, line))

    def _guard(self) -> tuple[str, bool]:
        """Pass `@%p` or `@!%p`."""
        cursor = self.cursor
        cursor.take()
        negated = cursor.accept("!")
        return self._register("a predicate after '@'").name, negated

    def _register(self, what: str) -> Register:
        at = self.cursor.position
        register = self.names.find(self.cursor.identifier(what))
        if not isinstance(register, Register):
            raise self.cursor.error(f"expected {what}, a declared register", at)
        return register

    def _opcode(self) -> tuple[str, tuple[str, ...]]:
        """Pass an opcode. White space before a modifier is allowed, as in ptxas."""
        cursor = self.cursor
        word = cursor.word
        found = self._opcodes.get(word)
        if found is None:
            if not _OPCODE.fullmatch(word):
                raise cursor.error("expected an instruction")
            name, *modifiers = word.split(".")
            found = self._opcodes[word] = (name, tuple(modifiers))
        cursor.position += 1
        while cursor.word[:1] == ".":
            if not _MODIFIER.fullmatch(cursor.word):
                raise cursor.error("expected a modifier")
            found = (found[0], (*found[1], cursor.take()[1:]))
        return found

    def _operand(self) -> Operand:
        """Pass one operand of any kind."""
        cursor = self.cursor
        word = cursor.word
        if word == "[":
            return self._address()
        if word == "{":
            return self._vector()
        if word == "!" and cursor.tokens[cursor.position + 1][:1] in IDENTIFIER_STARTS:
            cursor.take()
            return Negated(self._register("a predicate after '!'"))
        if starts_constant(word) or word == "WARP_SZ":
            at = cursor.position
            found = constant(cursor)
            if cursor.position == at + 1:
                self.names.visible[word] = found
            return found
        return self._named()

    def _named(self) -> Operand:
        """Pass a register, a pair, a sink, or a symbol with an offset or index."""
        cursor = self.cursor
        at = cursor.position
        name = cursor.identifier("an operand")
        found: Operand | None = _SINK if name == "_" else self.names.find(name)
        if found is None:
            if name[0] == "%":
                raise cursor.error("expected a declared register", at)
            found = Symbol(name)
            self.names.pend(len(self.body), name)
        if cursor.word == "|" and isinstance(found, Register | Sink):
            cursor.take()
            second = _SINK if cursor.accept("_") else self._register("a second destination")
            return Pair(found, second)
        if isinstance(found, Symbol):
            if cursor.word in ("+", "-"):
                return Symbol(found.name, integer(cursor, "an offset"))
            if cursor.word == "[":
                return self._indexed(found, at)
        return found

    def _indexed(self, symbol: Symbol, at: int) -> Operand:
        """Pass `[2]` after an array: the element's address in a mov, else an access to it."""
        cursor = self.cursor
        variable = self.variables.get(symbol.name) or self._globals.get(symbol.name)
        if variable is None or not variable.dims:
            raise cursor.error("expected the name of an array before '['", at)
        cursor.take()
        offset = integer(cursor, "an index") * TYPE_BYTES[variable.type] * variable.vector
        cursor.expect("]", "after an index")
        opcode = cursor.tokens[at - 2]
        if opcode.startswith("mov."):
            return Symbol(symbol.name, offset)
        return Address(symbol, offset)

    def _vector(self) -> Vector:
        """Pass `{a, b}`. Vectors may nest once, as the operands of some matrix forms do."""
        cursor, tokens, visible = self.cursor, self.cursor.tokens, self.names.visible
        cursor.take()
        items: list[Operand] = []
        if cursor.accept("}"):
            return Vector(())
        while True:
            position = cursor.position
            item = visible.get(tokens[position])
            if item is not None and tokens[position + 1] in (",", "}"):
                position += 1
            else:
                if tokens[position] in ("{", "["):
                    raise cursor.error("expected a register or constant in a vector")
                item = self._operand()
                position = cursor.position
            items.append(item)
            separator = tokens[position]
            cursor.position = position + 1
            if separator == "}":
                return Vector(tuple(items))
            if separator != "," or len(items) >= MAX_VECTOR_ITEMS:
                raise cursor.error("expected ',' or '}' in a vector", position)

    def _address(self) -> Address:
        """Pass `[base+offset]` or `[base, {coordinates}]`."""
        cursor = self.cursor
        cursor.take()
        at = cursor.position
        base: Operand
        offset = 0
        if starts_constant(cursor.word):
            base = Immediate(integer(cursor, "an address"))
        else:
            base = self._named()
            if isinstance(base, Symbol):
                base, offset = Symbol(base.name), base.offset
            elif isinstance(base, Register) and cursor.word == "+":
                cursor.take()
                offset = integer(cursor, "an offset in bytes after '+'")
        if not isinstance(base, Register | Symbol | Immediate):
            raise cursor.error("expected a register, a symbol or a number as address", at)
        coordinates = None
        if cursor.accept(","):
            if cursor.word != "{":
                raise cursor.error("expected coordinates '{...}' after ','")
            coordinates = self._vector()
        cursor.expect("]", "after an address; an offset is written +8 or +-8")
        return Address(base, offset, coordinates)

    def _call(self) -> list[Operand]:
        """Pass what follows a call opcode: [(returns),] callee [, (arguments)] [, prototype];"""
        cursor = self.cursor
        returns = Vector(())
        if cursor.word == "(":
            returns = self._list()
            cursor.expect(",", "after the return list")
        callee = self._named()
        if not isinstance(callee, Register | Symbol):
            raise cursor.error("expected a function or a register to call", cursor.position - 1)
        operands: list[Operand] = [returns, callee, Vector(())]
        if cursor.accept(","):
            if cursor.word == "(":
                operands[2] = self._list()
                if cursor.accept(","):
                    operands.append(self._named())
            else:
                operands.append(self._named())
        cursor.expect(";", "after a call")
        return operands

    def _list(self) -> Vector:
        """Pass `(a, b)`."""
        cursor = self.cursor
        cursor.take()
        items: list[Operand] = []
        if cursor.accept(")"):
            return Vector(())
        while True:
            items.append(self._operand())
            if cursor.accept(")"):
                return Vector(tuple(items))
            cursor.expect(",", "or ')' in an argument list")
