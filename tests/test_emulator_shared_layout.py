"""Where shared variables lie, against cubins of ptxas 13.0."""

import pytest
from emulator_kernels import HEAD

from ptxgen.emulator.shared_layout import place_shared
from ptxgen.ptx.parser import parse

THREE = ".shared .align 4 .b8 a[12];\n.shared .align 128 .b8 b[100];\n.shared .align 8 .b8 c[8];\n"
FUNCTION = """.func f(.reg .b32 %x)
{
.shared .align 16 .b8 s[16];
.shared .align 16 .b8 t[48];
st.shared.b32 [s], %x;
ret;
}
"""
OTHER = ".visible .entry q()\n{\n.shared .b8 large[40000];\nst.shared.b32 [large], 1;\nret;\n}\n"


def kernel(inside: str, names: str) -> str:
    stores = "".join(f"st.shared.b32 [{name}], 1;\n" for name in names.split())
    return f".visible .entry k()\n{{\n{inside}{stores}CALLret;\n}}\n"


@pytest.mark.parametrize(
    ("text", "called", "places", "static_bytes"),
    [
        (kernel(THREE, "c b a"), False, {"k::a": 0, "k::b": 0x80, "k::c": 0xE8}, 240),
        (THREE + kernel("", "c a"), False, {"a": 0, "c": 0x10}, 24),
        (kernel(THREE, "c a"), False, {"k::a": 0, "k::c": 0x10}, 228),
        (THREE + kernel(".shared .b64 d;\n.shared .align 256 .b8 e[256];\n", "a c d"), False,
         {"k::d": 0, "a": 8, "c": 0x18}, 512),
        (FUNCTION + OTHER + kernel(".shared .b64 d;\n", "d"), True,
         {"k::d": 0, "f::s": 0x10}, 80),
        (FUNCTION + OTHER + kernel(".shared .b64 d;\n", "d"), False, {"k::d": 0}, 8),
        (".extern .shared .align 16 .b8 x[];\n"
         + kernel(".shared .b64 d;\n.shared .b8 u[100];\n", "d x"), False,
         {"k::d": 0, "x": 0x10}, 112),
        (".extern .shared .align 16 .b8 x[];\n.extern .shared .align 128 .b8 y[];\n"
         + kernel(".shared .b64 d;\n", "d y x"), False, {"k::d": 0, "x": 0x10, "y": 0x80}, 128),
    ],
    ids=["all used", "unused of the module", "unused of the kernel", "module behind kernel",
         "called", "not called", "extern beside unused", "two extern"],
)  # fmt: skip
def test_variables_lie_where_ptxas_puts_them(
    text: str, called: bool, places: dict[str, int], static_bytes: int
) -> None:
    call = ".reg .b32 %x;\nmov.b32 %x, 1;\ncall f, (%x);\n" if called else ""
    module = parse(HEAD + text.replace("CALL", call))
    found = place_shared(module, module.entry("k"), 0)
    assert found.offsets == {name: 0x400 + at for name, at in places.items()}
    assert found.end == 0x400 + static_bytes
