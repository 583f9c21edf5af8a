"""Which `.version` and target the instructions of a module need."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from ptxgen.errors import ConfigError, PtxError, not_one_of
from ptxgen.ptx.form_table import (
    DIRECTIVES,
    HOPPER,
    PARAM_BYTES,
    PRAGMAS,
    RULES,
    TARGETS,
    TCGEN05,
    Rule,
    number,
)
from ptxgen.ptx.module import Function, Instruction, Module

NAMES = frozenset(
    name
    for names in (
        "abs activemask add addc alloca and applypriority atom bar barrier bfe bfi bfind bmsk bra",
        "brev brkpt brx call clusterlaunchcontrol clz cnot copysign cos cp createpolicy cvt cvta",
        "discard div dp2a dp4a elect ex2 exit fence fma fns getctarank griddepcontrol isspacep",
        "istypep ld ldmatrix ldu lg2 lop3 mad mad24 madc mapa match max mbarrier membar min mma",
        "mov movmatrix mul mul24 multimem nanosleep neg not or pmevent popc prefetch prefetchu",
        "prmt rcp red redux rem ret rsqrt sad selp set setmaxnreg setp shf shfl shl shr sin slct",
        "sqrt st stackrestore stacksave stmatrix sub subc suld suq sured sust szext tanh tcgen05",
        "tensormap testp tex tld4 trap txq vabsdiff vabsdiff2 vabsdiff4 vadd vadd2 vadd4 vavrg2",
        "vavrg4 vmad vmax vmax2 vmax4 vmin vmin2 vmin4 vote vset vset2 vset4 vshl vshr vsub",
        "vsub2 vsub4 wgmma wmma xor",
    )
    for name in names.split()
)
"""Every base opcode of PTX ISA 9.0."""


NEWEST_MAJOR = 9
"""Of the versions of PTX ISA that there are."""
_OLDER = {"sm_80": "7.0", "sm_86": "7.1", "sm_87": "7.4"}
"""Lowest `.version` of targets that are older than the oldest one in TARGETS."""


class MinVersion(NamedTuple):
    """The lowest `.version` that serves, and why it is not lower."""

    version: str
    need: Instruction | str | None
    """The first instruction that needs it, or a directive; None where the target itself does."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A form that the target or the `.version` of a module does not have."""

    line: int
    """1-based line of the text."""
    what: str
    """The opcode or directive."""
    message: str
    """What is wrong, what has it, and what to use instead."""
    targets: tuple[str, ...]
    """Targets that have it; empty where no target is the problem."""


def min_version(source: Module | Iterable[Instruction], target: str) -> MinVersion:
    """The lowest `.version` with which `source` assembles for `target`.

    Directives and parameter sizes count when `source` is a module.

    Raises: PtxError if the target lacks an instruction; ConfigError for an unknown target.
    Source: the table in form_table.py, measured with ptxas 13.0.88.
    """
    best = MinVersion(_floor(target), None)
    for line, what, need, targets, version in _needs(source, target):
        if target not in targets:
            raise PtxError(f"line {line}: {_lacking(what, target, targets)}", line)
        if _key(version) > _key(best.version):
            best = MinVersion(version, need)
    return best


def check_forms(module: Module) -> list[Finding]:
    """What the module's own target and `.version` do not have, in order of lines.

    Raises: ConfigError for an unknown target.
    """
    target = module.target.replace("compute_", "sm_")
    floor = _floor(target)
    findings = []
    if _key(module.version) >= (NEWEST_MAJOR + 1,):
        message = f".version {module.version} does not exist; PTX ISA {NEWEST_MAJOR} is the newest"
        findings.append(Finding(1, ".version", message, ()))
    if _key(module.version) < _key(_OLDER.get(target, floor)):
        message = f".target {target} needs .version {floor}, got {module.version}"
        findings.append(Finding(1, ".target", message, ()))
    for function in module.functions.values():
        findings += _mixed_cta_groups(function)
        for instruction in function.body:
            if instruction.name not in NAMES:
                message = f"{instruction.opcode} is not an instruction of PTX ISA 9.0"
                findings.append(Finding(instruction.line, instruction.opcode, message, ()))
    for line, what, _, targets, version in _needs(module, target):
        if target not in targets:
            message = _lacking(what, target, targets)
            findings.append(Finding(line, what, message, tuple(t for t in TARGETS if t in targets)))
        elif _key(version) > _key(module.version) and _key(version) > _key(floor):
            message = f"{what} needs .version {version}, got {module.version}"
            findings.append(Finding(line, what, message, ()))
    return sorted(findings, key=lambda finding: finding.line)


def _mixed_cta_groups(function: Function) -> Iterator[Finding]:
    """The first instruction whose cta_group is not that of those before it."""
    first = ""
    for instruction in (i for i in function.body if i.name == "tcgen05"):
        group = next((m for m in instruction.modifiers if m.startswith("cta_group::")), "")
        first = first or group
        if group and group != first:
            message = (
                f"{instruction.opcode}: all tcgen05 instructions of a kernel must have one "
                f"cta_group, and {first} was used before"
            )
            yield Finding(instruction.line, instruction.opcode, message, ())
            return


def _floor(target: str) -> str:
    if target not in TARGETS:
        raise ConfigError(not_one_of("target", target, TARGETS))
    return TARGETS[target]


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def _needs(
    source: Module | Iterable[Instruction], target: str
) -> Iterator[tuple[int, str, Instruction | str, frozenset[str], str]]:
    """(line, name, need, targets that have it, lowest version there) of what needs anything."""
    if not isinstance(source, Module):
        yield from _instruction_needs(source, target)
        return
    for function in source.functions.values():
        yield from _header_needs(function)
        yield from _instruction_needs(function.body, target)


def _instruction_needs(
    body: Iterable[Instruction], target: str
) -> Iterator[tuple[int, str, Instruction | str, frozenset[str], str]]:
    for instruction in body:
        targets, version = _ALL, ""
        for rule in _rules(instruction.opcode):
            if rule.when is not None and not rule.when(instruction):
                continue
            targets &= rule.targets
            version = max(version, rule.exceptions.get(target, rule.since), key=_key)
        if version:
            yield instruction.line, instruction.opcode, instruction, targets, version


def _header_needs(
    function: Function,
) -> Iterator[tuple[int, str, Instruction | str, frozenset[str], str]]:
    for name in function.directives:
        if name in DIRECTIVES:
            targets, version = DIRECTIVES[name]
            yield function.line, f".{name}", f".{name}", targets, version
    for text, _ in function.pragmas:
        since = PRAGMAS.get(text.partition(" ")[0])
        if since is not None:
            yield function.line, f'.pragma "{text}"', f'.pragma "{text}"', _ALL, since
    if function.is_entry:
        nbytes = _param_bytes(function)
        for limit, version in PARAM_BYTES:
            if nbytes <= limit:
                what = f"{nbytes} B of parameters"
                yield function.line, what, what, _ALL, version
                break


def _param_bytes(function: Function) -> int:
    offset = 0
    for parameter in function.params:
        offset += -offset % parameter.align + parameter.nbytes
    return offset


@cache
def _rules(opcode: str) -> tuple[Rule, ...]:
    return tuple(rule for rule, pattern in _PATTERNS if pattern.match(opcode))


_ALL = frozenset(TARGETS)
_PATTERNS = tuple((rule, re.compile(rule.pattern)) for rule in RULES)


def _lacking(what: str, target: str, targets: frozenset[str]) -> str:
    """What to say when `target` is not one of `targets`."""
    message = f"{what} is not available on {target}, but on {_described(targets)}"
    nearest = [t for t in (f"{target}a", f"{target}f") if t in targets]
    if nearest:
        return f"{message}; try .target {nearest[0]}"
    instead = _instead(what.partition(".")[0], target)
    return f"{message}; {instead}" if instead else message


def _described(targets: frozenset[str]) -> str:
    names = [t for t in TARGETS if t in targets]
    lowest = min(map(number, names))
    if len(names) > 4 and targets == frozenset(t for t in TARGETS if number(t) >= lowest):
        return f"sm_{lowest} and later"
    return ", ".join(names)


def _instead(name: str, target: str) -> str:
    """The instruction that does on `target` what `name` does elsewhere."""
    if name not in ("wgmma", "tcgen05", "mma"):
        return _INSTEAD.get(name, "")
    if number(target) >= 120:
        usable = "" if name == "mma" else "use mma.sync"
    elif target in HOPPER:
        usable = "use wgmma"
    elif number(target) >= 100:
        usable = "use tcgen05.mma" + ("" if target in TCGEN05 else f" on .target {target}a")
    else:
        usable = "use mma.sync" if number(target) < 90 else "use wgmma on .target sm_90a"
    only = {"wgmma": "Hopper only: ", "tcgen05": "data-centre Blackwell only: "}.get(name, "")
    return only + usable if usable else ""


_INSTEAD = {
    "setmaxnreg": "leave it out, or set .maxnreg",
    "elect": "compare %laneid with a constant",
    "clusterlaunchcontrol": "use a persistent loop over tiles",
    "stmatrix": "use st.shared",
    "redux": "use shfl.sync",
    "griddepcontrol": "launch without programmatic dependent launch",
}
"""Base opcode -> what serves where it is lacking."""
