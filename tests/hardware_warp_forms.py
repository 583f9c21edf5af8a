"""The warp-wide forms that are compared with an H200, by family."""

from itertools import product

from hardware_warp import Input, WarpForm


def _mma(
    shape: str, types: str, a: int, b: int, c: int, flags: str = "", tail: str = ""
) -> WarpForm:
    """mma.sync with so many registers of A, B and C."""
    d_type, a_type, b_type, c_type = types.split(".")
    wide = d_type == "f64"
    c_class = {"f32": ".f32", "f64": ".f64"}.get(c_type, ".b32")
    operand = ".f64" if wide else ".b32"
    names, at = [], 0
    for count in (a, b, c):
        names.append("{" + ", ".join(f"%i{at + i}" for i in range(count)) + "}")
        at += count
    d = "{" + ", ".join(f"%o{i}" for i in range(c)) + "}"
    layout = "row.col"
    text = f"mma.sync.aligned.{shape}.{layout}{flags}.{types}{tail} {d}, {', '.join(names)};"
    inputs = (Input(a_type, a, operand), Input(b_type, b, operand), Input(c_type, c, c_class))
    return WarpForm(text, inputs, c, c_class, text.split(" ")[0])


def mma_forms() -> list[WarpForm]:
    """mma.sync of sm_80 and sm_89 shapes."""
    forms = []
    for c, n in (("f32", 4), ("f16", 2)):
        forms += [_mma("m16n8k16", f"{c}.f16.f16.{c}", 4, 2, n),
                  _mma("m16n8k8", f"{c}.f16.f16.{c}", 2, 1, n)]  # fmt: skip
        for a, b in product(("e4m3", "e5m2"), repeat=2):
            forms.append(_mma("m16n8k32", f"{c}.{a}.{b}.{c}", 4, 2, n))
            forms.append(_mma("m16n8k16", f"{c}.{a}.{b}.{c}", 2, 1, n))
    forms += [
        _mma("m16n8k16", "f32.bf16.bf16.f32", 4, 2, 4),
        _mma("m16n8k8", "f32.bf16.bf16.f32", 2, 1, 4),
        _mma("m16n8k8", "f32.tf32.tf32.f32", 4, 2, 4),
        _mma("m16n8k4", "f32.tf32.tf32.f32", 2, 1, 4),
        _mma("m8n8k4", "f64.f64.f64.f64", 1, 1, 2), _mma("m16n8k4", "f64.f64.f64.f64", 2, 1, 4),
        _mma("m16n8k8", "f64.f64.f64.f64", 4, 2, 4), _mma("m16n8k16", "f64.f64.f64.f64", 8, 4, 4),
        _mma("m16n8k256", "s32.b1.b1.s32", 4, 2, 4, tail=".and.popc"),
        _mma("m16n8k128", "s32.b1.b1.s32", 2, 1, 4, tail=".and.popc"),
        _mma("m8n8k128", "s32.b1.b1.s32", 1, 1, 2, tail=".and.popc"),
    ]  # fmt: skip
    for (a, b), sat in product(product(("s8", "u8"), repeat=2), ("", ".satfinite")):
        forms += [_mma("m16n8k32", f"s32.{a}.{b}.s32", 4, 2, 4, sat),
                  _mma("m16n8k16", f"s32.{a}.{b}.s32", 2, 1, 4, sat),
                  _mma("m8n8k16", f"s32.{a}.{b}.s32", 1, 1, 2, sat)]  # fmt: skip
    for (a, b), sat in product(product(("s4", "u4"), repeat=2), ("", ".satfinite")):
        forms += [_mma("m16n8k64", f"s32.{a}.{b}.s32", 4, 2, 4, sat),
                  _mma("m16n8k32", f"s32.{a}.{b}.s32", 2, 1, 4, sat),
                  _mma("m8n8k32", f"s32.{a}.{b}.s32", 1, 1, 2, sat)]  # fmt: skip
    return forms


def _sparse(
    shape: str, types: str, a: int, c: int, selector: int, flags: str = ""
) -> WarpForm:  # fmt: skip
    """mma.sp with so many registers of A and of B, and of C."""
    _, a_type, b_type, c_type = types.split(".")
    c_class = ".f32" if c_type == "f32" else ".b32"
    names, at = [], 0
    for count in (a, a, c):
        names.append("{" + ", ".join(f"%i{at + i}" for i in range(count)) + "}")
        at += count
    d = "{" + ", ".join(f"%o{i}" for i in range(c)) + "}"
    opcode = f"mma.sp::ordered_metadata.sync.aligned.{shape}.row.col{flags}.{types}"
    places = "one of two" if a_type == "tf32" else "two of four"
    inputs = (Input(a_type, a), Input(b_type, a), Input(c_type, c, c_class), Input(places))
    text = f"{opcode} {d}, {', '.join(names)}, %i{at}, {selector};"
    return WarpForm(text, inputs, c, c_class, f"{opcode} selector {selector}")


def sparse_forms() -> list[WarpForm]:
    """mma.sp: every type and shape that sm_90 executes as it is written, all selectors."""
    forms = []
    for c, n in (("f32", 4), ("f16", 2)):
        forms += [_sparse("m16n8k16", f"{c}.f16.f16.{c}", 2, n, s) for s in range(4)]
        forms += [_sparse("m16n8k32", f"{c}.f16.f16.{c}", 4, n, s) for s in range(2)]
    for kind, small, large in (("bf16", 16, 32), ("tf32", 8, 16)):
        types = f"f32.{kind}.{kind}.f32"
        forms += [_sparse(f"m16n8k{small}", types, 2, 4, s) for s in range(4)]
        forms += [_sparse(f"m16n8k{large}", types, 4, 4, s) for s in range(2)]
    for a, b in product(("e4m3", "e5m2"), repeat=2):
        forms.append(_sparse("m16n8k64", f"f32.{a}.{b}.f32", 4, 4, 0))
    for bits, small in ((8, 32), (4, 64)):
        for (a, b), sat in product(product("su", repeat=2), ("", ".satfinite")):
            types = f"s32.{a}{bits}.{b}{bits}.s32"
            forms += [_sparse(f"m16n8k{small}", types, 2, 4, s, sat) for s in range(2)]
            forms.append(_sparse(f"m16n8k{2 * small}", types, 4, 4, 0, sat))
    return forms


def matrix_move_forms() -> list[WarpForm]:
    """ldmatrix, stmatrix and movmatrix."""
    forms = []
    for count, trans in product((1, 2, 4), ("", ".trans")):
        outputs = "{" + ", ".join(f"%o{i}" for i in range(count)) + "}"
        inputs = "{" + ", ".join(f"%i{1 + i}" for i in range(count)) + "}"
        for space in (".shared", ".shared::cta"):
            forms.append(WarpForm(
                "add.u32 %n, %i0, %w;\n"
                f"ldmatrix.sync.aligned.m8n8.x{count}{trans}{space}.b16 {outputs}, [%n];",
                (Input("rows"),), count,
            ))  # fmt: skip
        forms.append(WarpForm(
            "add.u32 %n, %i0, %w;\n"
            f"stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%n], {inputs};\n"
            "bar.warp.sync -1;\n" + _dump(),
            (Input("places"), Input("int", count)), 16,
        ))  # fmt: skip
    forms.append(WarpForm("movmatrix.sync.aligned.m8n8.trans.b16 %o0, %i0;", (Input("int"),), 1))
    forms.append(WarpForm(
        "cvt.u64.u32 %x, %s;\ncvta.shared.u64 %x, %x;\n"
        "ldmatrix.sync.aligned.m8n8.x2.b16 {%o0, %o1}, [%x];", (), 2,
    ))  # fmt: skip
    return forms


def _dump() -> str:
    """All 2 KiB of the warp as 16 words of each lane."""
    return "\n".join(
        f"ld.shared.v4.b32 {{%o{4 * i}, %o{4 * i + 1}, %o{4 * i + 2}, %o{4 * i + 3}}}, "
        f"[%s+{512 * i}];" for i in range(4)
    )  # fmt: skip


def exchange_forms() -> list[WarpForm]:
    """shfl, vote, match, redux, elect, activemask: whole warps, pairs, divergent halves."""
    forms = []
    masks = ("-1", "%i2")
    for mode, clamp, mask in product(
        ("up", "down", "bfly", "idx"), ("0", "31", "0x181f", "7"), masks
    ):
        forms.append(WarpForm(
            f"shfl.sync.{mode}.b32 %o0|%p, %i0, %i1, {clamp}, {mask};\nselp.u32 %o1, 1, 0, %p;",
            (Input("int"), Input("lanes"), _FULL), 2,
        ))  # fmt: skip
    quads = "and.b32 %n, %l, 28;\nshl.b32 %n, 15, %n;\n"
    for mode in ("up", "down", "bfly", "idx"):
        clamp = "0x1c00" if mode == "up" else "0x1c1f"
        forms.append(WarpForm(
            f"{quads}shfl.sync.{mode}.b32 %o0|%p, %i0, 2, {clamp}, %n;\nselp.u32 %o1, 1, 0, %p;",
            (Input("int"),), 2,
        ))  # fmt: skip
    test = "setp.gt.u32 %p, %i0, 1;\n"
    for mode, negated, prefix in product(("all", "any", "uni"), ("", "!"), ("", quads)):
        mask = "%n" if prefix else "-1"
        forms.append(WarpForm(
            f"{prefix}{test}vote.sync.{mode}.pred %q, {negated}%p, {mask};\n"
            "selp.u32 %o0, 1, 0, %q;",
            (Input("small"),), 1,
        ))  # fmt: skip
    for prefix in ("", quads):
        mask = "%n" if prefix else "-1"
        forms += [
            WarpForm(f"{prefix}{test}vote.sync.ballot.b32 %o0, %p, {mask};", (Input("small"),), 1),
            WarpForm(f"{prefix}match.any.sync.b32 %o0, %i0, {mask};", (Input("small"),), 1),
            WarpForm(f"{prefix}cvt.u64.u32 %x, %i0;\nmatch.any.sync.b64 %o0, %x, {mask};",
                     (Input("small"),), 1),
            WarpForm(f"{prefix}match.all.sync.b32 %o0|%p, %i0, {mask};\nselp.u32 %o1, 1, 0, %p;",
                     (Input("pairs"),), 2),
            WarpForm(f"{prefix}match.all.sync.b32 %o0|%p, %i0, {mask};\nselp.u32 %o1, 1, 0, %p;",
                     (Input("same"),), 2, name=f"{prefix}match.all of equal values {mask}"),
            WarpForm(f"{prefix}elect.sync %o0|%p, {mask};\nselp.u32 %o1, 1, 0, %p;", (), 2),
        ]  # fmt: skip
        for op in ("add.u32", "add.s32", "min.u32", "min.s32", "max.u32", "max.s32", "and.b32",
                   "or.b32", "xor.b32"):  # fmt: skip
            forms.append(WarpForm(f"{prefix}redux.sync.{op} %o0, %i0, {mask};", (Input("int"),), 1))
    partial: tuple[tuple[str, tuple[Input, ...]], ...] = (
        ("activemask.b32 %o0;", ()),
        ("elect.sync %o0|%q, 0x0FFF0000;\nselp.u32 %o1, 1, 0, %q;", ()),
        ("redux.sync.xor.b32 %o0, %i0, 0x0FFF0000;", (Input("int"),)),
        ("shfl.sync.bfly.b32 %o0, %i0, 3, 31, 0x0FFF0000;", (Input("int"),)),
        ("vote.sync.ballot.b32 %o0, %q, 0x0FFF0000;", ()),
    )
    for label, (body, inputs) in enumerate(partial):
        forms.append(WarpForm(
            "mov.u32 %o0, 7; mov.u32 %o1, 9;\nadd.u32 %n, %l, -16; setp.lt.u32 %p, %n, 12;\n"
            f"setp.gt.u32 %q, %l, 20;\n@!%p bra SKIP{label};\n{body}\nSKIP{label}:\n"
            "bar.warp.sync -1;",
            inputs, 2,
        ))  # fmt: skip
    for register in ("laneid", "lanemask_eq", "lanemask_lt", "lanemask_le", "lanemask_gt",
                     "lanemask_ge", "tid.x", "ntid.x", "ctaid.x", "nctaid.x", "ntid.y",
                     "dynamic_smem_size", "cluster_ctarank", "cluster_nctarank", "clusterid.x",
                     "nclusterid.x", "cluster_ctaid.x", "cluster_nctaid.x"):  # fmt: skip
        forms.append(WarpForm(f"mov.u32 %o0, %{register};", (), 1))
    forms.append(WarpForm(
        "mov.pred %p, %is_explicit_cluster;\nselp.u32 %o0, 1, 0, %p;", (), 1,
    ))  # fmt: skip
    forms.append(WarpForm("nanosleep.u32 20;\nmov.u32 %o0, %i0;", (Input("int"),), 1))
    return forms


_FULL = Input("full")


FAMILIES = {
    "mma.sync": mma_forms(), "mma.sp": sparse_forms(), "matrix moves": matrix_move_forms(),
    "exchanges": exchange_forms(),
}  # fmt: skip
