"""The resource report of a cubin against what ptxas itself says."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxgen.errors import ArgumentError, ToolMissingError
from ptxgen.inspection.cubin import read_cubin
from ptxgen.inspection.sass import disassemble
from ptxgen.toolchain import find_binaries

PTXAS = next((path for _, path in find_binaries("ptxas")), None)
NVDISASM = next((path for _, path in find_binaries("nvdisasm")), None)
needs_ptxas = pytest.mark.skipif(PTXAS is None, reason="no ptxas")
VALUES = 60


def spilling_kernel() -> str:
    """A kernel that keeps 60 values alive in the 24 registers that it may use."""
    loads = "".join(f"ld.volatile.global.f32 %f{i}, [%rd1+{128 * i}];\n" for i in range(VALUES))
    sums = "".join(
        f"fma.rn.f32 %f{i}, %f{i}, %f{(7 * i + 3) % VALUES}, %f{(11 * i + 5) % VALUES};\n"
        for i in range(VALUES)
    )
    stores = "".join(f"st.volatile.global.f32 [%rd1+{128 * i}], %f{i};\n" for i in range(VALUES))
    return f"""
.version 8.0
.target sm_90a
.address_size 64
.entry spills(.param .u64 data, .param .u32 count, .param .align 64 .b8 map[128])
.maxntid 128, 1, 1 .maxnreg 24 .reqnctapercluster 2, 1, 1
{{
  .reg .b64 %rd<3>; .reg .f32 %f<{VALUES}>; .reg .b32 %r<3>;
  .shared .align 16 .b8 buffer[400];
  ld.param.u64 %rd1, [data];
  mov.u32 %r1, buffer;
  st.shared.u64 [%r1], %rd1;
  bar.sync 0;
  ld.shared.u64 %rd1, [%r1+8];
{loads}{sums}{stores}
  ret;
}}
"""


@cache
def assembled() -> tuple[bytes, str]:
    """The cubin and what `ptxas -v` said."""
    with TemporaryDirectory() as folder:
        text, cubin = Path(folder) / "k.ptx", Path(folder) / "k.cubin"
        text.write_text(spilling_kernel())
        command = [str(PTXAS), "-v", "-arch=sm_90a", str(text), "-o", str(cubin)]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        return cubin.read_bytes(), result.stdout + result.stderr


@needs_ptxas
def test_registers_spills_and_memory_are_what_ptxas_says() -> None:
    cubin, log = assembled()
    (kernel,) = read_cubin(cubin).kernels
    pattern = r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
    stack, stores, loads = map(int, re.search(pattern, log).groups())  # type: ignore[union-attr]
    assert stores > 0
    assert (kernel.stack_bytes, kernel.spill_store_bytes, kernel.spill_load_bytes) == (
        stack, stores, loads,
    )  # fmt: skip
    assert f"Used {kernel.registers} registers, used {kernel.barriers} barriers" in log
    assert f"{kernel.static_smem_bytes} bytes smem" in log


@needs_ptxas
def test_parameters_and_launch_bounds_are_those_of_the_text() -> None:
    report = read_cubin(assembled()[0])
    (kernel,) = report.kernels
    assert report.arch == "sm_90a"
    assert report.assembler.startswith("ptxas")
    assert kernel.name == "spills"
    assert [p.nbytes for p in kernel.parameters] == [8, 4, 128]
    assert (kernel.parameter_bank_offset + kernel.parameters[2].offset) % 64 == 0
    assert kernel.cluster_ctas == (2, 1, 1)
    assert kernel.max_threads == (128, 1, 1)


@needs_ptxas
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_cubin_is_read_or_refused(data: st.DataObject) -> None:
    cubin = bytearray(assembled()[0])
    for _ in range(data.draw(st.integers(0, 6))):
        cubin[data.draw(st.integers(0, len(cubin) - 1))] = data.draw(st.integers(0, 255))
    try:
        read_cubin(bytes(cubin[: data.draw(st.integers(0, len(cubin)))]))
    except ArgumentError as error:
        assert "must be a cubin" in str(error)  # noqa: PT017


def test_text_is_no_cubin() -> None:
    with pytest.raises(ArgumentError, match="must be a cubin"):
        read_cubin(b".version 8.0")


def test_missing_pyelftools_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "elftools.elf.elffile", None)
    with pytest.raises(ToolMissingError, match="pip install pyelftools"):
        read_cubin(b"")


@needs_ptxas
@pytest.mark.skipif(NVDISASM is None, reason="no nvdisasm")
def test_disassembly_shows_the_spills() -> None:
    text = disassemble(assembled()[0])
    assert ".text.spills" in text
    assert "STL" in text


def test_missing_nvdisasm_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptxgen.inspection.sass.find_binaries", lambda name: iter(()))
    with pytest.raises(ToolMissingError, match="pip install nvidia-cuda-nvdisasm"):
        disassemble(b"")


@pytest.mark.skipif(NVDISASM is None, reason="no nvdisasm")
def test_disassembly_of_text_is_refused() -> None:
    with pytest.raises(ArgumentError, match="it said"):
        disassemble(b"not a cubin")
