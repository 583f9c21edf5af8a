"""PTX text -> cubin, with ptxas or nvJitLink, and what the assembler said about it.

The flags are fixed, so the same text, arch and assembler give the same bytes. They include `-v`,
whose statistics are the source of registers and spills (ptxas writes its flags into the cubin, so
a run without `-v` gives other bytes, though the same code).
"""

import re
import signal
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from ptxgen.assembly_log import EntryUsage, Message, read_messages, read_usage
from ptxgen.errors import ArgumentError, AssemblyError, ConfigError, ToolMissingError, not_one_of
from ptxgen.rejections import explain
from ptxgen.toolchain import INSTALL_PTXAS, Ptxas, choose_ptxas, find_ptxas

TIMEOUT_S = 600.0
"""An assembly that takes longer is stopped. A 64 x m64n256 kernel takes 1 s."""


@dataclass(frozen=True)
class Cubin:
    """One assembled text."""

    code: bytes = field(repr=False)
    """The ELF file."""
    arch: str
    assembler: str
    """Name and version of what made it, e.g. ptxas 13.5.37."""
    flags: tuple[str, ...]
    entries: tuple[EntryUsage, ...]
    messages: tuple[Message, ...]
    log: str = field(repr=False, compare=False)
    """All that the assembler printed, its compile time included."""

    @property
    def registers(self) -> int:
        """Registers per thread at entry: of the entry that needs most."""
        return max((e.registers for e in self.entries), default=0)

    @property
    def spill_bytes(self) -> int:
        """Bytes of spill stores and loads of all entries."""
        return sum(e.spill_store_bytes + e.spill_load_bytes for e in self.entries)

    @property
    def smem_bytes(self) -> int:
        """Static shared memory of the entry that needs most."""
        return max((e.smem_bytes for e in self.entries), default=0)

    @property
    def losses(self) -> tuple[Message, ...]:
        """The C75xx notes: setmaxnreg ignored, wgmma serialised, a wait injected."""
        return tuple(m for m in self.messages if (m.code or "").startswith("C75"))

    def require_clean(self) -> None:
        """Check that nothing was spilled and no performance was lost.

        Raises: AssemblyError naming the spills or the first C75xx note.
        """
        spilled = [e for e in self.entries if e.spill_store_bytes or e.spill_load_bytes]
        if spilled:
            e = spilled[0]
            raise AssemblyError(
                f"{self.assembler}: entry {e.name} spills registers ({e.spill_store_bytes} B "
                f"stores, {e.spill_load_bytes} B loads) and must not; try a smaller tile, or "
                f"more warpgroups"
            )
        if self.losses:
            first = self.losses[0]
            raise AssemblyError(f"{self.assembler}: {first}", first.line)


def assemble(
    ptx: str,
    arch: str | None = None,
    tool: str | None = None,
    template_lines: Sequence[str] | None = None,
) -> Cubin:
    """Assemble `ptx` for `arch` (its own `.target` if None).

    `tool` is ptxas or nvjitlink; None takes ptxas, and nvJitLink where there is no ptxas and the
    text can do without. `template_lines` holds one template line per PTX line, for the messages.

    Raises: AssemblyError with the PTX line, where the text is rejected; ToolMissingError saying
    what to install; ConfigError if `arch` is not the name of a target; ArgumentError if `ptx` is no
    text.
    """
    plan = plan_assembly(ptx, arch, tool)
    return plan.run(ptx, template_lines)


@dataclass(frozen=True)
class Assembly:
    """A choice of assembler and flags for one text: what it would take to make the cubin."""

    arch: str
    ptxas: Ptxas | None
    """None = nvJitLink."""
    identity: str
    flags: tuple[str, ...]

    def run(self, ptx: str, template_lines: Sequence[str] | None = None) -> Cubin:
        """Make the cubin.

        Raises: AssemblyError.
        """
        if self.ptxas is not None:
            code, log = _run_ptxas(self.ptxas, self.flags, ptx, TIMEOUT_S)
        else:
            code, log = _run_nvjitlink(self.flags, ptx)
        messages = read_messages(log, template_lines)
        if code is None:
            raise _rejection(self, ptx, log, messages)
        if not _is_whole_elf(code):
            raise AssemblyError(
                f"{self.identity} reported success but wrote {len(code)} B that are not a whole "
                f"cubin; is the disk full?"
            )
        entries = read_usage(log)
        return Cubin(code, self.arch, self.identity, self.flags, entries, messages, log)


def plan_assembly(ptx: str, arch: str | None = None, tool: str | None = None) -> Assembly:
    """Choose the assembler and its flags; nothing runs but version queries.

    Raises: as `assemble`, where there is no assembler for this text.
    """
    if not isinstance(ptx, str):
        raise ArgumentError(f"PTX must be text, got {type(ptx).__name__}; try ptx.decode()")
    target = normalise_arch(arch or _directive(ptx, "target", r"\w+"))
    version = _directive(ptx, "version", r"\d+\.\d+")
    if tool not in (None, "ptxas", "nvjitlink"):
        raise ConfigError(not_one_of("assembler", tool, ("ptxas", "nvjitlink")))
    line = _setmaxnreg_line(ptx)
    if tool is None and (
        line is not None or next(find_ptxas(), None) is not None or nvjitlink_version() is None
    ):
        tool = "ptxas"
    if tool == "ptxas":
        ptxas = choose_ptxas(target, version)
        return Assembly(target, ptxas, ptxas.identity, ("-v", f"-arch={target}"))
    if line is not None:
        raise AssemblyError(
            f"PTX line {line}: nvJitLink must not assemble setmaxnreg: it compiles relocatable "
            f"code, in which setmaxnreg is dropped (C7504); try --tool ptxas",
            line,
        )
    linker = nvjitlink_version()
    if linker is None:
        raise ToolMissingError("no nvJitLink; try: pip install nvidia-nvjitlink")
    return Assembly(target, None, f"nvJitLink {linker}", (f"-arch={target}", "-verbose"))


def normalise_arch(name: str) -> str:
    """`name` as ptxas spells it: sm_90a, from 90a, SM90a or sm90a.

    Raises: ConfigError if it does not read as a target.
    """
    match = re.fullmatch(r"(?:sm_?)?(\d{2,3})([af]?)", name.strip().lower())
    if match is None:
        raise ConfigError(f"arch must read like sm_90a, got {name!r}; try sm_90a")
    return f"sm_{match[1]}{match[2]}"


def nvjitlink_version() -> str | None:
    """The version of nvJitLink, or None where it cannot be loaded."""
    try:
        from cuda.bindings import nvjitlink
    except ImportError:
        return None
    try:
        major, minor = nvjitlink.version()
    except RuntimeError:  # cuda.pathfinder's DynamicLibNotFoundError
        return None
    return f"{major}.{minor}"


@lru_cache(maxsize=4)  # a text is looked at several times in a row
def _blank_comments(ptx: str) -> str:
    """The text with comments blanked; lines stay where they are."""
    return re.sub(
        r"//[^\n]*|/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m[0]), ptx, flags=re.DOTALL
    )


def _directive(ptx: str, name: str, value: str) -> str:
    match = re.search(rf"^\s*\.{name}\s+({value})", _blank_comments(ptx), re.MULTILINE)
    if match is None:
        raise AssemblyError(
            f"PTX must have a .{name} directive, and this text has none; try .target sm_90a, "
            ".version 8.0 at its start",
            1,
        )
    return match[1]


def _setmaxnreg_line(ptx: str) -> int | None:
    match = re.search(r"\bsetmaxnreg\.", _blank_comments(ptx))
    return ptx.count("\n", 0, match.start()) + 1 if match else None


def _run_ptxas(
    ptxas: Ptxas, flags: tuple[str, ...], ptx: str, timeout_s: float
) -> tuple[bytes | None, str]:
    """Run ptxas. Returns the cubin, or None where it rejected the text, and the log.

    Raises: AssemblyError if it crashed or did not end; the text is kept, and the message says
    where.
    """
    with tempfile.TemporaryDirectory(prefix="ptxgen-") as folder:
        output = Path(folder) / "out.cubin"
        command = [str(ptxas.path), *flags, "-o", str(output), "-"]
        try:
            done = subprocess.run(
                command, input=ptx.encode(), capture_output=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise AssemblyError(
                f"{ptxas.identity} did not end within {timeout_s:g} s and was stopped; "
                f"the text is kept in {_keep(ptx)}"
            ) from error
        except OSError as error:
            raise ToolMissingError(
                f"{ptxas.path} cannot be run: {error.strerror}; try: {INSTALL_PTXAS}"
            ) from error
        log = (done.stdout + done.stderr).decode("utf-8", "replace")
        if done.returncode < 0:
            name = signal.Signals(-done.returncode).name
            raise AssemblyError(
                f"{ptxas.identity} ({ptxas.path}) was ended by {name}; the text is kept in "
                f"{_keep(ptx)}; try another version: {INSTALL_PTXAS} --upgrade"
            )
        if done.returncode != 0:
            return None, log
        return output.read_bytes() if output.exists() else b"", log


def _keep(ptx: str) -> str:
    """Save a text that broke its assembler; returns the path."""
    with tempfile.NamedTemporaryFile(
        "w", prefix="ptxgen-", suffix=".ptx", delete=False, encoding="utf-8"
    ) as file:
        file.write(ptx)
        return file.name


def _run_nvjitlink(flags: tuple[str, ...], ptx: str) -> tuple[bytes | None, str]:
    """Run nvJitLink. Returns the cubin, or None where it rejected the text, and the log."""
    from cuda.bindings import nvjitlink

    data = ptx.encode()
    try:
        handle = nvjitlink.create(len(flags), list(flags))
    except nvjitlink.nvJitLinkError as error:
        return None, f"ptxas fatal   : nvJitLink does not take {' '.join(flags)}: {error}"
    try:
        try:
            nvjitlink.add_data(handle, nvjitlink.InputType.PTX, data, len(data), "kernel.ptx")
            nvjitlink.complete(handle)
        except nvjitlink.nvJitLinkError:
            size = nvjitlink.get_error_log_size(handle)
            log = bytearray(size)
            nvjitlink.get_error_log(handle, log)
            return None, log.decode("utf-8", "replace").rstrip("\0")
        log = bytearray(nvjitlink.get_info_log_size(handle))
        nvjitlink.get_info_log(handle, log)
        code = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, code)
        return bytes(code), log.decode("utf-8", "replace").rstrip("\0")
    finally:
        nvjitlink.destroy(handle)


def _is_whole_elf(code: bytes) -> bool:
    """Whether `code` is a 64-bit ELF file with all of its section headers."""
    if len(code) < 64 or code[:5] != b"\x7fELF\x02":
        return False
    (headers,) = struct.unpack_from("<Q", code, 40)
    size, count = struct.unpack_from("<HH", code, 58)
    return bool(headers and headers + size * count <= len(code))


def _rejection(plan: Assembly, ptx: str, log: str, messages: tuple[Message, ...]) -> AssemblyError:
    """The error for a text that the assembler did not take: the reason first, then each message
    with the line of PTX that it is about."""
    errors = [m for m in messages if m.severity in ("error", "fatal")]
    if not errors:
        return AssemblyError(f"{plan.identity} failed without saying why:\n{log.strip()}")
    source = ptx.splitlines()
    rows = [explain(errors[0].text, plan.arch) or f"{plan.identity} rejects the text"]
    for message in errors[:8]:
        rows.append(f"  {message}")
        if message.line is not None and message.line <= len(source):
            rows.append(f"    {source[message.line - 1].strip()}")
    if len(errors) > 8:
        rows.append(f"  and {len(errors) - 8} more")
    return AssemblyError("\n".join(rows), errors[0].line)
