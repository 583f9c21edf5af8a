"""What of the tools that ptxgen can use is on this machine, and what to install for the rest."""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from ptxgen.errors import PtxgenError
from ptxgen.toolchain import INSTALL_PTXAS, find_binaries, find_ptxas

INSTALL_DRIVER = "install the NVIDIA driver of your system (on Windows: WSL)"
PACKAGES = {
    "numpy": "data and references",
    "ml_dtypes": "FP8 and bf16 arrays",
    "jinja2": "emit",
    "cuda-python": "a GPU, and nvJitLink",
    "pyelftools": "inspect a cubin",
    "pygments": "coloured PTX",
}
"""Python package -> what needs it."""
WHEEL_TOOLS = {
    "nvdisasm": ("inspect the SASS of a cubin", "pip install nvidia-cuda-nvdisasm"),
    "cuobjdump": ("extract cubins from fat binaries", "pip install nvidia-cuda-cuobjdump"),
}
"""Command line tool -> what needs it, and how to get it."""


@dataclass(frozen=True)
class Finding:
    """One tool or package."""

    name: str
    found: bool
    version: str = ""
    where: str = ""
    details: str = ""
    used_for: str = ""
    install: str = ""
    """What to do if it is missing."""


def diagnose() -> list[Finding]:
    """Look for everything that ptxgen can use. Starts no GPU context and writes nothing."""
    return [
        Finding("python", True, platform.python_version(), sys.executable, platform.platform()),
        *_packages(),
        *_ptxas(),
        _nvjitlink(),
        *_wheel_tools(),
        *_driver(),
        _cache(),
    ]


def _packages() -> Iterator[Finding]:
    for name, used_for in PACKAGES.items():
        try:
            found = distribution(name)
        except PackageNotFoundError:
            yield Finding(name, False, used_for=used_for, install=f"pip install {name}")
        else:
            yield Finding(name, True, found.version, str(found.locate_file("")), "", used_for)


def _ptxas() -> Iterator[Finding]:
    """Every ptxas; the first one that serves a text is used."""
    used_for = "assemble, registers and spills"
    try:
        tools = list(find_ptxas())
    except PtxgenError as error:
        yield Finding("ptxas", False, "", "", str(error), used_for, INSTALL_PTXAS)
        return
    for ptxas in tools:
        special = [a for a in ptxas.archs if a.endswith(("a", "f"))]
        yield Finding(
            "ptxas",
            True,
            ptxas.version,
            f"{ptxas.path} ({ptxas.source})",
            f".version up to {ptxas.max_ptx_version}; {' '.join(special)}",
            used_for,
        )
    if not tools:
        yield Finding("ptxas", False, used_for=used_for, install=INSTALL_PTXAS)


def _nvjitlink() -> Finding:
    from ptxgen.assembler import nvjitlink_version

    used_for = "assemble without ptxas what does not use setmaxnreg"
    version = nvjitlink_version()
    if version is None:
        install = "pip install nvidia-nvjitlink"
        return Finding("nvjitlink", False, used_for=used_for, install=install)
    from cuda.pathfinder import load_nvidia_dynamic_lib

    where = str(load_nvidia_dynamic_lib("nvJitLink").abs_path)
    return Finding("nvjitlink", True, version, where, "", used_for)


def _wheel_tools() -> Iterator[Finding]:
    for name, (used_for, install) in WHEEL_TOOLS.items():
        try:
            places = list(find_binaries(name))
        except PtxgenError as error:
            yield Finding(name, False, "", "", str(error), used_for, install)
            continue
        for source, path in places:
            version = _version(path)
            yield Finding(name, True, version, f"{path} ({source})", "", used_for)
        if not places:
            yield Finding(name, False, used_for=used_for, install=install)


def _version(path: Path) -> str:
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return "does not answer"
    match = re.search(r"\bV(\d+\.\d+\.\d+)", done.stdout)
    return match[1] if match else ""


def _driver() -> Iterator[Finding]:
    from ptxgen.launcher.driver import check, driver_version, load_driver, max_ptx_version
    from ptxgen.launcher.properties import device_properties

    used_for = "run on a GPU; everything else works without"
    try:
        driver = load_driver()
        version = driver_version()
        count = int(check("cuDeviceGetCount", driver.cuDeviceGetCount()))
        gpus = [device_properties(index) for index in range(count)]
    except PtxgenError as error:
        yield Finding("driver", False, "", "", str(error), used_for, INSTALL_DRIVER)
        return
    newest = max_ptx_version(version)
    details = f"JIT takes .version up to {newest[0]}.{newest[1]}" if newest else ""
    yield Finding("driver", True, f"CUDA {version[0]}.{version[1]}", "", details, used_for)
    for gpu in gpus:
        details = f"{gpu.arch}, {gpu.num_sms} SMs, {gpu.memory_bytes >> 20} MiB"
        yield Finding("gpu", True, gpu.name, f"device {gpu.index}", details, used_for)


def _cache() -> Finding:
    from ptxgen.cache import cache_dir, list_entries

    folder = cache_dir()
    existing = next(p for p in (folder, *folder.parents) if p.exists())
    usable = existing.is_dir() and os.access(existing, os.W_OK)
    details = f"{len(list_entries())} cubins" if usable else "cannot be written"
    install = "set PTXGEN_CACHE_DIR to a folder that can be written"
    return Finding("cache", usable, "", str(folder), details, "not assembling twice", install)
