"""Loads, stores, atomics and small asynchronous copies that are compared with an H200."""

from itertools import product

from hardware_warp import Input, WarpForm

_SIZES = {"b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "b32": 4, "u32": 4, "s32": 4,
          "f32": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8}  # fmt: skip
MODULE = """.const .align 16 .b8 table[64] = {1, 2, 3, 250, 5, 6, 7, 8, 9, 10, 200, 12, 13, 14, 15,
16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 128, 129, 130};
.global .align 8 .u32 words[4] = {0x11223344, 0x55667788, 0x99AABBCC, 0xDDEEFF00};"""


def _load(opcode: str, address: str, kind: str, vector: int) -> WarpForm:
    """A load of `vector` elements, each widened to 64 bits."""
    small = _SIZES[kind] < 4 or kind in ("b32", "u32", "s32")
    register = ".f32" if kind == "f32" else ".f64" if kind == "f64" else ".b32" if small else ".b64"
    outputs = ", ".join(f"%o{i}" for i in range(vector))
    operand = f"{{{outputs}}}" if vector > 1 else outputs
    suffix = f".v{vector}" if vector > 1 else ""
    return WarpForm(f"{opcode}{suffix}.{kind} {operand}, [{address}];", (), vector, register)


def load_forms() -> list[WarpForm]:
    """ld of every width, vector, space, cache operator and order."""
    forms = []
    for space, address in ((".global", "%g"), (".shared", "%s"), ("", "%g"), (".const", "table+16"),
                           (".param", "block+16")):  # fmt: skip
        for kind, vector in product(_SIZES, (1, 2, 4)):
            if _SIZES[kind] * vector <= 16 and (space != ".param" or vector == 1):
                forms.append(_load(f"ld{space}", address, kind, vector))
    hints = (".ca", ".cg", ".cs", ".lu", ".cv", ".nc", ".nc.L1::no_allocate", ".L1::evict_first",
             ".L1::evict_last", ".L1::no_allocate", ".L2::64B", ".L2::128B",
             ".L2::256B")  # fmt: skip
    for hint in hints:
        plain = hint.split(".L")[0] if hint.startswith(".nc") else ""
        modifier = hint.removeprefix(".nc") if plain else hint
        opcode = f"ld.global{plain}{modifier}" if plain else f"ld.global{hint}"
        forms += [_load(opcode, "%g", kind, vector) for kind, vector in
                  (("u8", 1), ("b32", 1), ("b32", 4), ("b64", 2))]  # fmt: skip
    orders = [".volatile"] + [f".{o}.{s}" for o, s in
              product(("relaxed", "acquire"), ("cta", "cluster", "gpu", "sys"))]  # fmt: skip
    for order, space in product(orders, ("global", "shared")):
        address = "%g" if space == "global" else "%s"
        forms.append(_load(f"ld{order}.{space}", address, "b32", 1))
    forms += [
        WarpForm("ldu.global.b32 %o0, [%g];", (), 1),
        WarpForm("mov.u64 %x, words;\nld.global.v2.b32 {%o0, %o1}, [%x+8];", (), 2),
        WarpForm("ld.global.b32 %o0, [words+4];", (), 1),
        WarpForm("prefetch.global.L2 [%g];\nprefetchu.L1 [%g];\nld.global.b32 %o0, [%g];", (), 1),
    ]
    return forms


def store_forms() -> list[WarpForm]:
    """st of every width, vector, cache operator and order; local memory; addresses."""
    forms = []
    for kind, vector in product(_SIZES, (1, 2, 4)):
        size = _SIZES[kind]
        if size * vector > 16:
            continue
        register = {"f32": ".f32", "f64": ".f64"}.get(kind, ".b64" if size == 8 else ".b32")
        values = ", ".join(f"%i{i}" for i in range(vector))
        operand = f"{{{values}}}" if vector > 1 else values
        suffix = f".v{vector}" if vector > 1 else ""
        inputs = (Input("int", vector, register),)
        forms.append(WarpForm(
            f"st.global{suffix}.{kind} [%m], {operand};", inputs, memory=True,
        ))  # fmt: skip
        forms.append(WarpForm(
            "{ .reg .b32 %keep<4>;\nld.shared.v4.b32 {%keep0, %keep1, %keep2, %keep3}, [%s];\n"
            f"st.shared{suffix}.{kind} [%s], {operand};\n"
            "ld.shared.v4.b32 {%o0, %o1, %o2, %o3}, [%s];\n"
            "st.shared.v4.b32 [%s], {%keep0, %keep1, %keep2, %keep3}; }",
            inputs, 4, name=f"st.shared{suffix}.{kind}",
        ) if register == ".b32" else WarpForm(
            "{ .local .align 16 .b8 box[16]; .reg .b32 %k<4>;\n"
            "st.local.v4.b32 [box], {%l, %l, %l, %l};\n"
            f"st.local{suffix}.{kind} [box], {operand};\n"
            "ld.local.v4.b32 {%k0, %k1, %k2, %k3}, [box];\n"
            "st.global.v4.b32 [%m], {%k0, %k1, %k2, %k3}; }",
            inputs, memory=True, name=f"st.local{suffix}.{kind}",
        ))  # fmt: skip
    hints = (".wb", ".cg", ".cs", ".wt", ".L1::evict_last", ".L1::no_allocate", ".volatile",
             *(f".{o}.{s}" for o, s in
               product(("relaxed", "release"), ("cta", "cluster", "gpu", "sys"))))  # fmt: skip
    for hint in hints:
        ordered = hint.startswith((".volatile", ".relaxed", ".release"))
        opcode = f"st{hint}.global" if ordered else f"st.global{hint}"
        forms.append(WarpForm(f"{opcode}.b32 [%m+4], %i0;", (Input("int"),), memory=True))
    forms += [
        WarpForm("cvt.u64.u32 %x, %s;\ncvta.shared.u64 %x, %x;\nld.b32 %o0, [%x+4];", (), 1),
        WarpForm("cvta.global.u64 %x, %g;\nsub.u64 %x, %x, %g;\ncvt.u32.u64 %o0, %x;", (), 1),
        WarpForm("isspacep.global %p, %g;\nisspacep.shared %q, %g;\nselp.u32 %o0, 2, 0, %p;\n"
                 "@%q or.b32 %o0, %o0, 1;", (), 1),
        WarpForm("cvt.u64.u32 %x, %s;\ncvta.shared.u64 %x, %x;\nisspacep.shared %p, %x;\n"
                 "isspacep.shared::cluster %q, %x;\nselp.u32 %o0, 2, 0, %p;\n"
                 "@%q add.u32 %o0, %o0, 1;",
                 (), 1),
        WarpForm("cvt.u64.u32 %x, %s;\ncvta.shared.u64 %x, %x;\ncvta.to.shared.u64 %x, %x;\n"
                 "cvt.u32.u64 %o0, %x;\nsub.u32 %o0, %o0, %w;", (), 1),
    ]  # fmt: skip
    return forms


_INTEGER_ATOMICS = {
    "and": ("b32", "b64"), "or": ("b32", "b64"), "xor": ("b32", "b64"), "exch": ("b32", "b64"),
    "cas": ("b16", "b32", "b64"), "add": ("u32", "s32", "u64"), "inc": ("u32",), "dec": ("u32",),
    "min": ("u32", "s32", "u64", "s64"), "max": ("u32", "s32", "u64", "s64"),
}  # fmt: skip


def _atomic(opcode: str, kind: str, count: int, place: str) -> WarpForm:
    """An atomic on the lane's own word, which starts with the first input; old and new value."""
    size = _SIZES.get(kind, 4)
    register = {"f32": ".f32", "f64": ".f64", "b16": ".b16"}.get(
        kind, ".b64" if size == 8 else ".b32"
    )
    if kind in ("f16", "bf16"):
        register = ".b16"
    loaded = ".b32" if register == ".b16" else register
    values = {"f16x2": "f16", "bf16x2": "bf16", "bf16": "bf16", "f16": "f16"}.get(kind, kind)
    values = values if values in ("f16", "bf16", "f32", "f64") else "int"
    operands = [f"%i{1 + i}" for i in range(count)]
    setup = ""
    if register == ".b16":
        setup = "".join(f"cvt.u16.u32 %v{i}, {o};\n" for i, o in enumerate(operands))
        operands = [f"%v{i}" for i in range(count)]
    address = {"global": "%m", "shared": "%s"}[place]
    memory = loaded[1:]
    text = (
        f"{{ .reg .b16 %v<3>; .reg {register} %old; .reg {loaded} %keep;\n{setup}"
        f"ld.{place}.{memory} %keep, [{address}];\nst.{place}.{memory} [{address}], %i0;\n"
        f"{opcode}.{kind} %old, [{address}], {', '.join(operands)};\n"
        + ("cvt.u32.u16 %o0, %old;\n" if register == ".b16" else f"mov{loaded} %o0, %old;\n")
        + f"ld.{place}.{memory} %o1, [{address}];\nst.{place}.{memory} [{address}], %keep; }}"
    )
    return WarpForm(
        text, (Input(values, 1 + count, loaded),), 2, loaded, f"{opcode}.{kind} {place}",
        memory=place == "global",
    )  # fmt: skip


def atomic_forms() -> list[WarpForm]:
    """atom and red: operations, types, spaces, orders, vectors; words that lanes share."""
    forms = []
    for place in ("global", "shared"):
        for op, kinds in _INTEGER_ATOMICS.items():
            for kind in kinds:
                count = 2 if op == "cas" else 1
                forms.append(_atomic(f"atom.{place}.{op}", kind, count, place))
        forms += [_atomic(f"atom.{place}.add", kind, 1, place) for kind in ("f32", "f64")]
        forms += [_atomic(f"atom.{place}.add.noftz", kind, 1, place)
                  for kind in ("f16x2", "bf16x2", "f16", "bf16")]  # fmt: skip
    for order, scope in product(("relaxed", "acquire", "release", "acq_rel"),
                                ("cta", "cluster", "gpu", "sys")):  # fmt: skip
        forms.append(_atomic(f"atom.{order}.{scope}.global.add", "u32", 1, "global"))
    for kind, vectors in {"f32": (2, 4), "f16x2": (2, 4), "bf16x2": (2, 4), "f16": (2, 4, 8),
                          "bf16": (2, 4, 8)}.items():  # fmt: skip
        for op, vector in product(("add", "min", "max"), vectors):
            if kind == "f32" and op != "add":
                continue
            forms += _vectors(op, kind, vector)
    for op in ("add.u32", "min.s32", "max.u32", "and.b32", "or.b32", "xor.b32", "add.u64"):
        kind = op.split(".")[1]
        register = ".b64" if kind == "u64" else ".b32"
        forms.append(WarpForm(
            f"mad.wide.s32 %x, %l, -16, %m;\nand.b32 %n, %l, 3;\nmad.wide.u32 %x, %n, 16, %x;\n"
            f"st.global{register} [%m], %i1;\nbar.warp.sync -1;\n"
            f"red.global.{op} [%x], %i0;",
            (Input("int", 2, register),), memory=True, name=f"red.global.{op} shared by lanes",
        ))  # fmt: skip
        forms.append(WarpForm(
            f"and.b32 %n, %l, 3;\nmad.lo.u32 %n, %n, 16, %w;\n{{ .reg {register} %keep;\n"
            f"ld.shared{register} %keep, [%s];\nbar.warp.sync -1;\n"
            f"red.shared.{op} [%n], %i0;\nbar.warp.sync -1;\nld.shared{register} %o0, [%s];\n"
            f"bar.warp.sync -1;\nst.shared{register} [%s], %keep;\nbar.warp.sync -1; }}",
            (Input("int", 1, register),), 1, register, f"red.shared.{op} shared by lanes",
        ))  # fmt: skip
    forms.append(WarpForm(
        "{ .reg .b128 %a1, %b1, %old;\nmov.b128 %a1, {%i0, %i1};\nmov.b128 %b1, {%i2, %i3};\n"
        "st.global.v2.b64 [%m], {%i0, %i1};\natom.global.cas.b128 %old, [%m], %a1, %b1;\n"
        "mov.b128 {%o0, %o1}, %old; }",
        (Input("int", 4, ".b64"),), 2, ".b64", "atom.global.cas.b128", memory=True,
    ))  # fmt: skip
    return forms


def _vectors(op: str, kind: str, vector: int) -> list[WarpForm]:
    """atom and red of a vector of floats."""
    narrow = kind in ("f16", "bf16")
    values = kind.removesuffix("x2")
    words = vector // 2 if narrow else vector
    register = ".f32" if kind == "f32" else ".b32"
    noftz = "" if kind == "f32" else ".noftz"
    if words < 2 and not narrow:
        return []
    start = [f"%i{i}" for i in range(words)]
    given = [f"%i{words + i}" for i in range(words)]
    setup = ""
    operands, old = given, [f"%o{i}" for i in range(words)]
    after = ""
    if narrow:
        operands = [f"%v{i}" for i in range(vector)]
        setup = "".join(
            f"mov.b32 {{%v{2 * i}, %v{2 * i + 1}}}, {g};\n" for i, g in enumerate(given)
        )
        after = "".join(f"mov.b32 %o{i}, {{%u{2 * i}, %u{2 * i + 1}}};\n" for i in range(words))
        old = [f"%u{i}" for i in range(vector)]
    store = f"st.global.v{words}{register} [%m], {{{', '.join(start)}}};\n"
    if words == 1:
        store = f"st.global{register} [%m], {start[0]};\n"
    head = f"{{ .reg .b16 %v<9>, %u<9>;\n{setup}{store}"
    operand, returned = f"{{{', '.join(operands)}}}", f"{{{', '.join(old)}}}"
    inputs = (Input(values, 2 * words, register),)
    return [
        WarpForm(
            f"{head}atom.global.v{vector}.{kind}.{op}{noftz} {returned}, [%m], {operand};\n"
            f"{after} }}".replace(f".{kind}.{op}{noftz}", f".{op}{noftz}.{kind}").replace(
                f".v{vector}.{op}{noftz}.{kind}", f".{op}{noftz}.v{vector}.{kind}"
            ),
            inputs, words, register, f"atom.global.{op}{noftz}.v{vector}.{kind}", memory=True,
        ),
        WarpForm(
            f"{head}red.global.{op}{noftz}.v{vector}.{kind} [%m], {operand}; }}",
            inputs, 0, ".b32", f"red.global.{op}{noftz}.v{vector}.{kind}", memory=True,
        ),
    ]  # fmt: skip


def copy_forms() -> list[WarpForm]:
    """cp.async: sizes, zero fill, ignored sources, groups, arrival at an mbarrier."""
    forms: list[tuple[str, tuple[Input, ...]]] = []
    keep = "ld.shared.v4.b32 {%k0, %k1, %k2, %k3}, [%s];\n"
    head = f"{{ .reg .b32 %k<4>;\n{keep}bar.warp.sync -1;\n"
    tail = ("bar.warp.sync -1;\nld.shared.v4.b32 {%o0, %o1, %o2, %o3}, [%s];\nbar.warp.sync -1;\n"
            "st.shared.v4.b32 [%s], {%k0, %k1, %k2, %k3};\nbar.warp.sync -1; }")  # fmt: skip
    wait = "cp.async.wait_all;\n"
    for size in (4, 8, 16):
        forms.append((f"cp.async.ca.shared.global [%s], [%g+512], {size};", ()))
        for given in (0, 1, 3, size - 1, size):
            forms.append((f"cp.async.ca.shared.global [%s], [%g+512], {size}, {given};", ()))
        forms.append((
            f"and.b32 %n, %i0, {size - 1};\n"
            f"cp.async.ca.shared.global [%s], [%g+512], {size}, %n;", (Input("int"),),
        ))  # fmt: skip
        forms.append((
            f"setp.gt.u32 %p, %i0, 1;\ncp.async.ca.shared.global [%s], [%g+512], {size}, %p;",
            (Input("small"),),
        ))  # fmt: skip
    forms += [
        ("cp.async.cg.shared.global [%s], [%g+512], 16;", ()),
        ("cp.async.cg.shared.global [%s], [%g+512], 16, 5;", ()),
        ("cp.async.cg.shared.global.L2::128B [%s], [%g+512], 16;", ()),
        ("cp.async.ca.shared.global.L2::256B [%s], [%g+512], 8;", ()),
        ("cp.async.ca.shared.global [%s], [%g+512], 8;\ncp.async.commit_group;\n"
         "cp.async.ca.shared.global [%s+8], [%g+1024], 8;\ncp.async.commit_group;\n"
         "cp.async.wait_group 1;\ncp.async.wait_group 0;", ()),
    ]  # fmt: skip
    return [WarpForm(f"{head}{text}\n{wait}{tail}", inputs, 4, name=text) for text, inputs in forms]


FAMILIES = {
    "loads": load_forms(), "stores": store_forms(), "atomics": atomic_forms(),
    "cp.async": copy_forms(),
}  # fmt: skip
