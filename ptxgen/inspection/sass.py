"""Cubin -> SASS text, through nvdisasm."""

import subprocess
import tempfile
from pathlib import Path

from ptxgen.errors import ArgumentError, ToolMissingError
from ptxgen.toolchain import find_binaries

INSTALL_NVDISASM = "pip install nvidia-cuda-nvdisasm"
TIMEOUT_SECONDS = 120


def disassemble(cubin: bytes, *, encodings: bool = False) -> str:
    """The SASS of all kernels in `cubin`, with the encoded words beside it on request.

    Raises: ToolMissingError without nvdisasm; ArgumentError if it refuses the file.
    """
    found = next(iter(find_binaries("nvdisasm")), None)
    if found is None:
        raise ToolMissingError(
            "no nvdisasm: not in PTXGEN_NVDISASM, on PATH, under CUDA_HOME, or in a wheel of this "
            f"Python; try: {INSTALL_NVDISASM} (5 MB, no GPU needed)"
        )
    _, program = found
    with tempfile.TemporaryDirectory(prefix="ptxgen-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        command = [str(program), "-c", *(["-hex"] if encodings else []), str(path)]
        try:
            result = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise ArgumentError(
                f"{program} must disassemble the cubin within {TIMEOUT_SECONDS} s, and did not; "
                "try again"
            ) from None
    if result.returncode != 0:
        said = (result.stderr or result.stdout).replace(str(path), "the cubin").strip()
        raise ArgumentError(
            f"{program} must be given a cubin that it knows; it said: {said}; try ptxgen assemble"
        )
    return result.stdout
