"""What is done to single instructions: deletions, and the weaker things that they can be turned to.

Source of what each instruction orders: PTX ISA 9.0, the sections of the instructions.
"""

import re
from collections.abc import Iterator

BARRIERS = ("bar.sync", "barrier.cta.sync", "bar.warp.sync", "barrier.cluster.arrive",
            "mbarrier.arrive", "bar.arrive")  # fmt: skip
"""Instructions after which other threads may know what happened before."""

_DELETED = (
    "fence.", "membar.", "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group",
    "cp.async.commit_group", "cp.async.wait_", "cp.async.mbarrier.arrive",
    "cp.async.bulk.commit_group", "cp.async.bulk.wait_group", "mbarrier.init", "mbarrier.inval",
    "mbarrier.arrive", "mbarrier.expect_tx", "mbarrier.complete_tx", "bar.sync", "bar.arrive",
    "barrier.cta.sync", "barrier.cta.arrive", "bar.warp.sync", "barrier.cluster.",
    "tcgen05.fence", "tcgen05.wait", "tcgen05.commit", "tcgen05.dealloc", "griddepcontrol.wait",
)  # fmt: skip
_STATEMENT = re.compile(r"(?P<guard>@\s*!?\s*%?[\w$]+\s+)?(?P<opcode>[\w.:]+)\s*(?P<rest>.*);$",
                        re.DOTALL)  # fmt: skip
_ORDER = re.compile(r"\.(release|acquire|acq_rel)\b")
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]+|\d+")
_WARP_THREADS = 32
_CHUNK_BYTES = 16
"""The least that a bulk copy moves."""

Change = tuple[str, str]
"""(operator, new text)."""


def weakened(source: str) -> Iterator[Change]:
    """The mutants of one statement, given with its guard and semicolon."""
    match = _STATEMENT.match(source.strip())
    if match is None:
        return
    guard, opcode = match["guard"] or "", match["opcode"]
    operands = _split(match["rest"])
    if opcode.startswith(_DELETED):
        yield "deleted", ""
    if re.match(r"mbarrier\.(try|test)_wait", opcode):
        yield from _wait(guard, opcode, operands)
    elif opcode.startswith("mbarrier.init"):
        yield from _count(guard, opcode, operands, 1, 1)
    elif opcode.startswith("mbarrier."):
        yield from _arrive(guard, opcode, operands)
    elif opcode.startswith(("bar.sync", "bar.arrive", "barrier.cta.")):
        yield from _count(guard, opcode, operands, 1, _WARP_THREADS)
    elif "wait_group" in opcode:
        yield from _group(guard, opcode, operands)
    elif opcode.startswith("barrier.cluster.arrive") and ".relaxed" not in opcode:
        plain = opcode.replace(".release", "")
        relaxed = plain.replace("cluster.arrive", "cluster.arrive.relaxed")
        yield "release -> relaxed", _join(guard, relaxed, operands)
    elif opcode.startswith(("ld.", "st.", "red.", "atom.")) and _ORDER.search(opcode):
        relaxed = _ORDER.sub(".relaxed", opcode, count=1)
        yield _relaxation(opcode), _join(guard, relaxed, operands)


def _wait(guard: str, opcode: str, operands: list[str]) -> Iterator[Change]:
    """A wait that always succeeds, that waits for the other phase, that acquires nothing."""
    yield "deleted", f"{guard}setp.eq.u32 {operands[0]}, 0, 0;"
    if ".parity" in opcode:
        flipped, before = _flipped(operands[2])
        changed = _join(guard, opcode, [*operands[:2], flipped, *operands[3:]])
        yield "parity flipped", f"{{ {before}{changed} }}" if before else changed
    if ".relaxed" not in opcode:
        yield "acquire -> relaxed", _join(guard, _relaxed(opcode, r"\.acquire(\.\w+)?"), operands)


def _arrive(guard: str, opcode: str, operands: list[str]) -> Iterator[Change]:
    """Arrivals: fewer bytes, no bytes, no arrival, other counts, no release."""
    arrives = ".arrive" in opcode
    if ".expect_tx" in opcode:
        for name, (amount, before) in (
            ("bytes halved", _halved(operands[-1])),
            ("16 bytes more", _larger(operands[-1])),
        ):
            changed = _join(guard, opcode, [*operands[:-1], amount])
            yield name, f"{{ {before}{changed} }}" if before else changed
        if arrives:
            plain = opcode.replace(".expect_tx", "")
            yield "bytes not announced", _join(guard, plain, operands[:-1])
            space = "cluster" if "shared::cluster" in opcode else "cta"
            announced = f"mbarrier.expect_tx.relaxed.cta.shared::{space}.b64"
            yield "announced without arrival", _join(guard, announced, operands[1:])
    elif arrives:
        yield from _count(guard, opcode, [*operands, "1"] if len(operands) == 2 else operands, 2, 1)
    if arrives and ".relaxed" not in opcode:
        yield "release -> relaxed", _join(guard, _relaxed(opcode, r"\.release(\.\w+)?"), operands)


def _count(guard: str, opcode: str, operands: list[str], place: int, step: int) -> Iterator[Change]:
    """A literal count, one step up and down."""
    if len(operands) <= place or not _NUMBER.fullmatch(operands[place]):
        return
    value = int(operands[place], 0)
    for new in (value + step, value - step):
        if new > 0:
            changed = [*operands[:place], str(new), *operands[place + 1 :]]
            yield f"count {new - value:+d}", _join(guard, opcode, changed)


def _group(guard: str, opcode: str, operands: list[str]) -> Iterator[Change]:
    """One group more in flight; only the reads waited for."""
    if operands and _NUMBER.fullmatch(operands[0]):
        more = str(int(operands[0], 0) + 1)
        yield "one group more in flight", _join(guard, opcode, [more, *operands[1:]])
    if opcode == "cp.async.bulk.wait_group":
        yield "waits for reads only", _join(guard, f"{opcode}.read", operands)


def _relaxed(opcode: str, ordered: str) -> str:
    """An mbarrier operation with .relaxed and a scope, in place of the order it had."""
    scope = re.search(ordered, opcode)
    named = scope[1] if scope and scope[1] else ".cta"
    plain = re.sub(ordered, "", opcode, count=1)
    head = re.match(r"mbarrier\.\w+(?:\.(?:expect_tx|parity|noComplete))*", plain)
    assert head is not None
    return f"{head[0]}.relaxed{named}{plain[head.end() :]}"


def _relaxation(opcode: str) -> str:
    order = _ORDER.search(opcode)
    assert order is not None
    return f"{order[1]} -> relaxed"


def _flipped(operand: str) -> tuple[str, str]:
    """The other parity, and instructions that make it."""
    if _NUMBER.fullmatch(operand):
        return str(int(operand, 0) ^ 1), ""
    return "%other_parity", f".reg .u32 %other_parity; xor.b32 %other_parity, {operand}, 1; "


def _halved(operand: str) -> tuple[str, str]:
    """Half of a number of bytes, and instructions that make it."""
    if _NUMBER.fullmatch(operand):
        return str(int(operand, 0) // 2), ""
    return "%half_bytes", f".reg .u32 %half_bytes; shr.u32 %half_bytes, {operand}, 1; "


def _larger(operand: str) -> tuple[str, str]:
    """A number of bytes and 16 more, and instructions that make it."""
    if _NUMBER.fullmatch(operand):
        return str(int(operand, 0) + _CHUNK_BYTES), ""
    more = f".reg .u32 %more_bytes; add.u32 %more_bytes, {operand}, {_CHUNK_BYTES}; "
    return "%more_bytes", more


def _split(rest: str) -> list[str]:
    """Operands at the commas outside of brackets."""
    operands = [""]
    depth = 0
    for char in rest:
        depth += (char in "[{(") - (char in "]})")
        if char == "," and depth == 0:
            operands.append("")
        else:
            operands[-1] += char
    return [o.strip() for o in operands if o.strip()]


def _join(guard: str, opcode: str, operands: list[str]) -> str:
    return f"{guard}{opcode} {', '.join(operands)}".rstrip() + ";"
