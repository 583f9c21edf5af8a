"""Comparisons and selection: setp, set, selp, slct."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ptxgen.emulator.lanes import bf16_to_f32
from ptxgen.emulator.micro import Compute, Elementwise, Micro, lowers, unknown
from ptxgen.emulator.op_integer import compute
from ptxgen.emulator.runtime import runtime
from ptxgen.ptx.module import Instruction, Pair

_COMPARE = {
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=",
    "hi": ">", "hs": ">=",
}  # fmt: skip
_UNORDERED = {"equ": "==", "neu": "!=", "ltu": "<", "leu": "<=", "gtu": ">", "geu": ">="}
_BOOLEANS = {"and": "&", "or": "|", "xor": "^"}
_ONES = {"f16": 0x3C00, "bf16": 0x3F80}
"""1.0 in the 16-bit types."""


def _comparison(
    instruction: Instruction, compare: str, kind: str, flushes: bool = False
) -> tuple[str, str, str]:
    """(type to read, array expression, scalar expression) of a comparison."""
    is_float = kind in ("f16", "bf16", "f32", "f64")
    read = kind
    left, right = "{0}", "{1}"
    if kind == "bf16":
        read = "b16"
        left, right = "widen_bf16({0})", "widen_bf16({1})"
    if flushes and kind == "f32":
        left, right = "flush({0})", "flush({1})"
    if kind[0] == "b" and kind != "bf16":
        read = "u" + kind[1:]
    if compare in _COMPARE:
        test = f"{left} {_COMPARE[compare]} {right}"
        if is_float and compare == "ne":
            ordered = f"({left} == {left}) & ({right} == {right})"
            return (
                read,
                f"({test}) & {ordered}",
                f"(({test}) and {left} == {left} and {right} == {right})",
            )
        return read, test, test
    if is_float and compare in _UNORDERED:
        test = f"{left} {_UNORDERED[compare]} {right}"
        nan = f"({left} != {left}) | ({right} != {right})"
        return read, f"({test}) | {nan}", f"(({test}) or {left} != {left} or {right} != {right})"
    if is_float and compare in ("num", "nan"):
        nan = f"({left} != {left}) | ({right} != {right})"
        scalar = f"({left} != {left} or {right} != {right})"
        return (read, nan, scalar) if compare == "nan" else (read, f"~({nan})", f"(not {scalar})")
    raise unknown(instruction, f"comparison .{compare} of .{kind}")


@lowers("setp")
def set_predicate(instruction: Instruction) -> list[Micro]:
    """setp, with an optional second result and boolean operand."""
    compare, *rest = instruction.modifiers
    kind = rest[-1] if rest else ""
    boolean = next((m for m in rest if m in _BOOLEANS), "")
    destination = instruction.operands[0]
    first = destination.first if isinstance(destination, Pair) else destination
    sources = instruction.operands[1:]
    micros: list[Micro] = []
    if kind in ("f16x2", "bf16x2"):
        if boolean or not isinstance(destination, Pair):
            raise unknown(instruction)
        for half, part in enumerate((destination.first, destination.second)):
            text = f"compare_halves({kind!r}, {compare!r}, {{0}}, {{1}}, {half}, {'ftz' in rest})"
            operation = Elementwise("pred", ("b32", "b32"), f"mask_of({text})", f"bool({text})")
            micros.append(Compute(instruction, operation, part, sources))
        return micros
    read, vector, scalar = _comparison(instruction, compare, kind, "ftz" in rest)
    for negate, target in ((False, first), (True, getattr(destination, "second", None))):
        if target is None:
            continue
        array = f"mask_of({vector})"
        plain = f"({scalar})"
        if negate:
            array, plain = f"({array} ^ FULL)", f"(not {plain})"
        ins: tuple[str, ...] = (read, read)
        if boolean:
            sign = _BOOLEANS[boolean]
            array, plain = f"{array} {sign} {{2}}", f"{plain} {sign} {{2}}"
            ins = (read, read, "pred")
        if len(sources) != len(ins):
            raise unknown(instruction, f"it must have {len(ins)} sources")
        micros.append(Compute(instruction, Elementwise("pred", ins, array, plain), target, sources))
    return micros


@lowers("set")
def set_register(instruction: Instruction) -> list[Micro]:
    """set: all ones (or 1.0) where a comparison holds."""
    compare, *rest = [m for m in instruction.modifiers if m != "ftz"]
    if len(rest) == 3 and rest[0] in _BOOLEANS and len(instruction.operands) == 4:
        return _set_with_boolean(instruction, compare, *rest)
    if len(rest) != 2:
        raise unknown(instruction)
    out, kind = rest
    flushes = "ftz" in instruction.modifiers
    if kind.endswith("x2"):
        if out not in ("f16x2", "bf16x2"):
            raise unknown(instruction)
        text = f"set_halves({kind!r}, {out!r}, {compare!r}, {{0}}, {{1}}, {flushes})"
        return compute(instruction, Elementwise("b32", ("b32", "b32"), text, f"int({text})"))
    read, vector, scalar = _comparison(instruction, compare, kind, flushes)
    if out in _ONES:
        one = _ONES[out]
        operation = Elementwise(
            "b16", (read, read), f"np.where({vector}, U2({one}), U2(0))",
            f"({one} if {scalar} else 0)",
        )  # fmt: skip
    elif out in ("u32", "s32"):
        operation = Elementwise(
            "u32", (read, read), f"np.where({vector}, U4(0xFFFFFFFF), U4(0))",
            f"(0xFFFFFFFF if {scalar} else 0)",
        )  # fmt: skip
    elif out == "f32":
        operation = Elementwise(
            "f32", (read, read), f"np.where({vector}, F4(1), F4(0))", f"(1.0 if {scalar} else 0.0)"
        )
    else:
        raise unknown(instruction)
    return compute(instruction, operation)


def _set_with_boolean(
    instruction: Instruction, compare: str, boolean: str, out: str, kind: str
) -> list[Micro]:
    """set whose comparison is combined with a predicate."""
    read, vector, scalar = _comparison(instruction, compare, kind, "ftz" in instruction.modifiers)
    one = {"u32": "0xFFFFFFFF", "s32": "0xFFFFFFFF", "f32": "0x3F800000"}.get(out)
    if one is None:
        raise unknown(instruction)
    sign = _BOOLEANS[boolean]
    operation = Elementwise(
        "b32", (read, read, "pred"),
        f"choose(({vector}) {sign} {{2}}, U4({one}), U4(0), U4)",
        f"({one} if ({scalar}) {sign} {{2}} else 0)",
    )  # fmt: skip
    return compute(instruction, operation)


@runtime
def compare_halves(kind: str, compare: str, a: Any, b: Any, half: int, flushes: bool) -> Any:
    """Whether the comparison holds of the lower (0) or upper (1) half of packed 16-bit floats."""
    x, y = (_half(kind, v, half, flushes) for v in (a, b))
    unordered = np.isnan(x) | np.isnan(y)
    if compare in ("num", "nan"):
        return unordered if compare == "nan" else ~unordered
    if compare in _UNORDERED:
        return _COMPARISONS[_UNORDERED[compare]](x, y) | unordered
    return _COMPARISONS[_COMPARE[compare]](x, y) & ~unordered


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal, ">": np.greater,
    ">=": np.greater_equal,
}  # fmt: skip


def _half(kind: str, bits: Any, half: int, flushes: bool) -> Any:
    words = (np.asarray(bits, np.uint32) >> 16 * half & 0xFFFF).astype(np.uint16)
    if kind == "bf16x2":
        return bf16_to_f32(words)
    values = words.view(np.float16).astype(np.float32)
    return np.where(np.abs(values) < 2.0**-14, 0.0, values) if flushes else values


@runtime
def set_halves(kind: str, out: str, compare: str, a: Any, b: Any, flushes: bool) -> Any:
    """1.0 in each half where the comparison holds."""
    low, high = (compare_halves(kind, compare, a, b, half, flushes) for half in (0, 1))
    one = np.uint32(_ONES[out[:-2]])
    return np.where(low, one, np.uint32(0)) | np.where(high, one << np.uint32(16), np.uint32(0))


@lowers("selp")
def select(instruction: Instruction) -> list[Micro]:
    """selp: a where the predicate holds, else b."""
    kind = instruction.modifiers[-1]
    plain = {"f32": "b32", "f64": "b64"}.get(kind, "b" + kind[1:])
    operation = Elementwise(
        plain, (plain, plain, "pred"), f"choose({{2}}, {{0}}, {{1}}, U{int(plain[1:]) // 8})",
        "({0} if {2} else {1})",
    )  # fmt: skip
    return compute(instruction, operation)


@lowers("slct")
def select_by_sign(instruction: Instruction) -> list[Micro]:
    """slct: a where c >= 0, else b."""
    kind, of = [m for m in instruction.modifiers if m != "ftz"]
    test = "flush({2})" if "ftz" in instruction.modifiers and of == "f32" else "{2}"
    plain = {"f32": "b32", "f64": "b64"}.get(kind, "b" + kind[1:])
    operation = Elementwise(
        plain, (plain, plain, of), f"choose({test} >= 0, {{0}}, {{1}}, U{int(plain[1:]) // 8})",
        f"({{0}} if {test} >= 0 else {{1}})",
    )  # fmt: skip
    return compute(instruction, operation)
