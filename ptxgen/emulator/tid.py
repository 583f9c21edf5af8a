"""Functions of %tid.x that are uniform in a warp.

Where the first thread of every warp has a %tid.x that is a multiple of 32, `tid >> 5` is the warp
index and a comparison with a multiple of 32 holds for all lanes or none.
"""

from ptxgen.emulator.micro import Compute
from ptxgen.emulator.values import Value
from ptxgen.ptx.module import Immediate

BASE = "F.warp.first_tid"
"""%tid.x of lane 0."""


def uniform_of_tid(micro: Compute, values: list[Value | None]) -> tuple[str, str] | None:
    """(form, expression) of an operation on %tid.x and an immediate, where it is not general."""
    if len(values) != 2 or values[0] is None or not values[0].tid:
        return None
    second = micro.sources[1]
    if not isinstance(second, Immediate) or second.kind != "int":
        return None
    number = int(second.value) & 0xFFFFFFFF
    name = micro.instruction.name
    modifiers = micro.instruction.modifiers
    if name == "shr" and number >= 5:
        return "S", f"{BASE} >> {min(number, 31)}"
    if name == "and" and number & 31 == 0:
        return "S", f"{BASE} & {number}"
    if name == "div" and number % 32 == 0 and 0 < number < 1 << 31:
        return "S", f"{BASE} // {number}"
    if name == "setp" and number < 1 << 31 and len(modifiers) == 2:
        compare = modifiers[0]
        if compare in ("lt", "ge", "le", "gt", "lo", "hs", "ls", "hi"):
            strict = compare in ("lt", "ge", "lo", "hs")
            limit = number if strict else number + 1
            if limit % 32 == 0:
                below = compare in ("lt", "le", "lo", "ls")
                return "S", f"{BASE} {'<' if below else '>='} {limit}"
        if compare in ("eq", "ne"):
            hit = f"tid_bit({number} - {BASE})"
            return "V", hit if compare == "eq" else f"({hit} ^ FULL)"
    return None
