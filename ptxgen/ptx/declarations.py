"""Declarations of variables, parameters and registers.

Source: PTX ISA 9.0, State Spaces, Types, and Variables.
"""

from dataclasses import dataclass, replace

from ptxgen.ptx.constants import count, integer
from ptxgen.ptx.initialisers import initialised
from ptxgen.ptx.lexer import IDENTIFIER_STARTS, Cursor
from ptxgen.ptx.module import TYPE_BYTES, Parameter, Variable
from ptxgen.ptx.scopes import Names

SPACES = (".global", ".shared", ".local", ".const", ".param")
LINKAGES = (".extern", ".visible", ".weak", ".common")
MAX_BYTES = 1 << 48
"""Largest variable."""
MAX_VECTOR_RANGE = 1 << 12
"""Registers of a range of vector registers."""
_LANES = {".v2": 2, ".v4": 4, ".v8": 8}


@dataclass(slots=True)
class _Kind:
    """What stands before the name."""

    type: str = ""
    align: int = 0
    lanes: int = 1
    pointer_space: str = ""
    pointer_align: int = 0
    shared_space: str = ""


def registers(cursor: Cursor, names: Names) -> None:
    """Pass what follows `.reg`, up to its semicolon.

    Raises: PtxSyntaxError.
    """
    kind = _kind(cursor)
    while True:
        name = cursor.identifier("a register name")
        if cursor.accept("<"):
            at = cursor.position
            total = count(cursor, "a register count")
            cursor.expect(">", "after a register count")
            if kind.lanes == 1:
                names.register_range(name, max(total, 0), kind.type, cursor)
            elif total <= MAX_VECTOR_RANGE:
                for index in range(total):
                    names.register(f"{name}{index}", kind.type, kind.lanes, cursor)
            else:
                raise cursor.error(f"expected at most {MAX_VECTOR_RANGE} vector registers", at)
        else:
            names.register(name, kind.type, kind.lanes, cursor)
        if cursor.accept(";"):
            return
        cursor.expect(",", "or ';' after a register")


def variables(cursor: Cursor, linkage: str = "") -> list[Variable]:
    """Pass `.SPACE` and the variables that it declares, up to the semicolon.

    Raises: PtxSyntaxError.
    """
    space, _, sub_space = cursor.take()[1:].partition("::")
    kind = _kind(cursor)
    kind.shared_space = kind.shared_space or sub_space
    found = []
    while True:
        line = cursor.line()
        name = cursor.identifier("a variable name")
        total = 1
        if cursor.accept("<"):
            total = count(cursor, "a count")
            cursor.expect(">", "after a count")
            if not 0 <= total <= MAX_VECTOR_RANGE:
                raise cursor.error(f"expected at most {MAX_VECTOR_RANGE} variables")
        dims = _dims(cursor)
        element = TYPE_BYTES[kind.type] * kind.lanes
        variable = Variable(
            name, space, kind.type, kind.align or element, kind.lanes, dims, line, linkage,
            shared_space=kind.shared_space,
        )  # fmt: skip
        if variable.nbytes > MAX_BYTES:
            raise cursor.error(f"expected a variable of at most {MAX_BYTES} bytes")
        if cursor.accept("="):
            variable = initialised(cursor, variable)
        if total == 1:
            found.append(variable)
        else:
            found += [replace(variable, name=f"{name}{index}") for index in range(total)]
        if cursor.accept(";"):
            return found
        cursor.expect(",", "or ';' after a variable")


def parameters(cursor: Cursor) -> tuple[Parameter, ...]:
    """Pass a parenthesised parameter list.

    Raises: PtxSyntaxError.
    """
    cursor.expect("(", "before parameters")
    found: list[Parameter] = []
    while not cursor.accept(")"):
        if found:
            cursor.expect(",", "or ')' after a parameter")
        is_register = cursor.accept(".reg")
        if not is_register:
            cursor.expect(".param", "or '.reg' before a parameter")
        kind = _kind(cursor)
        name = cursor.identifier("a parameter name")
        if cursor.accept("<"):
            raise cursor.error("expected one parameter, not a range")
        dims = _dims(cursor)
        nbytes = TYPE_BYTES[kind.type] * kind.lanes
        align = kind.align or nbytes
        for dim in dims:
            nbytes *= dim
        if nbytes > MAX_BYTES:
            raise cursor.error(f"expected a parameter of at most {MAX_BYTES} bytes")
        found.append(
            Parameter(
                name, kind.type, nbytes, align, bool(dims), is_register,
                kind.pointer_space, kind.pointer_align,
            )
        )  # fmt: skip
    return tuple(found)


def skip_attribute(cursor: Cursor) -> None:
    """Pass the parenthesised part of `.attribute(...)`.

    Raises: PtxSyntaxError.
    """
    cursor.expect("(", "after '.attribute'")
    depth = 1
    while depth:
        word = cursor.take()
        if not word or word in ";{}":
            raise cursor.error("expected ')' to end '.attribute'")
        depth += (word == "(") - (word == ")")


def _kind(cursor: Cursor) -> _Kind:
    """Pass alignment, vector, attribute and type, in any order.

    Raises: PtxSyntaxError.
    """
    kind = _Kind()
    while True:
        word = cursor.word
        if word == ".align":
            cursor.take()
            at = cursor.position
            kind.align = integer(cursor, "an alignment")
            if kind.align <= 0 or kind.align & (kind.align - 1):
                raise cursor.error("expected a power of two as alignment", at)
        elif word in _LANES:
            cursor.take()
            kind.lanes = _LANES[word]
        elif word == ".attribute":
            cursor.take()
            skip_attribute(cursor)
        elif word == ".ptr":
            cursor.take()
            if cursor.word in SPACES:
                kind.pointer_space = cursor.take()[1:]
            if cursor.accept(".align"):
                kind.pointer_align = integer(cursor, "an alignment")
        elif word[:1] == "." and word[1:] in TYPE_BYTES:
            if kind.type:
                raise cursor.error("expected one type")
            cursor.take()
            kind.type = word[1:]
        elif word[:1] in IDENTIFIER_STARTS and word != "%":
            if not kind.type:
                raise cursor.error("expected a type before the name")
            return kind
        else:
            raise cursor.error("expected a type or a name in a declaration")


def _dims(cursor: Cursor) -> tuple[int, ...]:
    dims: list[int] = []
    while cursor.accept("["):
        at = cursor.position
        if not dims and cursor.accept("]"):
            dims.append(0)
            continue
        dims.append(integer(cursor, "an array size"))
        if not 0 <= dims[-1] <= MAX_BYTES or len(dims) > 8:
            raise cursor.error("expected an array size that is not negative, up to 8 of them", at)
        cursor.expect("]", "after an array size")
    return tuple(dims)
