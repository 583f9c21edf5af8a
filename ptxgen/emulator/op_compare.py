"""Comparisons and selection: setp, set, selp, slct."""

from ptxgen.emulator.micro import Compute, Elementwise, Micro, lowers, unknown
from ptxgen.emulator.op_integer import compute
from ptxgen.ptx.module import Instruction, Pair

_COMPARE = {
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=",
    "hi": ">", "hs": ">=",
}  # fmt: skip
_UNORDERED = {"equ": "==", "neu": "!=", "ltu": "<", "leu": "<=", "gtu": ">", "geu": ">="}
_BOOLEANS = {"and": "&", "or": "|", "xor": "^"}


def _comparison(instruction: Instruction, compare: str, kind: str) -> tuple[str, str, str]:
    """(type to read, array expression, scalar expression) of a comparison."""
    is_float = kind in ("f16", "bf16", "f32", "f64")
    read = kind
    left, right = "{0}", "{1}"
    if kind == "bf16":
        read = "b16"
        left, right = "widen_bf16({0})", "widen_bf16({1})"
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
    if kind in ("f16x2", "bf16x2"):
        raise unknown(instruction)
    read, vector, scalar = _comparison(instruction, compare, kind)
    destination = instruction.operands[0]
    first = destination.first if isinstance(destination, Pair) else destination
    sources = instruction.operands[1:]
    micros: list[Micro] = []
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
    if len(rest) != 2:
        raise unknown(instruction)
    out, kind = rest
    read, vector, scalar = _comparison(instruction, compare, kind)
    if out in ("u32", "s32"):
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
    plain = {"f32": "b32", "f64": "b64"}.get(kind, "b" + kind[1:])
    operation = Elementwise(
        plain, (plain, plain, of), f"choose({{2}} >= 0, {{0}}, {{1}}, U{int(plain[1:]) // 8})",
        "({0} if {2} >= 0 else {1})",
    )  # fmt: skip
    return compute(instruction, operation)
