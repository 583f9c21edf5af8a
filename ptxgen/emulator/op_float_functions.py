"""Functions of floating point: approximations, copysign and testp."""

from typing import Any

import numpy as np

from ptxgen.emulator.micro import Compute, Elementwise, Micro, lowers, unknown
from ptxgen.emulator.op_float import lower_float, pack, unpack
from ptxgen.emulator.runtime import runtime
from ptxgen.ptx.module import Instruction

_APPROXIMATIONS = {
    "rsqrt": "1 / np.sqrt({0})", "ex2": "np.exp2({0})", "lg2": "np.log2({0})",
    "sin": "np.sin({0})", "cos": "np.cos({0})", "tanh": "np.tanh({0})",
}  # fmt: skip


@lowers("rsqrt", "ex2", "lg2", "sin", "cos", "tanh")
def approximation(instruction: Instruction) -> list[Micro]:
    """Approximate functions: the correctly rounded value, which hardware is within its bound of."""
    kind = instruction.modifiers[-1]
    formula = _APPROXIMATIONS[instruction.name]
    if kind == "f32":
        exact = f"quiet(({formula.format('np.asarray({0}, F8)')}).astype(F4))"
        if "ftz" in instruction.modifiers:
            exact = f"flush({exact})"
        operation = Elementwise(kind, (kind,), exact, f"float({exact})")
    elif kind in ("f16", "bf16", "f16x2", "bf16x2"):
        plain = "b32" if kind.endswith("x2") else "b16"
        text = f"approximate({instruction.name!r}, {kind!r}, {{0}})"
        operation = Elementwise(plain, (plain,), text, f"int({text})")
    elif kind == "f64" and "ftz" in instruction.modifiers:
        return _gross(instruction)
    elif kind == "f64":
        operation = Elementwise(kind, (kind,), formula, f"float({formula})")
    else:
        raise unknown(instruction)
    return [Compute(instruction, operation, instruction.operands[0], instruction.operands[1:])]


@lowers("sqrt", "rcp")
def root_or_reciprocal(instruction: Instruction) -> list[Micro]:
    """sqrt and rcp, exact; .approx gives the correctly rounded value."""
    if instruction.modifiers[-1] == "f64" and "ftz" in instruction.modifiers:
        return _gross(instruction)
    return lower_float(instruction)


def _gross(instruction: Instruction) -> list[Micro]:
    """rcp and rsqrt of .approx.ftz.f64."""
    text = f"gross_approximation({instruction.name!r}, {{0}})"
    operation = Elementwise("b64", ("b64",), text, f"int({text})")
    return [Compute(instruction, operation, instruction.operands[0], instruction.operands[1:])]


@runtime
def gross_approximation(name: str, bits: Any) -> Any:
    """From the high words of f64 patterns to high words; the low ones are zero.

    Source: PTX ISA 9.0, "rcp.approx.ftz.f64", "rsqrt.approx.ftz.f64".
    """
    high = np.uint64(0xFFFFFFFF << 32)
    x = _flush(np.asarray(bits, np.uint64) & high)
    found = _flush((1 / x if name == "rcp" else 1 / np.sqrt(x)).view(np.uint64))
    return np.where(np.isnan(found), np.uint64(0x7FFFFFFF << 32), found.view(np.uint64) & high)


def _flush(bits: Any) -> Any:
    """Values of f64 patterns, the subnormal ones as zeros."""
    x = np.asarray(bits).view(np.float64)
    return np.where(np.abs(x) < 2.0**-1022, np.copysign(0.0, x), x)


@runtime
def approximate(name: str, kind: str, bits: Any) -> Any:
    """An approximate function of a 16-bit type."""
    x = unpack(kind, bits)
    value = {
        "rsqrt": lambda: 1 / np.sqrt(x), "ex2": lambda: np.exp2(x), "lg2": lambda: np.log2(x),
        "sin": lambda: np.sin(x), "cos": lambda: np.cos(x), "tanh": lambda: np.tanh(x),
    }[name]()  # fmt: skip
    found = pack(kind, value, "rn", 0.0)
    return found if np.ndim(found) else int(found)


@lowers("copysign")
def copy_sign(instruction: Instruction) -> list[Micro]:
    """copysign: the sign of a on the magnitude of b."""
    kind = instruction.modifiers[-1]
    plain, low = ("b32", 0x7FFFFFFF) if kind == "f32" else ("b64", (1 << 63) - 1)
    high = low + 1
    text = f"({{0}} & {high:#x}) | ({{1}} & {low:#x})"
    operation = Elementwise(plain, (plain, plain), text, text)
    return [Compute(instruction, operation, instruction.operands[0], instruction.operands[1:])]


@lowers("testp")
def test_property(instruction: Instruction) -> list[Micro]:
    """testp: finite, infinite, number, notanumber, normal, subnormal."""
    what, kind = instruction.modifiers
    tests = {
        "finite": "np.isfinite({0})", "infinite": "np.isinf({0})", "number": "~np.isnan({0})",
        "notanumber": "np.isnan({0})",
        "normal": "(np.isfinite({0}) & ((np.abs({0}) >= TINY) | ({0} == 0)))",
        "subnormal": "(({0} != 0) & (np.abs({0}) < TINY))",
    }  # fmt: skip
    if what not in tests:
        raise unknown(instruction)
    tiny = "2.0 ** -126" if kind == "f32" else "2.0 ** -1022"
    test = tests[what].replace("TINY", tiny)
    operation = Elementwise("pred", (kind,), f"mask_of({test})", f"bool({test})")
    return [Compute(instruction, operation, instruction.operands[0], instruction.operands[1:])]
