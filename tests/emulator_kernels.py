"""Small kernels for the emulator's tests: a frame around a body, and what it leaves behind."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator import Observer, Options, Run, run
from ptxgen.launch import Buffer, Launch, Param

HEAD = """.version 8.6
.target sm_90a
.address_size 64
"""

REGISTERS = """.reg .pred %p<16>;
.reg .b16 %h<32>;
.reg .b32 %r<64>;
.reg .b64 %d<32>;
.reg .f32 %f<64>;
.reg .f64 %e<8>;
.reg .b128 %q<4>;
"""


def kernel(body: str, module: str = "", shared: str = "") -> str:
    """PTX of an entry `k(in, out)` with %d0 = in, %d1 = out, %r0 = %tid.x, %r1 = %laneid."""
    return f"""{HEAD}{module}
.visible .entry k(.param .u64 input, .param .u64 output)
{{
{REGISTERS}{shared}
ld.param.u64 %d0, [input];
ld.param.u64 %d1, [output];
mov.u32 %r0, %tid.x;
mov.u32 %r1, %laneid;
{body}
ret;
}}
"""


def launch(
    input_bytes: int = 16, output_bytes: int = 4096, threads: int = 32, grid: int = 1,
    cluster: int = 1, dynamic_smem_bytes: int = 0,
) -> Launch:  # fmt: skip
    """A launch of `kernel`."""
    return Launch(
        "k", (grid, 1, 1), (threads, 1, 1), (cluster, 1, 1), dynamic_smem_bytes,
        (Param("input", "pointer", "in"), Param("output", "pointer", "out")),
        (Buffer("in", max(input_bytes, 16)), Buffer("out", output_bytes, "out")),
    )  # fmt: skip


def execute(
    body: str, data: NDArray[Any] | None = None, *, module: str = "", shared: str = "",
    options: Options | None = None, observer: Observer | None = None, **geometry: int,
) -> Run:  # fmt: skip
    """Run a body on the bytes of `data`."""
    found = launch(0 if data is None else data.nbytes, **geometry)
    given = {} if data is None else {"in": data}
    return run(kernel(body, module, shared), found, given, options, observer)


def words(result: Run, count: int = 32, dtype: Any = np.uint32) -> NDArray[Any]:
    """The first elements of the output."""
    return np.frombuffer(result.buffers["out"], dtype)[:count]


STORE_R2 = """
mul.wide.u32 %d30, %r0, 4;
add.s64 %d30, %d30, %d1;
st.global.u32 [%d30], %r2;
"""
"""out[tid] = %r2."""
