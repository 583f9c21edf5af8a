"""cp.async.bulk and its relatives: what the instruction says, and its run-time call."""

from dataclasses import dataclass

from ptxgen.emulator.emitter import Emitter
from ptxgen.emulator.micro import Effect, Micro, lowers, unknown
from ptxgen.emulator.op_mbarrier import begin_lanes, per_lane
from ptxgen.emulator.op_memory import address_code
from ptxgen.emulator.runtime import static
from ptxgen.ptx.module import Address, Immediate, Instruction, Operand, Vector

REDUCTIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")


@dataclass(frozen=True)
class Copy:
    """The parts of a bulk copy that its text fixes."""

    line: int
    source: str
    """State space of the source: global or shared::cta."""
    destination: str
    """global, shared::cta, shared::cluster, or L2 of a prefetch."""
    rank: int = 0
    """Dimensions of a tensor copy."""
    mode: str = "tile"
    """tile, tile::gather4, tile::scatter4, im2col, im2col_no_offs, im2col::w, im2col::w::128."""
    reduction: str = ""
    type: str = ""
    """Element type of a 1-D reduction."""
    multicast: bool = False
    cta_group: int = 0
    by_group: bool = False
    """Completes through a bulk group, not an mbarrier."""
    byte_mask: bool = False
    """.cp_mask: 16-byte pieces are written by a byte mask."""


@lowers("cp")
def copy(instruction: Instruction) -> list[Micro]:
    """cp.async, cp.async.bulk, cp.async.bulk.tensor, cp.reduce.async.bulk and group control."""
    modifiers = instruction.modifiers
    if modifiers[:2] == ("async", "mbarrier") or "bulk" not in modifiers:
        from ptxgen.emulator.op_cp_async import lower_cp_async

        return lower_cp_async(instruction)
    if modifiers[:2] == ("async", "bulk") and len(modifiers) > 2:
        if modifiers[2] == "commit_group":
            return [Effect(instruction, _commit)]
        if modifiers[2] == "wait_group":
            return [Effect(instruction, _wait, ends=True, splits=True)]
    return [Effect(instruction, _copy)]


def _parse(instruction: Instruction) -> Copy:
    modifiers = list(instruction.modifiers)
    reduction = ""
    if modifiers[0] == "reduce":
        modifiers.remove("reduce")
        reduction = next((m for m in modifiers if m in REDUCTIONS), "")
        if not reduction:
            raise unknown(instruction, "no reduction operation")
    prefetch = "prefetch" in modifiers
    rank = next((int(m[0]) for m in modifiers if len(m) == 2 and m[1] == "d"), 0)
    spaces = [m for m in modifiers if m in ("global", "shared::cta", "shared::cluster", "L2",
                                            "shared")]  # fmt: skip
    if len(spaces) != 2:
        raise unknown(instruction, "needs a destination and a source space")
    spaces = ["shared::cta" if s == "shared" else s for s in spaces]
    mode = next((m for m in modifiers if m.startswith(("tile", "im2col"))), "tile")
    group = next((int(m[-1]) for m in modifiers if m.startswith("cta_group::")), 0)
    kind = modifiers[-1] if reduction and not rank else ""
    return Copy(
        instruction.line, spaces[1], spaces[0], rank, mode, reduction, kind,
        "multicast::cluster" in modifiers, group, "bulk_group" in modifiers or prefetch,
        "cp_mask" in modifiers,
    )  # fmt: skip


def _copy(em: Emitter, instruction: Instruction) -> None:
    """Operands in the order of the text: destination, source, size or mbarrier, extras."""
    copied = _parse(instruction)
    operands = list(instruction.operands)
    loads = not copied.by_group
    values: dict[str, tuple[str, str]] = {}
    coordinates: tuple[Operand, ...] = ()
    offsets: tuple[Operand, ...] = ()
    if copied.destination == "L2":
        _source(em, operands.pop(0), copied, values)
    else:
        first = operands.pop(0)
        values["destination"] = address_code(em, first, copied.destination)
        coordinates = _coordinates(first)
        second = operands.pop(0)
        values["source"] = address_code(em, second, copied.source)
        coordinates = coordinates or _coordinates(second)
    if copied.destination == "L2":
        coordinates = _coordinates(instruction.operands[0])
    if not copied.rank:
        values["size"] = em.read(operands.pop(0), "u32")
    if loads:
        values["barrier"] = address_code(em, operands.pop(0), "shared")
    if operands and isinstance(operands[0], Vector):
        offsets = operands.pop(0).items  # type: ignore[union-attr]
    if copied.multicast:
        values["ctas"] = em.read(operands.pop(0), "b16")
    if copied.byte_mask:
        if any(m == "L2::cache_hint" for m in instruction.modifiers):
            operands.pop(0)
        values["mask"] = em.read(operands.pop(0), "b16")
    for index, coordinate in enumerate(coordinates):
        values[f"c{index}"] = em.read(coordinate, "s32")
    for index, offset in enumerate(offsets):
        values[f"o{index}"] = em.read(offset, "u16")
    named = {k: (form, em.assign(code)) for k, (form, code) in values.items()}
    begin_lanes(em)
    texts = {k: per_lane(form, code) for k, (form, code) in named.items()}
    place = ", ".join(texts[f"c{i}"] for i in range(len(coordinates)))
    extra = ", ".join(texts[f"o{i}"] for i in range(len(offsets)))
    arguments = [
        "F", "lane", static(copied), texts.get("destination", "0"), texts["source"],
    ]  # fmt: skip
    if copied.rank:
        arguments.append(f"({place},)")
        if extra:
            arguments.append(f"offsets=({extra},)")
    else:
        arguments.append(texts["size"])
    for key in ("barrier", "ctas", "mask"):
        if key in texts:
            arguments.append(f"{key}={texts[key]}")
    em.line(f"{_entry(copied)}({', '.join(arguments)})")
    em.indent -= 1


def _entry(copied: Copy) -> str:
    if copied.destination == "L2":
        return "prefetch_tensor" if copied.rank else "prefetch_bulk"
    if copied.rank:
        return "store_tensor" if copied.by_group else "load_tensor"
    return "store_bulk" if copied.by_group else "load_bulk"


def _source(
    em: Emitter, operand: Operand, copied: Copy, values: dict[str, tuple[str, str]]
) -> None:
    values["source"] = address_code(em, operand, copied.source)


def _coordinates(operand: Operand) -> tuple[Operand, ...]:
    if isinstance(operand, Address) and operand.coordinates is not None:
        return operand.coordinates.items
    return ()


def _commit(em: Emitter, instruction: Instruction) -> None:
    em.line(f"commit_group(F, 'bulk', {em.active_mask()}, {instruction.line})")


def _wait(em: Emitter, instruction: Instruction) -> None:
    allowed = instruction.operands[0]
    if not isinstance(allowed, Immediate):
        raise unknown(instruction, "the number of groups must be a literal")
    read_only = "read" in instruction.modifiers
    em.line(
        f"return wait_group(F, 'bulk', {int(allowed.value)}, {read_only}, {instruction.line}, "
        f"{em.following()})"
    )
