"""What the commonest complaints of an assembler mean, and what to try."""

import re

from ptxgen.arch import ARCHS

_HOMES = {
    "wgmma": "sm_90a only",
    "tcgen05": "sm_100a, sm_103a and their families",
    "setmaxnreg": "targets with an a or f suffix",
}
"""Instruction -> the targets that have it."""


def explain(complaint: str, arch: str) -> str | None:
    """One sentence for the assembler's `complaint` about a text assembled for `arch`, or None.

    Works on the wording of ptxas, which nvJitLink and the driver's JIT share.
    """
    match = re.search(
        r"Instruction '(\w+)[^']*' (?:not supported on|cannot be compiled)", complaint
    )
    if match:
        where = re.search(r"'(sm_\w+)'\s*$", complaint.strip())
        return _missing_instruction(match[1], where[1] if where else arch)
    match = re.search(r"Unsupported \.version (\S+); current version is '([^']+)'", complaint)
    if match:
        return (
            f"PTX .version {match[1]} is newer than this assembler, which takes at most "
            f"{match[2]}; try a lower .version, or: pip install --no-deps -U nvidia-cuda-nvcc"
        )
    match = re.search(r"PTX \.version (\S+) does not support \.target (\S+)", complaint)
    if match:
        known = ARCHS.get(match[2])
        least = f" of at least {known.min_ptx_version}" if known else " that knows it"
        return f".target {match[2]} needs a .version{least}, the text says {match[1]}"
    match = re.search(r"Feature '([^']+)' requires PTX ISA \.version (\S+)", complaint)
    if match:
        return f"{match[1]} needs .version {match[2]} or newer; try raising .version"
    match = re.search(r"with \.target '(sm_\w+)' cannot be compiled", complaint)
    if match:
        reason = ", as code for an a target runs on that chip alone" if match[1][-1] == "a" else ""
        return (
            f"PTX for .target {match[1]} must be assembled for {match[1]}{reason}, got {arch}; "
            f"try --arch {match[1]}"
        )
    match = re.search(r"Value '(\w+)' is not defined for option 'gpu-name'", complaint)
    if match:
        return f"this assembler does not know {match[1]}; ptxgen doctor lists what is here"
    return None


def _missing_instruction(instruction: str, arch: str) -> str:
    """Why `instruction` is not there on `arch`, and what is."""
    home = _HOMES.get(instruction)
    what = f"{instruction} does not exist on {arch}"
    if home is None:
        return what
    suffixed = ARCHS.get(f"{arch}a")
    if suffixed and (instruction == "setmaxnreg" or suffixed.mma_family == instruction):
        return f"{what}: it needs {arch}a, with the a; try --arch {arch}a and .target {arch}a"
    known = ARCHS.get(arch) or suffixed
    if known and instruction in ("wgmma", "tcgen05") and known.mma_family != instruction:
        own = known.mma_family.replace("_", ".")
        return f"{what}: it is for {home}, and {arch} has {own}; try a kernel for {arch}"
    return f"{what}: it is for {home}"
