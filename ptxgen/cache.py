"""Cubins on disk, by the hash of all that decides their bytes.

A cubin is looked up by text, arch, assembler identity and flags. An entry is one file: a line with
a digest and a JSON header, then the ELF bytes; one that does not match its digest is built again.
Processes that want the same cubin wait for the first of them. A cache that cannot be written is
said once and then done without.
"""

import json
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ptxgen.assembler import Assembly, Cubin, plan_assembly
from ptxgen.assembly_log import EntryUsage, read_messages
from ptxgen.errors import OutputPathError
from ptxgen.files import replacing

SCHEMA = "ptxgen.cubin/1"
MAX_BYTES = 1 << 30
"""Beyond this the entries that were used longest ago are dropped."""
LOCK_TIMEOUT_S = 600.0
"""How long to wait for another process that builds the same cubin."""


class CacheWarning(UserWarning):
    """The cache cannot be used; work goes on without it."""


@dataclass(frozen=True)
class Entry:
    """One cubin in the cache."""

    key: str
    path: Path
    nbytes: int
    used: float
    """When it was last used, in seconds since the epoch."""
    arch: str
    assembler: str
    entries: tuple[str, ...]
    """Names of its kernels."""


def cache_dir() -> Path:
    """Where the cubins are: PTXGEN_CACHE_DIR, or the user's cache folder."""
    override = os.environ.get("PTXGEN_CACHE_DIR")
    if override:
        return Path(override)
    from platformdirs import user_cache_path

    return user_cache_path("ptxgen") / "cubins"


def cache_key(ptx: str, assembly: Assembly) -> str:
    """The hash of text, arch, assembler and flags, in hexadecimal."""
    digest = blake2b(digest_size=20)
    for part in (SCHEMA, ptx, assembly.arch, assembly.identity, *assembly.flags):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def assemble_cached(
    ptx: str,
    arch: str | None = None,
    tool: str | None = None,
    template_lines: Sequence[str] | None = None,
) -> Cubin:
    """As `assembler.assemble`, from the cache where it holds the cubin.

    Raises: as `assembler.assemble`.
    """
    assembly = plan_assembly(ptx, arch, tool)
    key = cache_key(ptx, assembly)
    path = cache_dir() / key[:2] / f"{key}.cubin"
    found = _load(path, template_lines)
    if found is not None:
        return found
    with _lock(path.parent) as usable:
        found = _load(path, template_lines)
        if found is None:
            found = assembly.run(ptx, template_lines)
            if usable:
                _store(path, found)
    return found


def list_entries() -> list[Entry]:
    """All whole entries, the one used last first."""
    entries = []
    for path in cache_dir().glob("??/*.cubin"):
        header = _read(path)
        if header is None:
            continue
        data, _ = header
        with suppress(FileNotFoundError):  # another process may drop it meanwhile
            stat = path.stat()
            names = tuple(e["name"] for e in data["entries"])
            entries.append(
                Entry(
                    path.stem,
                    path,
                    stat.st_size,
                    stat.st_mtime,
                    data["arch"],
                    data["assembler"],
                    names,
                )
            )
    return sorted(entries, key=lambda e: -e.used)


def clear() -> int:
    """Remove every entry; returns how many there were.

    Raises: OutputPathError if the cache cannot be written.
    """
    removed = 0
    for path in cache_dir().glob("??/*.cubin"):
        try:
            path.unlink()
        except FileNotFoundError:  # another process was quicker
            continue
        except OSError as error:
            raise OutputPathError(
                f"cannot remove {path}: {error.strerror}; try its owner, or another "
                "PTXGEN_CACHE_DIR"
            ) from error
        removed += 1
    return removed


def evict(max_bytes: int = MAX_BYTES) -> int:
    """Drop the entries used longest ago until at most `max_bytes` remain; returns how many."""
    files = []
    for path in cache_dir().glob("??/*.cubin"):
        with suppress(FileNotFoundError):
            stat = path.stat()
            files.append((stat.st_mtime, stat.st_size, path))
    files.sort()
    total = sum(size for _, size, _ in files)
    removed = 0
    for _, size, path in files:
        if total <= max_bytes:
            break
        path.unlink(missing_ok=True)
        total -= size
        removed += 1
    return removed


def _load(path: Path, template_lines: Sequence[str] | None) -> Cubin | None:
    """The cubin at `path`, or None if there is none or it is damaged."""
    found = _read(path)
    if found is None:
        return None
    header, code = found
    with suppress(OSError):  # a read-only cache is good enough to read
        os.utime(path)
    return Cubin(
        code,
        header["arch"],
        header["assembler"],
        tuple(header["flags"]),
        tuple(EntryUsage(**entry) for entry in header["entries"]),
        read_messages(header["log"], template_lines),
        header["log"],
    )


def _read(path: Path) -> tuple[dict[str, Any], bytes] | None:
    """Header and cubin at `path`, or None if there is none or the digest does not match."""
    try:
        line, _, code = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    digest, _, text = line.partition(b" ")
    if _digest(text, code) != digest:
        return None
    header: dict[str, Any] = json.loads(text)
    return header, code


def _digest(header: bytes, code: bytes) -> bytes:
    return blake2b(header + b"\n" + code, digest_size=20).hexdigest().encode()


def _store(path: Path, cubin: Cubin) -> None:
    """Write an entry; no reader sees half of one."""
    text = json.dumps(
        {
            "schema": SCHEMA,
            "arch": cubin.arch,
            "assembler": cubin.assembler,
            "flags": cubin.flags,
            "entries": [asdict(e) for e in cubin.entries],
            "log": cubin.log,
        }
    ).encode()
    data = b"%s %s\n%s" % (_digest(text, cubin.code), text, cubin.code)
    try:
        with replacing(path) as file:
            file.write(data)
        evict()
    except OSError as error:
        _warn(error)


@contextmanager
def _lock(folder: Path) -> Iterator[bool]:
    """Hold the lock of one of the 256 parts of the cache. Yields whether that can be written."""
    import filelock

    lock = filelock.FileLock(folder / ".lock", timeout=LOCK_TIMEOUT_S)
    usable = True
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except (OSError, NotImplementedError) as error:  # filelock.Timeout is an OSError
        usable = False
        _warn(error)
    try:
        yield usable
    finally:
        lock.release()


def _warn(error: Exception) -> None:
    warnings.warn(
        f"the cubin cache {cache_dir()} cannot be used: {error}; set PTXGEN_CACHE_DIR to a folder "
        f"that can be written",
        CacheWarning,
        stacklevel=1,
    )
