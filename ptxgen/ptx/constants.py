"""Literals and constant expressions of PTX, folded to one `Immediate`.

Integers are 64 bits wide, signed unless a `U`, a value from 2^63 up or a `(.u64)` says otherwise.
Source: PTX ISA 9.0, Constants.
"""

import operator
import re
import struct
from collections.abc import Callable

from ptxgen.ptx.lexer import Cursor
from ptxgen.ptx.module import Immediate

MAX_DEPTH = 64
"""Nested parentheses, unary operators and conditionals in one expression."""
MAX_LITERAL_CHARS = 80

_INTEGER = re.compile(r"(0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9]\d*)(U?)", re.ASCII)
_FLOAT = re.compile(r"\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+", re.ASCII)
_FLOAT_BITS = re.compile(r"0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}", re.ASCII)
_MASK = (1 << 64) - 1

_PRECEDENCE: dict[str, int] = {
    "||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6,
    "<": 7, ">": 7, "<=": 7, ">=": 7, "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,
}  # fmt: skip
_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "||": lambda a, b: int(bool(a) or bool(b)),
    "&&": lambda a, b: int(bool(a) and bool(b)),
    "|": operator.or_, "^": operator.xor, "&": operator.and_,
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt,
    "<=": operator.le, ">=": operator.ge,
    "<<": lambda a, b: a << min(b & _MASK, 64),
    ">>": lambda a, b: a >> min(b & _MASK, 64),
    "+": operator.add, "-": operator.sub, "*": operator.mul,
    "/": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "%": lambda a, b: abs(a) % abs(b) * (1 if a >= 0 else -1),
}  # fmt: skip
_COMPARISONS = frozenset(("==", "!=", "<", ">", "<=", ">=", "||", "&&"))
_Integer = tuple[int, bool]
"""(value, it is unsigned)"""


def starts_constant(word: str) -> bool:
    """Whether a constant expression can begin with `word`."""
    return word[:1].isdigit() or word in ("-", "~", "(", "!", "+")


def constant(cursor: Cursor) -> Immediate:
    """Pass one literal or constant expression.

    Raises: PtxSyntaxError.
    """
    negative = cursor.word == "-"
    word = cursor.tokens[cursor.position + negative]
    real = _real(word)
    if real is not None:
        if negative and real.kind == "f32":
            raise cursor.error("expected a decimal or integer constant after '-'")
        cursor.position += 1 + negative
        return real_immediate(-float(real.value)) if negative else real
    return Immediate(_binary(cursor, 1, 0)[0])


def integer(cursor: Cursor, what: str) -> int:
    """Pass a constant expression that is an integer, named `what` in messages.

    Raises: PtxSyntaxError.
    """
    return _integer(cursor, what, 1)


def count(cursor: Cursor, what: str) -> int:
    """Pass the count of `%r<10>`, an expression without comparisons, as '>' ends it.

    Raises: PtxSyntaxError.
    """
    return _integer(cursor, what, _PRECEDENCE["+"])


def real_immediate(value: float) -> Immediate:
    """`value` as a 64-bit literal."""
    return Immediate(value, "f64", struct.unpack("<Q", struct.pack("<d", value))[0])


def _integer(cursor: Cursor, what: str, lowest: int) -> int:
    if not starts_constant(cursor.word):
        raise cursor.error(f"expected {what}")
    return _binary(cursor, lowest, 0)[0]


def _real(word: str) -> Immediate | None:
    if len(word) > MAX_LITERAL_CHARS:
        return None
    if _FLOAT_BITS.fullmatch(word):
        bits = int(word[2:], 16)
        if word[1] in "fF":
            return Immediate(struct.unpack("<f", struct.pack("<I", bits))[0], "f32", bits)
        return Immediate(struct.unpack("<d", struct.pack("<Q", bits))[0], "f64", bits)
    return real_immediate(float(word)) if _FLOAT.fullmatch(word) else None


def _wrap(value: int, unsigned: bool) -> _Integer:
    value &= _MASK
    return (value if unsigned or value < 1 << 63 else value - (1 << 64)), unsigned


def _binary(cursor: Cursor, lowest: int, depth: int) -> _Integer:
    """Pass an expression whose operators bind at least as tightly as `lowest`."""
    left, unsigned = _unary(cursor, depth)
    while (precedence := _PRECEDENCE.get(cursor.word, 0)) >= lowest:
        at = cursor.position
        symbol = cursor.take()
        right, right_unsigned = _binary(cursor, precedence + 1, depth + 1)
        if symbol in "/%" and right == 0:
            raise cursor.error("expected a divisor other than zero", at)
        if symbol not in ("<<", ">>"):
            unsigned = unsigned or right_unsigned
            left, right = _wrap(left, unsigned)[0], _wrap(right, unsigned)[0]
        left, unsigned = _wrap(
            int(_OPERATIONS[symbol](left, right)), unsigned and symbol not in _COMPARISONS
        )
    if lowest == 1 and cursor.accept("?"):
        yes = _binary(cursor, 1, depth + 1)
        cursor.expect(":", "in a conditional constant")
        no = _binary(cursor, 1, depth + 1)
        left, unsigned = yes if left else no
    return left, unsigned


def _unary(cursor: Cursor, depth: int) -> _Integer:
    if depth > MAX_DEPTH:
        raise cursor.error(f"expected at most {MAX_DEPTH} nested constants")
    at = cursor.position
    word = cursor.take()
    if word == "-":
        value, unsigned = _unary(cursor, depth + 1)
        return _wrap(-value, unsigned)
    if word == "+":
        return _unary(cursor, depth + 1)
    if word == "~":
        value, unsigned = _unary(cursor, depth + 1)
        return _wrap(~value, unsigned)
    if word == "!":
        return int(not _unary(cursor, depth + 1)[0]), False
    if word == "(":
        if cursor.word in (".s64", ".u64"):
            cast = cursor.take()
            cursor.expect(")", "after a cast")
            return _wrap(_unary(cursor, depth + 1)[0], cast == ".u64")
        inner = _binary(cursor, 1, depth + 1)
        cursor.expect(")", "in a constant expression")
        return inner
    if word == "WARP_SZ":
        return 32, False
    match = _INTEGER.fullmatch(word) if len(word) <= MAX_LITERAL_CHARS else None
    if match is None:
        raise cursor.error("expected an integer constant", at)
    digits = match[1]
    base = {"x": 16, "b": 2}.get(digits[1:2].lower(), 8 if digits[0] == "0" else 10)
    value = int(digits[2:] if base in (2, 16) else digits, base)
    if value > _MASK:
        raise cursor.error("expected a constant of at most 64 bits", at)
    return value, bool(match[2]) or value >= 1 << 63
