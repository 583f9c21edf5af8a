"""Initial values of variables.

Source: PTX ISA 9.0, Initializers.
"""

import struct
from dataclasses import replace

from ptxgen.ptx.constants import constant, integer, starts_constant
from ptxgen.ptx.lexer import Cursor
from ptxgen.ptx.module import TYPE_BYTES, Relocation, Variable

MAX_INITIAL_BYTES = 64 << 20
"""Largest variable that may have an initialiser."""


def initialised(cursor: Cursor, variable: Variable) -> Variable:
    """Pass an initialiser. What it leaves out is zero.

    Raises: PtxSyntaxError.
    """
    at = cursor.position
    data = bytearray()
    relocations: list[Relocation] = []
    element = TYPE_BYTES[variable.type]
    shape = (*variable.dims, variable.vector) if variable.vector > 1 else variable.dims
    limit = MAX_INITIAL_BYTES if variable.dims[:1] == (0,) else variable.nbytes
    if limit > MAX_INITIAL_BYTES:
        raise cursor.error(f"expected at most {MAX_INITIAL_BYTES} initialised bytes", at)
    sizes = [element]
    for dim in reversed(shape[1:]):
        sizes.append(sizes[-1] * dim)
    sizes.reverse()  # bytes of one item at each brace depth
    depth = 0
    ends = [limit]
    while True:
        while cursor.accept("{"):
            if depth >= len(shape):
                raise cursor.error(f"expected at most {len(shape)} nested braces", at)
            if depth:
                ends.append(min(ends[-1], len(data) + sizes[depth - 1]))
            depth += 1
        if depth == 0 or cursor.word != "}":
            if len(data) + element > ends[-1]:
                raise cursor.error(f"expected at most {ends[-1]} bytes of initial values", at)
            _value(cursor, variable.type, data, relocations)
        while depth and cursor.accept("}"):
            depth -= 1
            if depth:
                data.extend(bytes(max(0, ends.pop() - len(data))))
        if depth == 0:
            break
        cursor.expect(",", "or '}' in an initialiser")
    dims = variable.dims
    if dims[:1] == (0,):
        dims = (-(-len(data) // sizes[0]), *dims[1:])
    nbytes = replace(variable, dims=dims).nbytes
    data.extend(bytes(nbytes - len(data)))
    return replace(variable, dims=dims, initial=bytes(data), relocations=tuple(relocations))


def _value(cursor: Cursor, kind: str, data: bytearray, relocations: list[Relocation]) -> None:
    """Pass one initial value and append its bytes."""
    nbytes = TYPE_BYTES[kind]
    word = cursor.word
    if starts_constant(word):
        at = cursor.position
        value = constant(cursor)
        if not cursor.accept("("):
            data += _encode(cursor, value.value, kind, at)
            return
        mask = int(value.value)
        if mask <= 0 or (mask & -mask).bit_length() % 8 != 1:
            raise cursor.error("expected a mask of whole bytes", at)
        shift = (mask & -mask).bit_length() - 1
        symbol, addend, generic = _address(cursor)
        cursor.expect(")", "after a masked address")
        relocations.append(Relocation(len(data), nbytes, symbol, addend, generic, shift))
    else:
        symbol, addend, generic = _address(cursor)
        relocations.append(Relocation(len(data), nbytes, symbol, addend, generic))
    data += bytes(nbytes)


def _address(cursor: Cursor) -> tuple[str, int, bool]:
    """Pass `symbol`, `generic(symbol)`, either with an addend."""
    name = cursor.identifier("a value, a symbol or generic(symbol)")
    generic = name == "generic" and cursor.accept("(")
    if generic:
        name = cursor.identifier("a symbol")
        cursor.expect(")", "after generic(symbol")
    addend = integer(cursor, "an offset") if cursor.word in ("+", "-") else 0
    return name, addend, generic


def _encode(cursor: Cursor, value: int | float, kind: str, at: int) -> bytes:
    nbytes = TYPE_BYTES[kind]
    if kind in ("f32", "f64"):
        try:
            return struct.pack("<f" if kind == "f32" else "<d", value)
        except OverflowError:
            raise cursor.error(f"expected a value that fits {kind}", at) from None
    if isinstance(value, float):
        raise cursor.error(f"expected an integer for .{kind}", at)
    return (value & ((1 << 8 * nbytes) - 1)).to_bytes(nbytes, "little")
