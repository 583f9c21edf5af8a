"""What the launcher must know of PTX text before it loads it: version, target, entries."""

import re
from dataclasses import dataclass

from ptxgen.errors import AssemblyError

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_VERSION = re.compile(r"^\s*\.version\s+(\d+)\.(\d+)", re.MULTILINE)
_TARGET = re.compile(r"^\s*\.target\s+(?:sm|compute)_(\d+)([af]?)\b", re.MULTILINE)
_ENTRY = re.compile(r"\.entry\s+([A-Za-z_$%][\w$]*)")


@dataclass(frozen=True)
class PtxHeader:
    """The directives at the top of a PTX text, and its entries."""

    version: tuple[int, int] | None
    """`.version`, or None where the text has none."""
    target: tuple[int, str] | None
    """`.target` as (number, suffix): (90, 'a') for sm_90a; None where the text has none."""
    entries: tuple[str, ...]

    @property
    def target_name(self) -> str:
        """The target as written in PTX, e.g. sm_90a."""
        return "none" if self.target is None else f"sm_{self.target[0]}{self.target[1]}"


def read_header(ptx: str) -> PtxHeader:
    """Version, target and entry names of `ptx`; comments are skipped."""
    text = _COMMENT.sub(" ", ptx)
    version = _VERSION.search(text)
    target = _TARGET.search(text)
    return PtxHeader(
        version=(int(version[1]), int(version[2])) if version else None,
        target=(int(target[1]), target[2]) if target else None,
        entries=tuple(_ENTRY.findall(text)),
    )


def runs_on(target: tuple[int, str], compute_capability: tuple[int, int]) -> bool:
    """Whether PTX of `target` can be compiled for a device of `compute_capability`.

    A plain target serves every later architecture, an `f` target its family (same major number,
    not an earlier minor one), an `a` target only its own.
    Source: PTX ISA 9.0, ".target"; what ptxas 13.0 assembles.
    """
    number, suffix = target
    device = compute_capability[0] * 10 + compute_capability[1]
    if suffix == "a":
        return device == number
    if suffix == "f":
        return device // 10 == number // 10 and device >= number
    return device >= number


def check_target(header: PtxHeader, compute_capability: tuple[int, int], device: str) -> None:
    """Refuse PTX that was made for another GPU, before the driver does with a worse message.

    Raises: AssemblyError.
    """
    if header.target is None or runs_on(header.target, compute_capability):
        return
    wants = f"{compute_capability[0]}{compute_capability[1]}"
    raise AssemblyError(
        f"the PTX is for {header.target_name} but the device is {device}, compute capability"
        f" {compute_capability[0]}.{compute_capability[1]}; a target with a suffix runs only on"
        f" its own architecture; try emitting with --arch sm_{wants}a, or the emulator"
    )


def check_version(
    header: PtxHeader, newest: tuple[int, int] | None, driver: tuple[int, int]
) -> None:
    """Refuse PTX that is newer than the driver's compiler.

    `newest` is the driver's newest `.version` (None = not known: the driver decides).

    Raises: AssemblyError.
    """
    if header.version is None or newest is None or header.version <= newest:
        return
    raise AssemblyError(version_message(header, newest, driver))


def version_message(
    header: PtxHeader, newest: tuple[int, int] | None, driver: tuple[int, int]
) -> str:
    """The message for PTX that is newer than the driver's compiler, with the three remedies."""
    wanted = "an unknown version" if header.version is None else "{}.{}".format(*header.version)
    limit = "an older one" if newest is None else "at most {}.{}".format(*newest)
    return (
        f"the PTX has .version {wanted} but the driver (CUDA {driver[0]}.{driver[1]}) compiles"
        f" {limit}; try a newer driver, or a lower .version if the instructions allow it, or"
        " assemble with ptxas and load the cubin, which is not bound by the driver's PTX version"
    )
