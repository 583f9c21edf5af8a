"""Carries: add.cc, addc, sub.cc, subc, mad.cc, madc. The flag is the register %cc.

It is the carry of a + ~b + 1 after a subtraction: 1 where nothing was borrowed. PTX ISA 9.0 calls
it the borrow, which is the same as long as additions and subtractions do not meet in a chain; nvcc
lets them, in its 128-bit division. Source: SASS of ptxas 13.0 (IADD3.X with ~b).
"""

from typing import Any

import numpy as np

from ptxgen.emulator.flow import CARRY
from ptxgen.emulator.lanes import UNSIGNED, mask_of
from ptxgen.emulator.micro import Compute, Elementwise, Micro, lowers, unknown
from ptxgen.emulator.runtime import runtime
from ptxgen.ptx.module import Instruction, Operand, Register


@lowers("addc", "subc", "madc")
def lower_carry(instruction: Instruction) -> list[Micro]:
    """The sum, and the flag if the instruction sets it."""
    name = instruction.name
    kind = "u" + instruction.modifiers[-1][1:]
    if kind not in ("u32", "u64"):
        raise unknown(instruction, "only 32 and 64 bits")
    bits = int(kind[1:])
    takes = name.endswith("c")
    sets = "cc" in instruction.modifiers
    subtracts = name.startswith("sub")
    sources: tuple[Operand, ...] = instruction.operands[1:]
    left, right = "{0}", "{1}"
    count = 2
    if name.startswith("mad"):
        part = next((m for m in instruction.modifiers if m in ("lo", "hi")), "")
        if not part:
            raise unknown(instruction, "must say .lo or .hi")
        if part == "lo":
            left = f"multiply_low({{0}}, {{1}}, {bits})"
        elif bits == 32:
            left = "(np.multiply({0}, {1}, dtype=U8) >> 32).astype(U4)"
        else:
            left = "multiply_high({0}, {1}, False)"
        right, count = "{2}", 3
    scalar_left = left
    if count == 3:
        scalar_left = f"({{0}} * {{1}} & {(1 << bits) - 1:#x})" if "lo" in instruction.modifiers \
            else f"({{0}} * {{1}} >> {bits})"  # fmt: skip
    ins: tuple[str, ...] = (kind,) * count
    flag = ""
    if takes:
        ins = (*ins, "pred")
        sources = (*sources, Register(CARRY))
        flag = f"{{{count}}}"
    sign = "-" if subtracts else "+"
    extra = f"{' - 1' if subtracts else ''} + {flag}" if takes else ""
    mask = f" & {(1 << bits) - 1:#x}"
    micros: list[Micro] = []
    if sets:
        given = f"lanes({flag})" if flag else str(int(subtracts))
        vector = f"carry_out({left}, {right}, {given}, {subtracts}, {bits})"
        total = f"{scalar_left} {sign} {right}{extra}"
        scalar = f"({total} >= 0)" if subtracts else f"({total} > {(1 << bits) - 1:#x})"
        micros.append(
            Compute(instruction, Elementwise("pred", ins, vector, scalar), Register(CARRY), sources)
        )
    vector = f"carried({left}, {right}, {flag or int(subtracts)}, {subtracts}, {bits})"
    scalar = f"({scalar_left} {sign} {right}{extra}){mask}"
    micros.append(
        Compute(
            instruction, Elementwise(kind, ins, vector, scalar), instruction.operands[0], sources
        )
    )
    return micros


@runtime
def multiply_low(a: Any, b: Any, bits: int) -> Any:
    """The low half of a product."""
    kind = UNSIGNED[bits]
    return np.asarray(a, kind) * np.asarray(b, kind)


@runtime
def carried(a: Any, b: Any, carry: Any, subtracts: bool, bits: int) -> Any:
    """a + b + carry, or a + ~b + carry; what is the same in all lanes may be a number."""
    kind = UNSIGNED[bits]
    a, b = np.asarray(a, kind), np.asarray(b, kind)
    return a + (~b if subtracts else b) + np.asarray(carry, kind)


@runtime
def carry_out(a: Any, b: Any, carry: Any, subtracts: bool, bits: int) -> int:
    """Mask of the lanes whose sum leaves the width, or whose difference does not."""
    a, b = np.asarray(a, UNSIGNED[bits]), np.asarray(b, UNSIGNED[bits])
    if subtracts:
        return mask_of((a > b) | ((a == b) & np.asarray(carry, bool)))
    total = a + b
    return mask_of((total < a) | ((total + carry) < total))
