"""Where shared variables lie and how large shared memory is: addresses and sizes read back."""

from collections.abc import Iterator

from hardware_runs import Case

from ptxgen.launch import Buffer, Launch, Param

_SIZES = ("%dynamic_smem_size", "%total_smem_size", "%aggr_smem_size")
_RESERVED = tuple(f"%reserved_smem_offset_{x}" for x in ("begin", "end", "cap", "0", "1"))
_THREE = ".shared .align 4 .b8 a[12];\n.shared .align 128 .b8 b[100];\n.shared .align 8 .b8 c[8];"
_EXTERN = {
    "dd": ".extern .shared .align 1024 .b8 dd[];", "ll": ".extern .shared .align 16 .b8 ll[];",
    "nn": ".extern .shared .align 128 .b8 nn[];",
}  # fmt: skip
_FUNCTIONS = """.func f(.reg .b64 %to)
{
.shared .align 16 .b8 s[16];
.reg .b32 %r;
mov.u32 %r, s;
st.global.u32 [%to+64], %r;
ret;
}
.func g(.reg .b64 %to)
{
.shared .align 16 .b8 s[16];
.shared .b8 u[5];
.reg .b32 %r;
mov.u32 %r, u;
st.global.u32 [%to+68], %r;
mov.u32 %r, s;
st.global.u32 [%to+72], %r;
ret;
}
"""


def _case(
    name: str, outside: str, inside: str, read: tuple[str, ...], dynamic: int = 0,
    cluster: int = 1, calls: str = "",
) -> Case:  # fmt: skip
    """A kernel whose first thread writes what `read` names: variables and special registers."""
    body = "\n".join(
        f"mov.u32 %r, {x};\nst.global.u32 [%to+{4 * i}], %r;" for i, x in enumerate(read)
    )
    ptx = f""".version 8.6
.target sm_90a
.address_size 64
{outside}
.visible .entry k(.param .u64 output)
{{
{inside}
.reg .b32 %r;
.reg .b64 %to;
.reg .pred %others;
ld.param.u64 %to, [output];
mov.u32 %r, %ctaid.x;
mad.wide.u32 %to, %r, 128, %to;
mov.u32 %r, %tid.x;
setp.ne.u32 %others, %r, 0;
@%others ret;
{body}
{calls}
ret;
}}
"""
    launch = Launch(
        "k", (cluster, 1, 1), (32, 1, 1), (cluster, 1, 1), dynamic,
        (Param("output", "pointer", "out"),), (Buffer("out", 128 * cluster, "out"),),
    )  # fmt: skip
    return Case(f"shared: {name}", ptx, launch, {})


def shared_cases() -> Iterator[Case]:
    """Order, alignment and use of variables; sizes; what is reserved."""
    for dynamic in (0, 100, 4096):
        yield _case(f"no variable, {dynamic} B", "", "", _SIZES, dynamic)
        read = ("a", "b", "c", *_SIZES)
        yield _case(f"three in the kernel, {dynamic} B", "", _THREE, read, dynamic)
    yield _case("reserved bytes", "", "", _RESERVED)
    yield _case("reserved bytes in a cluster", "", _THREE, ("a", *_RESERVED), cluster=2)
    yield _case("three in a cluster", "", _THREE, ("c", "b", "a", *_SIZES), 100, 2)
    yield _case("three in the module", _THREE, "", ("a", "b", "c", *_SIZES))
    yield _case("one of three is not used", _THREE, "", ("c", "a", *_SIZES))
    for dynamic in (0, 200):
        yield _case(
            f"unused in the kernel, {dynamic} B", _EXTERN["ll"],
            ".shared .align 8 .b8 d[8];\n.shared .b8 u[100];", ("d", "ll", *_SIZES), dynamic,
        )  # fmt: skip
    inside = ".shared .align 64 .b8 d[100];\n.shared .align 8 .b8 e[8];"
    yield _case("in module and kernel", _THREE, inside, ("a", "c", "d", "e", *_SIZES), 16)
    nested = ".shared .b8 d[3];\n{ .shared .b32 e; .reg .b32 %x; mov.u32 %x, 7;\n" \
             "st.shared.u32 [e], %x; }"  # fmt: skip
    yield _case("in a scope", "", nested + "\n.shared .b32 h[2];", ("h", "d", *_SIZES))
    calls = "call f, (%to);\ncall g, (%to);"
    yield _case(
        "in called functions", _FUNCTIONS + _THREE, ".shared .b8 d[8];", ("a", "b", "d", *_SIZES),
        calls=calls,
    )  # fmt: skip
    for order in ("dd ll nn", "ll nn dd", "nn dd ll", "ll nn", "nn ll", "dd", "ll"):
        names = tuple(order.split())
        outside = "\n".join(_EXTERN[x] for x in names)
        for dynamic in (0, 64, 5120):
            yield _case(
                f"extern {order}, {dynamic} B", outside, ".shared .align 8 .b64 bars[5];",
                ("bars", *reversed(names), *_SIZES), dynamic,
            )  # fmt: skip
    yield _case(
        "extern, the first not used", "\n".join(_EXTERN.values()), ".shared .b32 x;",
        ("x", "ll", *_SIZES), 64,
    )  # fmt: skip
    yield _case(
        "extern between module variables", _EXTERN["nn"] + "\n.shared .b8 m[3];", ".shared .b64 x;",
        ("nn", "m", "x", *_SIZES), 64,
    )  # fmt: skip
