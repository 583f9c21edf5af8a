"""What a cubin says about its kernels: registers, memory, spills, parameters. Needs no NVIDIA tool.

The attribute numbers of .nv.info were read off cubins of ptxas 12.8, 13.0 and 13.5 and agree with
what `ptxas -v` and `cuobjdump -res-usage` print.
"""

import io
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ptxgen.errors import ArgumentError, ToolMissingError

INSTALL_PYELFTOOLS = "pip install pyelftools"
RESERVED_SMEM_BYTES = 1024
"""Shared memory that the system keeps at the start of every CTA's, from sm_90 on."""
INSTRUCTION_BYTES = 16

_REGISTERS, _FRAME, _KERNEL_PARAMETER, _PARAMETER_BANK = 0x2F, 0x11, 0x17, 0x0A
_MAX_REGISTERS, _MAX_THREADS, _REQUIRED_THREADS = 0x1B, 0x05, 0x10
_BARRIERS, _CLUSTER, _SPILLS = 0x4C, 0x3D, 0x55
_STORE_LOCAL, _LOAD_LOCAL = 0x387, 0x983
"""Low 12 bits of STL and LDL."""
_NEW_ABI = 8
"""ELF ABI version of CUDA 13's cubins, whose flags hold the architecture in another byte."""


@dataclass(frozen=True)
class KernelParameter:
    """One parameter as the driver sees it."""

    ordinal: int
    offset: int
    """Bytes from the first parameter."""
    nbytes: int


@dataclass(frozen=True)
class KernelResources:
    """What one kernel needs."""

    name: str
    registers: int
    """Per thread, at entry."""
    stack_bytes: int
    """Stack frame of one thread: local arrays and spilled registers."""
    spill_store_bytes: int
    """Bytes that one thread's spill stores write, each instruction counted once, as in ptxas -v.
    Where an old ptxas did not list spills in the file, all stores to local memory count."""
    spill_load_bytes: int
    """Likewise for loads."""
    static_smem_bytes: int
    """Without what the system reserves; rounded up to the alignment of dynamic shared memory,
    which follows it."""
    barriers: int
    """Named barriers."""
    parameters: tuple[KernelParameter, ...]
    parameter_bytes: int
    parameter_bank_offset: int
    """Where the parameters start in constant bank 0, in bytes."""
    constant_bytes: int
    """Constant bank 0."""
    max_registers: int
    """What ptxas was limited to."""
    max_threads: tuple[int, int, int] | None
    """`.maxntid`."""
    required_threads: tuple[int, int, int] | None
    """`.reqntid`."""
    cluster_ctas: tuple[int, int, int] | None
    """`.reqnctapercluster`."""
    instructions: int
    """SASS instructions, padding included."""


@dataclass(frozen=True)
class CubinReport:
    """What `read_cubin` found."""

    arch: str
    """sm_90a; without the a or f if the file does not hold the tool's options."""
    assembler: str
    """Name and version of the tool that wrote it, as far as the file says."""
    options: str
    """Its command line options."""
    kernels: tuple[KernelResources, ...]


def read_cubin(cubin: bytes) -> CubinReport:
    """Read the resource report of a cubin.

    Raises: ToolMissingError without pyelftools; ArgumentError if it is not a whole cubin.
    """
    try:
        from elftools.common.exceptions import ELFError  # type: ignore[import-untyped,unused-ignore]
        from elftools.construct import ConstructError  # type: ignore[import-untyped,unused-ignore]
        from elftools.elf.elffile import ELFFile  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise ToolMissingError(
            f"reading a cubin needs pyelftools, which is not here; try: {INSTALL_PYELFTOOLS}"
        ) from None
    try:
        elf = ELFFile(io.BytesIO(cubin))
        sections = {section.name: section for section in elf.iter_sections()}
        machine = elf["e_machine"]
        if machine == "EM_CUDA":
            is_new = elf["e_ident"]["EI_ABIVERSION"] >= _NEW_ABI
            return _Reader(sections, elf["e_flags"], is_new).report()
    except (
        ELFError, ConstructError, struct.error, ValueError, IndexError, KeyError, TypeError,
        AttributeError, OverflowError, AssertionError, MemoryError, OSError,
    ) as error:  # fmt: skip
        raise ArgumentError(
            f"the file must be a cubin, and could not be read as one ({error}); a PTX text or a "
            "fat binary is not a cubin; try ptxgen assemble, or cuobjdump -xelf all"
        ) from error
    raise ArgumentError(
        f"the file must be a cubin, its ELF machine is {machine}; try ptxgen assemble"
    )


class _Reader:
    """The sections of one cubin."""

    def __init__(self, sections: dict[str, Any], flags: int, is_new: bool) -> None:
        self.sections = sections
        self.sm = (flags >> 8 if is_new else flags) & 0xFF
        self.assembler, self.options = _tool(sections)
        self.symbols = [s.name for s in sections[".symtab"].iter_symbols()]
        self.shared = list(_attributes(self._data(".nv.info")))
        self.lists_spills = is_new or any(
            number == _SPILLS
            for name in sections
            if name.startswith(".nv.info.")
            for number, _ in _attributes(self._data(name))
        )

    def _arch(self) -> str:
        """The flags hold the number, the options of the tool what follows it."""
        given = re.search(rf"-arch[= ](sm_{self.sm}[af]?)\b", self.options)
        return given[1] if given else f"sm_{self.sm}"

    def report(self) -> CubinReport:
        prefix = ".nv.info."
        names = [name.removeprefix(prefix) for name in self.sections if name.startswith(prefix)]
        kernels = [self.kernel(name) for name in names if f".nv.constant0.{name}" in self.sections]
        return CubinReport(
            self._arch(), self.assembler, self.options,
            tuple(sorted(kernels, key=lambda kernel: kernel.name)),
        )  # fmt: skip

    def kernel(self, name: str) -> KernelResources:
        attributes = list(_attributes(self._data(f".nv.info.{name}")))
        own = dict(attributes)
        per_symbol = {
            number: struct.unpack_from("<I", payload, 4)[0]
            for number, payload in self.shared
            if number in (_REGISTERS, _FRAME)
            and self.symbols[struct.unpack_from("<I", payload)[0]] == name
        }
        parameters = []
        for number, payload in attributes:
            if number == _KERNEL_PARAMETER:
                _, ordinal, offset, packed = struct.unpack("<IHHI", payload)
                parameters.append(KernelParameter(ordinal, offset, packed >> 18))
        bank = own.get(_PARAMETER_BANK, bytes(8))
        bank_offset, parameter_bytes = struct.unpack_from("<HH", bank, 4)
        smem = self.sections.get(f".nv.shared.{name}")
        smem_bytes = smem["sh_size"] if smem is not None else 0
        stores, loads = self._spills(name, attributes)
        return KernelResources(
            name=name,
            registers=per_symbol.get(_REGISTERS, 0),
            stack_bytes=per_symbol.get(_FRAME, 0),
            spill_store_bytes=stores,
            spill_load_bytes=loads,
            static_smem_bytes=max(0, smem_bytes - (RESERVED_SMEM_BYTES if self.sm >= 90 else 0)),
            barriers=self._barriers(name, own.get(_BARRIERS)),
            parameters=tuple(sorted(parameters, key=lambda p: p.ordinal)),
            parameter_bytes=parameter_bytes,
            parameter_bank_offset=bank_offset,
            constant_bytes=self.sections[f".nv.constant0.{name}"]["sh_size"],
            max_registers=_small(own.get(_MAX_REGISTERS)),
            max_threads=_three(own.get(_MAX_THREADS)),
            required_threads=_three(own.get(_REQUIRED_THREADS)),
            cluster_ctas=_three(own.get(_CLUSTER)),
            instructions=len(self._data(f".text.{name}")) // INSTRUCTION_BYTES,
        )

    def _barriers(self, name: str, payload: bytes | None) -> int:
        """Named barriers; before CUDA 13 they stand in the flags of the code section."""
        section = self.sections.get(f".text.{name}")
        if payload is not None or section is None:
            return _small(payload)
        return int(section["sh_flags"]) >> 20 & 0x7F

    def _data(self, name: str) -> bytes:
        section = self.sections.get(name)
        return b"" if section is None else bytes(section.data())

    def _spills(self, name: str, attributes: list[tuple[int, bytes]]) -> tuple[int, int]:
        """Bytes of spill stores and spill loads."""
        code = self._data(f".text.{name}")
        if self.lists_spills:
            offsets = [
                offset
                for number, payload in attributes
                if number == _SPILLS
                for _, offset in struct.iter_unpack("<II", payload)
            ]
        else:
            offsets = list(range(0, len(code), INSTRUCTION_BYTES))
        totals = {_STORE_LOCAL: 0, _LOAD_LOCAL: 0}
        for offset in offsets:
            low, high = struct.unpack_from("<QQ", code, offset)
            if low & 0xFFF in totals:
                width_code = high >> 9 & 7
                totals[low & 0xFFF] += (1, 1, 2, 2, 4, 8, 16, 16)[width_code]
        return totals[_STORE_LOCAL], totals[_LOAD_LOCAL]


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(attribute number, payload) of a .nv.info section."""
    position = 0
    while position + 4 <= len(data):
        layout, number, value = struct.unpack_from("<BBH", data, position)
        position += 4
        if layout == 4:
            yield number, data[position : position + value]
            position += value
        else:
            yield number, value.to_bytes(2, "little")


def _small(payload: bytes | None) -> int:
    return 0 if payload is None else int.from_bytes(payload[:2], "little")


def _three(payload: bytes | None) -> tuple[int, int, int] | None:
    if payload is None:
        return None
    x, y, z = struct.unpack("<III", payload)
    return x, y, z


def _tool(sections: dict[str, Any]) -> tuple[str, str]:
    """Name with version, and options, of the tool that wrote the file."""
    note = sections.get(".note.nv.tkinfo")
    if note is None:
        return "", ""
    texts = [t.decode("ascii", "replace") for t in bytes(note.data()).split(b"\0") if len(t) > 3]
    texts = [t for t in texts if t.isprintable() and t != "NVIDIA Corp"]
    release = next((t for t in texts if "release" in t), "")
    at = texts.index(release) if release else 0
    name = texts[at - 1] if at else ""
    options = next((t for t in texts[at:] if "-arch" in t), "")
    return f"{name} {release}".strip(), options.strip()
