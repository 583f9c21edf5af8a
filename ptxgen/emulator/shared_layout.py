"""Where a kernel's shared variables lie, as ptxas places them.

From offset 0x400 up: the variables of the entry, those of the module, those of the functions that
it calls, each in the order of the text and only if the kernel uses them. Behind them every extern
array of the module starts, each aligned from where the one before starts. Variables of the
functions that are not used take room there, too; those of the module do not. Source: cubins of
ptxas 13.0, and addresses read back on an H200.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ptxgen.emulator.addresses import STATIC_SMEM_OFFSET
from ptxgen.ptx.module import (
    Function,
    Module,
    Operand,
    Symbol,
    Variable,
    leaves,
)


@dataclass(frozen=True)
class SharedLayout:
    """Shared memory of one kernel."""

    offsets: dict[str, int]
    """Offset of every variable that has a place; those of functions as function::name."""
    end: int
    """Offset behind the last byte, dynamic shared memory included."""


def place_shared(module: Module, entry: Function, dynamic_bytes: int) -> SharedLayout:
    """The layout of one kernel of a module."""
    names = _called(module, entry)
    module_names = set().union(*names.values())
    module_names |= {r.symbol for v in module.variables.values() for r in v.relocations}
    others = [f for n, f in module.functions.items() if n in names and f is not entry]
    scopes = [
        *((f"{entry.name}::{v.name}", v, v.name in names[entry.name])
          for v in entry.variables.values()),
        *((v.name, v, v.name in module_names) for v in module.variables.values()),
        *((f"{f.name}::{v.name}", v, v.name in names[f.name])
          for f in others for v in f.variables.values()),
    ]  # fmt: skip
    shared = [(key, v, is_used) for key, v, is_used in scopes if v.space == "shared"]
    static = [x for x in shared if not _is_dynamic(x[1])]
    offsets: dict[str, int] = {}
    end = STATIC_SMEM_OFFSET
    for key, variable, is_used in static:
        if is_used:
            offsets[key] = align(end, variable.align)
            end = offsets[key] + variable.nbytes
    start = end
    for key, variable, is_used in static:
        if not is_used and "::" in key:
            end = align(end, variable.align) + variable.nbytes
    for key, variable, _ in shared:
        if _is_dynamic(variable):
            offsets[key] = start = align(start, variable.align)
            end = align(end, variable.align)
    return SharedLayout(offsets, max(start, end) + dynamic_bytes)


def align(offset: int, alignment: int) -> int:
    """The next multiple of `alignment`."""
    return -(-offset // alignment) * alignment


def _is_dynamic(variable: Variable) -> bool:
    return variable.linkage == "extern" or variable.nbytes == 0


def _called(module: Module, entry: Function) -> dict[str, set[str]]:
    """{function: symbols that it names} of the entry and all that it may call; a call through a
    pointer may be of any."""
    found: dict[str, set[str]] = {}
    waiting = [entry]
    while waiting:
        function = waiting.pop()
        names = found[function.name] = set(_names(function))
        if any(i.name == "call" and not _is_direct(i.operands) for i in function.body):
            names = names | set(module.functions)
        callees = [module.functions[n] for n in names & module.functions.keys()]
        waiting += [f for f in callees if f.name not in found and not f.is_entry]
    return found


def _is_direct(operands: tuple[Operand, ...]) -> bool:
    return len(operands) > 1 and isinstance(operands[1], Symbol)


def _names(function: Function) -> Iterator[str]:
    """Every symbol that a function's instructions name."""
    for instruction in function.body:
        for operand in instruction.operands:
            yield from (leaf.name for leaf in leaves(operand) if isinstance(leaf, Symbol))
