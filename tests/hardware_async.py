"""A frame for hardware cases of asynchronous copies, mbarriers and clusters.

Every CTA fills its shared memory with its own random bytes from `in`, executes the body, and
writes the first bytes of its shared memory to `out`. Registers: %thread, %cta (index in the grid),
%rank (in the cluster), %smem (a shared address, 1024-byte aligned), %bar (of four mbarriers, 8
bytes each), %src (the start of the global buffer `in`), %aux (a second global buffer, compared),
%map (generic address of the tensor map), %p, %q, %r0..%r15, %x0..%x7, %f0..%f3.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from hardware_runs import WAIT_LIMIT_NS, Case, Part
from numpy.typing import NDArray

from ptxgen.launch import Buffer, Launch, Param, TensorMap

THREADS = 128


def wait(barrier: str = "%bar", parity: str = "0") -> str:
    """A wait for a phase that traps after WAIT_LIMIT_NS."""
    return f"""{{ .reg .pred %done, %early; .reg .b64 %start, %now;
mov.u64 %start, %globaltimer;
AGAIN:
mbarrier.try_wait.parity.shared::cta.b64 %done, [{barrier}], {parity};
@%done bra READY;
mov.u64 %now, %globaltimer;
sub.u64 %now, %now, %start;
setp.lt.u64 %early, %now, {WAIT_LIMIT_NS};
@%early bra AGAIN;
trap;
READY:
}}"""


CLUSTER_SYNC = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;"
STORES_DONE = "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;"


def one_thread(text: str) -> str:
    """What thread 0 of each CTA executes."""
    return f"{{ setp.ne.u32 %q, %thread, 0;\n@%q bra OTHERS;\n{text}\nOTHERS:\n}}\nbar.sync 0;"


def copy_kernel(body: str, smem_bytes: int, num_values: int, map_kind: str) -> str:
    """The text. `map_kind`: none, param (the map is used as the driver made it) or work (it is
    copied to `work`, its address replaced by that of `tensor`)."""
    values = "".join(f",\n.param .u32 v{i}" for i in range(num_values))
    loads = "\n".join(f"ld.param.u32 %v{i}, [v{i}];" for i in range(num_values))
    take_map = {
        "none": "",
        "param": "cvta.param.u64 %map, map;",
        "work": _OWN_MAP,
    }[map_kind]
    return f""".version 8.6
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 dynamic[];
.extern .shared .align 16 .b8 loose[];
.extern .shared .align 128 .b8 lines[];
.visible .entry k(.param .u64 input, .param .u64 output, .param .u64 extra, .param .u64 working,
.param .align 64 .b8 map[128]{values})
{{
.shared .align 8 .b64 barriers[4];
.reg .b64 %src, %out, %aux, %work, %map, %x<8>, %to;
.reg .b32 %thread, %cta, %rank, %smem, %bar, %at, %n, %r<16>, %v<{num_values + 1}>;
.reg .f32 %f<4>;
.reg .pred %p, %q, %more;
ld.param.u64 %src, [input];
ld.param.u64 %out, [output];
ld.param.u64 %aux, [extra];
ld.param.u64 %work, [working];
{loads}
mov.u32 %thread, %tid.x;
mov.u32 %cta, %ctaid.x;
mov.u32 %rank, %cluster_ctarank;
mov.u32 %bar, barriers;
mov.u32 %smem, dynamic;
add.u32 %smem, %smem, 1023;
and.b32 %smem, %smem, {0xFFFFFC00};
{take_map}
mul.lo.u32 %n, %cta, {smem_bytes};
cvt.u64.u32 %x0, %n;
add.u64 %x0, %x0, %src;
mad.wide.u32 %x0, %thread, 16, %x0;
mad.lo.u32 %at, %thread, 16, %smem;
mov.u32 %n, 0;
FILL:
ld.global.v4.b32 {{%r0, %r1, %r2, %r3}}, [%x0];
st.shared.v4.b32 [%at], {{%r0, %r1, %r2, %r3}};
add.u64 %x0, %x0, {THREADS * 16};
add.u32 %at, %at, {THREADS * 16};
add.u32 %n, %n, {THREADS * 16};
setp.lt.u32 %more, %n, {smem_bytes};
@%more bra FILL;
setp.ne.u32 %q, %thread, 0;
@%q bra INITIALISED;
mbarrier.init.shared::cta.b64 [%bar], 1;
mbarrier.init.shared::cta.b64 [%bar+8], 1;
mbarrier.init.shared::cta.b64 [%bar+16], 1;
mbarrier.init.shared::cta.b64 [%bar+24], 1;
fence.mbarrier_init.release.cluster;
INITIALISED:
fence.proxy.async;
bar.sync 0;
{CLUSTER_SYNC}
{body}
bar.sync 0;
{CLUSTER_SYNC}
mul.lo.u32 %n, %cta, {smem_bytes};
cvt.u64.u32 %x0, %n;
add.u64 %x0, %x0, %out;
mad.wide.u32 %x0, %thread, 16, %x0;
mad.lo.u32 %at, %thread, 16, %smem;
mov.u32 %n, 0;
DUMP:
ld.shared.v4.b32 {{%r0, %r1, %r2, %r3}}, [%at];
st.global.v4.b32 [%x0], {{%r0, %r1, %r2, %r3}};
add.u64 %x0, %x0, {THREADS * 16};
add.u32 %at, %at, {THREADS * 16};
add.u32 %n, %n, {THREADS * 16};
setp.lt.u32 %more, %n, {smem_bytes};
@%more bra DUMP;
ret;
}}
"""


_OWN_MAP = """mov.u64 %map, %work;
setp.ne.u32 %q, %thread, 0;
@%q bra COPIED;
mov.u32 %n, 0;
COPY:
cvta.param.u64 %x0, map;
cvt.u64.u32 %x1, %n;
add.u64 %x0, %x0, %x1;
ld.v2.b64 {%x2, %x3}, [%x0];
add.u64 %x1, %x1, %work;
st.global.v2.b64 [%x1], {%x2, %x3};
add.u32 %n, %n, 16;
setp.lt.u32 %more, %n, 128;
@%more bra COPY;
tensormap.replace.tile.global_address.global.b1024.b64 [%work], %aux;
fence.proxy.tensormap::generic.release.gpu;
fence.proxy.tensormap::generic.acquire.gpu [%work], 128;
COPIED:
bar.sync 0;"""


def async_case(
    name: str,
    body: str,
    *,
    smem_bytes: int = 4096,
    cluster: int = 1,
    grid: int = 0,
    values: tuple[int, ...] = (),
    tensor_map: TensorMap | bytes | None = None,
    aux: NDArray[Any] | None = None,
    data: NDArray[Any] | None = None,
    num_results: int = 0,
) -> Case:
    """One launch. `aux` is the second buffer, which a tensor map views; both outputs are
    compared. `values` are the kernel's 32-bit parameters %v0.."""
    num_ctas = grid or cluster
    nbytes = num_ctas * smem_bytes
    seed = sum(map(ord, name))
    given = data
    if given is None:
        given = np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)
    second = np.zeros(16, np.uint8) if aux is None else np.ascontiguousarray(aux)
    kind = {TensorMap: "param", bytes: "work"}.get(type(tensor_map), "none")
    shown = TensorMap(None) if not isinstance(tensor_map, TensorMap) else tensor_map
    map_param = Param("map", "tensor_map", shown)
    if isinstance(tensor_map, bytes):
        map_param = Param("map", "bytes", tensor_map.hex())
    launch = Launch(
        "k", (num_ctas, 1, 1), (THREADS, 1, 1), (cluster, 1, 1), smem_bytes + 1024,
        (
            Param("input", "pointer", "in"), Param("output", "pointer", "out"),
            Param("extra", "pointer", "aux"), Param("working", "pointer", "work"), map_param,
            *(Param(f"v{i}", "u32", v & 0xFFFFFFFF) for i, v in enumerate(values)),
        ),
        (
            Buffer("in", max(nbytes, given.nbytes)), Buffer("out", nbytes, "out"),
            Buffer("aux", second.nbytes, "inout"), Buffer("work", 128),
        ),
    )  # fmt: skip
    contents: Mapping[str, NDArray[Any]] = {"in": given, "aux": second}
    total = nbytes + second.nbytes
    part = Part(name, 0, total, num_results or total // 4)
    ptx = copy_kernel(body, smem_bytes, len(values), kind)
    return Case(name, ptx, launch, contents, (part,))
