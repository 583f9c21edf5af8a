"""Where NVIDIA's command line tools are, and what the ptxas found there can do."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from ptxgen.errors import AssemblyError, ToolMissingError

INSTALL_PTXAS = "pip install --no-deps nvidia-cuda-nvcc"
"""The smallest way to a ptxas: 150 MB, no toolkit, no GPU."""


@dataclass(frozen=True)
class Ptxas:
    """One ptxas."""

    path: Path
    source: str
    """How it was found: the environment variable, PATH, or the wheel."""
    version: str
    """e.g. 13.5.37."""
    archs: tuple[str, ...]
    """The GPU targets that it knows, e.g. sm_90a."""
    max_ptx_version: str
    """The newest `.version` that it takes, e.g. 9.5."""

    @property
    def identity(self) -> str:
        """Name and version, as written in reports and cache keys."""
        return f"ptxas {self.version}"


def find_binaries(name: str) -> Iterator[tuple[str, Path]]:
    """Every place that holds the tool `name`, in order of preference, with how it was found.

    PTXGEN_PTXAS (or PTXGEN_NVDISASM ...) overrides all others; then PATH, CUDA_HOME, CUDA_PATH,
    the nvidia-* wheels of this Python, and /usr/local/cuda.

    Raises: ToolMissingError if the override does not name a program.
    """
    variable = f"PTXGEN_{name.upper()}"
    override = os.environ.get(variable)
    if override:
        found = shutil.which(override)
        if found is None:
            raise ToolMissingError(
                f"{variable}={override} must name a program, and there is none that can be run; "
                f"try unsetting it"
            )
        yield variable, Path(found)
        return
    places = [("PATH", shutil.which(name))]
    for home in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(home):
            places.append((home, shutil.which(name, path=Path(os.environ[home]) / "bin")))
    places += [("wheel", shutil.which(name, path=folder)) for folder in _wheel_folders()]
    places.append(("/usr/local/cuda", shutil.which(name, path="/usr/local/cuda/bin")))
    seen = set()
    for source, found in places:
        if found is not None and os.path.realpath(found) not in seen:
            seen.add(os.path.realpath(found))
            yield source, Path(found)


def _wheel_folders() -> list[Path]:
    """The bin folders that nvidia-* wheels share, newest CUDA first."""
    spec = find_spec("nvidia")
    roots = list(spec.submodule_search_locations or ()) if spec else []
    return sorted(
        (folder for root in roots for folder in Path(root).glob("cu[0-9]*/bin")), reverse=True
    )


def find_ptxas() -> Iterator[Ptxas]:
    """Every ptxas that answers, in order of preference, asked one after the other.

    Raises: ToolMissingError if PTXGEN_PTXAS does not name a ptxas.
    """
    for source, path in find_binaries("ptxas"):
        ptxas = _probe(path, source, path.stat().st_mtime_ns)
        if ptxas is not None:
            yield ptxas
        elif source == "PTXGEN_PTXAS":
            raise ToolMissingError(
                f"PTXGEN_PTXAS={path} does not answer --version and --help like a ptxas; "
                f"try unsetting it, or {INSTALL_PTXAS}"
            )


def choose_ptxas(arch: str, ptx_version: str) -> Ptxas:
    """The first ptxas that knows `arch` and takes `.version ptx_version`.

    Raises: ToolMissingError if there is no ptxas; AssemblyError saying what each one lacks.
    """
    lacks = []
    for ptxas in find_ptxas():
        if arch not in ptxas.archs:
            lacks.append(f"{ptxas.identity} ({ptxas.path}) does not know {arch}")
        elif _number(ptx_version) > _number(ptxas.max_ptx_version):
            lacks.append(
                f"{ptxas.identity} ({ptxas.path}) takes PTX .version up to "
                f"{ptxas.max_ptx_version}, this text says {ptx_version}"
            )
        else:
            return ptxas
    if lacks:
        raise AssemblyError("; ".join(lacks) + f"; try: {INSTALL_PTXAS} --upgrade")
    raise ToolMissingError(
        "no ptxas: not in PTXGEN_PTXAS, on PATH, under CUDA_HOME, or in a wheel of this "
        f"Python; try: {INSTALL_PTXAS}"
    )


@cache
def _probe(path: Path, source: str, mtime_ns: int) -> Ptxas | None:
    """Ask one ptxas what it is; None if it is not one. `mtime_ns` keys the memory of answers."""
    version = re.search(r"\bV(\d+\.\d+\.\d+)", _answer(path, "--version"))
    archs = re.findall(r"'(sm_\d+[af]?)'", _answer(path, "--help"))
    ptx_versions = re.findall(r"\d+\.\d+", _answer(path, "--list-version"))
    if version is None or not archs or not ptx_versions:
        return None
    newest = max(ptx_versions, key=_number)
    return Ptxas(path, source, version[1], tuple(dict.fromkeys(archs)), newest)


def _answer(path: Path, flag: str) -> str:
    try:
        done = subprocess.run(
            [path, flag], capture_output=True, timeout=60, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace")


def _number(version: str) -> tuple[int, ...]:
    """A dotted version as numbers, so that 8.10 is newer than 8.9."""
    return tuple(int(part) for part in version.split("."))
