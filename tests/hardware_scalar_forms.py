"""The instruction forms of single threads that are compared with an H200, by family."""

from itertools import product

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
UNSIGNED_COMPARISONS = ("lo", "ls", "hi", "hs")
FLOAT_COMPARISONS = (*COMPARISONS, "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
ROUNDINGS = ("rn", "rz", "rm", "rp")
_REGISTER = {16: "h", 32: "r", 64: "a"}
_RESULT = {16: "h", 32: "r", 64: "x"}


def _operands(bits: int, count: int) -> str:
    return ", ".join(f"%{_REGISTER[bits]}{i}" for i in range(count))


def integer_forms() -> list[str]:
    """Arithmetic and logic of 16, 32 and 64 bits."""
    forms = []
    for bits, sign in product((16, 32, 64), "us"):
        t, d = f"{sign}{bits}", _RESULT[bits]
        two, three = _operands(bits, 2), _operands(bits, 3)
        one = _operands(bits, 1)
        forms += [f"{d}: {op}.{t} $, {two};" for op in
                  ("add", "sub", "mul.lo", "mul.hi", "min", "max")]  # fmt: skip
        forms += [f"{d}: {op}.{t} $, {three};" for op in ("mad.lo", "mad.hi", "sad")]
        forms += [
            f"{d}: {{ .reg .b{bits} %n; or.b{bits} %n, {two.split(', ')[1]}, 1; "
            f"{op}.{t} $, {one}, %n; }}" for op in ("div", "rem")
        ]  # fmt: skip
        forms.append(f"{d}: shr.{t} $, {one}, %r1;")
        if sign == "s":
            forms += [f"{d}: {op}.{t} $, {one};" for op in ("abs", "neg")]
        if bits < 64:
            wide = {16: "r", 32: "x"}[bits]
            addend = {16: "%r2", 32: "%a2"}[bits]
            forms.append(f"{wide}: mul.wide.{t} $, {two};")
            forms.append(f"{wide}: mad.wide.{t} $, {two}, {addend};")
    for bits in (16, 32, 64):
        d = _RESULT[bits]
        two, one = _operands(bits, 2), _operands(bits, 1)
        forms += [f"{d}: {op}.b{bits} $, {two};" for op in ("and", "or", "xor")]
        forms += [f"{d}: {op}.b{bits} $, {one};" for op in ("not", "cnot")]
        forms += [f"{d}: shl.b{bits} $, {one}, %r1;"]
    for bits in (32, 64):
        forms += [f"r: {op}.b{bits} $, {_operands(bits, 1)};" for op in ("popc", "clz")]
        forms.append(f"{_RESULT[bits]}: brev.b{bits} $, {_operands(bits, 1)};")
    for t in ("u32", "s32", "u64", "s64"):
        one = _operands(int(t[1:]), 1)
        forms += [f"r: bfind{shift}.{t} $, {one};" for shift in ("", ".shiftamt")]
        forms.append(
            f"{_RESULT[int(t[1:])]}: {{ .reg .b32 %n, %m; and.b32 %n, %r1, 255; "
            f"and.b32 %m, %r2, 255; bfe.{t} $, {one}, %n, %m; }}"
        )
    forms += [
        "r: bfi.b32 $, %r0, %r1, %r2, 7;", "r: bfi.b32 $, %r0, %r1, 3, %r2;",
        "x: { .reg .b32 %n; and.b32 %n, %r2, 255; bfi.b64 $, %a0, %a1, %n, 17; }",
        "x: { .reg .b32 %n; and.b32 %n, %r2, 255; bfi.b64 $, %a0, %a1, 5, %n; }",
        "r: fns.b32 $, %r0, %r1, 1;", "r: fns.b32 $, %r0, 3, 2;", "r: fns.b32 $, %r0, 20, -2;",
        "r: fns.b32 $, %r0, 7, 0;",
    ]  # fmt: skip
    forms += [f"r: {op}.{hl}.{t} $, {_operands(32, n)};" for (op, n), hl, t in
              product((("mul24", 2), ("mad24", 3)), ("lo", "hi"), ("u32", "s32"))]  # fmt: skip
    forms += [
        "r: add.sat.s32 $, %r0, %r1;",
        "r: sub.sat.s32 $, %r0, %r1;",
        "r: mad.hi.sat.s32 $, %r0, %r1, %r2;",
        "r: mad24.hi.sat.s32 $, %r0, %r1, %r2;",
    ]
    for op, t in product(("add", "min", "max"), ("u16x2", "s16x2")):
        forms.append(f"r: {op}.{t} $, %r0, %r1;")
    forms += [f"r: {op}.relu.{t} $, %r0, %r1;" for op, t in
              product(("min", "max"), ("s16x2", "s32"))]  # fmt: skip
    forms += [f"r: dp4a.{a}.{b} $, %r0, %r1, %r2;" for a, b in product(("u32", "s32"), repeat=2)]
    forms += [f"r: dp2a.{h}.{a}.{b} $, %r0, %r1, %r2;" for h, a, b in
              product(("lo", "hi"), ("u32", "s32"), ("u32", "s32"))]  # fmt: skip
    forms += [f"r: szext.{m}.{t} $, %r0, %r1;" for m, t in
              product(("clamp", "wrap"), ("u32", "s32"))]  # fmt: skip
    forms += [f"r: bmsk.{m}.b32 $, %r0, %r1;" for m in ("clamp", "wrap")]
    return forms


def bit_forms() -> list[str]:
    """lop3, shifts of two words, byte permutation, carries, packing, comparison, selection."""
    forms = [f"r: lop3.b32 $, %r0, %r1, %r2, {lut:#x};" for lut in range(0, 256, 5)]
    forms += [f"r: shf.{d}.{m}.b32 $, %r0, %r1, %r2;" for d, m in
              product("lr", ("wrap", "clamp"))]  # fmt: skip
    forms += [f"r: prmt.b32{m} $, %r0, %r1, %r2;" for m in
              ("", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16")]  # fmt: skip
    forms += [f"r: prmt.b32 $, %r0, %r1, {s:#x};" for s in (0x3210, 0x5410, 0x7632, 0xFEDC, 0x8080)]
    for bits, c in ((32, "r"), (64, "a")):
        d = _RESULT[bits]
        scratch = f"{{ .reg .b{bits} %n; "
        for first, second in (("add.cc", "addc"), ("sub.cc", "subc")):
            forms += [
                f"{d}: {scratch}{first}.u{bits} %n, %{c}0, %{c}1; "
                f"{second}.u{bits} $, %{c}2, %{c}0; }}",
                f"{d}: {scratch}{first}.s{bits} %n, %{c}0, %{c}1; "
                f"{second}.cc.s{bits} %n, %{c}2, %{c}0; {second}.s{bits} $, %n, %{c}1; }}",
            ]
        for hl in ("lo", "hi"):
            forms.append(
                f"{d}: {scratch}mad.{hl}.cc.u{bits} %n, %{c}0, %{c}1, %{c}2; "
                f"madc.{hl}.u{bits} $, %{c}1, %{c}2, %n; }}"
            )
    forms += [
        "x: mov.b64 $, {%r0, %r1};",
        "r: mov.b32 $, {%h0, %h1};",
        "x: mov.b64 $, {%h0, %h1, %h2, %h0};",
        "r: { .reg .b32 %n, %m; mov.b64 {%n, %m}, %a0; xor.b32 $, %n, %m; }",
        "h: { .reg .b16 %n, %m; mov.b32 {%n, %m}, %r0; add.u16 $, %n, %m; }",
        "h: { .reg .b16 %n; mov.b32 {_, %n}, %r0; mov.b16 $, %n; }",
    ]
    for bits in (16, 32, 64):
        two = _operands(bits, 2)
        forms += [f"p: setp.{c}.{t}{bits} $, {two};" for c, t in product(COMPARISONS, "us")]
        forms += [f"p: setp.{c}.u{bits} $, {two};" for c in UNSIGNED_COMPARISONS]
        forms += [f"p: setp.{c}.b{bits} $, {two};" for c in ("eq", "ne")]
        forms.append(f"{_RESULT[bits]}: selp.b{bits} $, {two}, %p0;")
    forms += [f"p: setp.lt.{b}.s32 $, %r0, %r1, %p0;" for b in ("and", "or", "xor")]
    forms += [
        "p: { .reg .pred %n, %m; setp.gt.and.u32 %n|%m, %r0, %r1, %p0; xor.pred $, %n, %m; }",
        "p: setp.lt.or.s32 $, %r0, %r1, !%p0;", "r: set.gt.u32.s32 $, %r0, %r1;",
        "r: set.le.and.s32.u32 $, %r0, %r1, %p0;", "f: set.lt.f32.u32 $, %r0, %r1;",
        "r: slct.b32.s32 $, %r0, %r1, %r2;", "x: slct.u64.s32 $, %a0, %a1, %r2;",
        "p: { .reg .pred %n; setp.ne.b32 %n, %r0, %r1; and.pred $, %n, %p0; }",
        "p: { .reg .pred %n; setp.lt.u32 %n, %r0, %r1; not.pred $, %n; }",
        "p: { .reg .pred %n; setp.lt.u32 %n, %r0, %r1; or.pred $, %n, !%p0; }",
    ]  # fmt: skip
    for a, b in product(("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"), repeat=2):
        source = {"8": "%h0", "16": "%h0", "32": "%r0", "64": "%a0"}[b[1:]]
        d = {"8": "r", "16": "h", "32": "r", "64": "x"}[a[1:]]
        if a != b:
            forms.append(f"{d}: cvt.{a}.{b} $, {source};")
        contained = (b[0] == "u" and int(a[1:]) > int(b[1:])) or (
            a[0] == b[0] == "s" and int(a[1:]) > int(b[1:])
        )
        if a != b and not contained:
            forms.append(f"{d}: cvt.sat.{a}.{b} $, {source};")
    return forms


def float32_forms() -> list[str]:
    """f32 arithmetic in every rounding, comparison, sign and class."""
    forms = []
    for op, r, ftz, sat in product(("add", "sub", "mul"), ROUNDINGS, ("", ".ftz"), ("", ".sat")):
        forms.append(f"f: {op}.{r}{ftz}{sat}.f32 $, %f0, %f1;")
    forms += [f"f: fma.{r}{ftz}{sat}.f32 $, %f0, %f1, %f2;" for r, ftz, sat in
              product(ROUNDINGS, ("", ".ftz"), ("", ".sat"))]  # fmt: skip
    forms += [f"f: div.{r}{ftz}.f32 $, %f0, %f1;" for r, ftz in product(ROUNDINGS, ("", ".ftz"))]
    forms += [f"f: {op}.{r}{ftz}.f32 $, %f0;" for op, r, ftz in
              product(("rcp", "sqrt"), ROUNDINGS, ("", ".ftz"))]  # fmt: skip
    forms += [f"f: {op}{ftz}{nan}{x}.f32 $, %f0, %f1;" for op, ftz, nan, x in
              product(("min", "max"), ("", ".ftz"), ("", ".NaN"),
                      ("", ".xorsign.abs"))]  # fmt: skip
    forms += [f"f: {op}{ftz}.f32 $, %f0;" for op, ftz in product(("abs", "neg"), ("", ".ftz"))]
    forms += [f"p: setp.{c}{ftz}.f32 $, %f0, %f1;" for c, ftz in
              product(FLOAT_COMPARISONS, ("", ".ftz"))]  # fmt: skip
    forms += [f"p: testp.{c}.f32 $, %f0;" for c in
              ("finite", "infinite", "number", "notanumber", "normal", "subnormal")]  # fmt: skip
    forms += [
        "f: copysign.f32 $, %f0, %f1;",
        "f: selp.f32 $, %f0, %f1, %p0;",
        "r: set.ne.u32.f32 $, %f0, %f1;",
        "f: slct.f32.f32 $, %f0, %f1, %f2;",
        "f: slct.ftz.f32.f32 $, %f0, %f1, %f2;",
    ]
    return forms


def float64_forms() -> list[str]:
    """f64 arithmetic."""
    forms = [f"e: {op}.{r}.f64 $, %e0, %e1;" for op, r in
             product(("add", "sub", "mul", "div"), ROUNDINGS)]  # fmt: skip
    forms += [f"e: fma.{r}.f64 $, %e0, %e1, %e2;" for r in ROUNDINGS]
    forms += [f"e: {op}.{r}.f64 $, %e0;" for op, r in product(("rcp", "sqrt"), ROUNDINGS)]
    forms += [
        "e: min.f64 $, %e0, %e1;",
        "e: max.f64 $, %e0, %e1;",
        "e: abs.f64 $, %e0;",
        "e: neg.f64 $, %e0;",
        "e: copysign.f64 $, %e0, %e1;",
    ]
    forms += [f"p: setp.{c}.f64 $, %e0, %e1;" for c in FLOAT_COMPARISONS]
    for t, r in product(("u32", "s32", "u64", "s64"), ("rni", "rzi", "rmi", "rpi")):
        forms.append(f"{_RESULT[int(t[1:])]}: cvt.{r}.{t}.f64 $, %e0;")
    forms += [f"e: cvt.{r}.f64.f64 $, %e0;" for r in ("rni", "rzi", "rmi", "rpi")]
    for r, sat in product(ROUNDINGS, ("", ".sat")):
        forms.append(f"f: cvt.{r}{sat}.f32.f64 $, %e0;")
    forms += [f"h: cvt.{r}.f16.f64 $, %e0;" for r in ("rn", "rz")]
    for r, t in product(ROUNDINGS, ("u32", "s32", "u64", "s64")):
        forms.append(f"e: cvt.{r}.f64.{t} $, %{_REGISTER[int(t[1:])]}0;")
    return forms


def half_forms(kind: str) -> list[str]:
    """Arithmetic of `kind` f16 or bf16, single and packed."""
    forms = []
    ftz = ("", ".ftz") if kind == "f16" else ("",)
    sat = ("", ".sat") if kind == "f16" else ("",)
    for d, t in (("h", kind), ("r", f"{kind}x2")):
        two, three = (", ".join(f"%{d}{i}" for i in range(n)) for n in (2, 3))
        forms += [f"{d}: {op}.rn{z}{s}.{t} $, {two};" for op, z, s in
                  product(("add", "sub", "mul"), ftz, sat)]  # fmt: skip
        forms += [f"{d}: fma.rn{z}{s}.{t} $, {three};" for z, s in product(ftz, (*sat, ".relu"))]
        forms += [f"{d}: fma.rn.oob{r}.{t} $, {three};" for r in ("", ".relu")]
        forms += [f"{d}: {op}{z}{nan}{x}.{t} $, {two};" for op, z, nan, x in
                  product(("min", "max"), ftz, ("", ".NaN"), ("", ".xorsign.abs"))]  # fmt: skip
        forms += [f"{d}: {op}.{t} $, %{d}0;" for op in ("neg", "abs")]
    forms += [f"p: setp.{c}.{kind} $, %h0, %h1;" for c in FLOAT_COMPARISONS]
    forms += [f"r: {{ .reg .pred %n, %m; setp.{c}.{kind}x2 %n|%m, %r0, %r1; "
              "selp.u32 $, 2, 0, %n; @%m or.b32 $, $, 1; }" for c in ("lt", "neu")]  # fmt: skip
    forms += [f"r: set.{c}.{kind}x2.{kind}x2 $, %r0, %r1;" for c in ("eq", "gtu")]
    forms += [f"h: set.lt.{kind}.{kind} $, %h0, %h1;", f"r: set.ge.u32.{kind} $, %h0, %h1;"]
    return forms


def conversion_forms(source: str) -> list[str]:
    """cvt from `source`: f32, f16, bf16 or int."""
    forms = []
    integers = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
    result = {"8": "r", "16": "h", "32": "r", "64": "x"}
    to_integer = product(("rni", "rzi", "rmi", "rpi"), integers)
    if source == "f32":
        forms += [f"{result[t[1:]]}: cvt.{r}{z}.{t}.f32 $, %f0;" for (r, t), z in
                  product(to_integer, ("", ".ftz"))]  # fmt: skip
        forms += [f"f: cvt.{r}{z}{s}.f32.f32 $, %f0;" for r, z, s in
                  product(("rni", "rzi", "rmi", "rpi"), ("", ".ftz"), ("", ".sat"))]  # fmt: skip
        forms += [
            "e: cvt.f64.f32 $, %f0;",
            "e: cvt.ftz.f64.f32 $, %f0;",
            "e: cvt.sat.f64.f32 $, %f0;",
        ]
        forms += [f"h: cvt.{r}{z}{s}.f16.f32 $, %f0;" for r, z, s in
                  product(("rn", "rz"), ("", ".ftz"), ("", ".sat"))]  # fmt: skip
        forms += [f"h: cvt.rn.relu.{t}.f32 $, %f0;" for t in ("f16", "bf16")]
        forms += [f"h: cvt.{r}.bf16.f32 $, %f0;" for r in ("rn", "rz")]
        forms += [f"r: cvt.{r}{relu}.{t}.f32 $, %f0, %f1;" for r, relu, t in
                  product(("rn", "rz"), ("", ".relu"), ("f16x2", "bf16x2"))]  # fmt: skip
        forms += [f"h: cvt.rn.satfinite{relu}.{t}.f32 $, %f0, %f1;" for relu, t in
                  product(("", ".relu"), ("e4m3x2", "e5m2x2"))]  # fmt: skip
        # Beside rcp.rn.f32 ptxas 13.0 and 13.5 make the integer 1 of set.f32.f32's 1.0.
        forms += [f"f: set.{c}.f32.f32 $, %f0, %f1;" for c in ("gt", "neu")]
        forms += [
            "r: cvt.rna.tf32.f32 $, %f0;",
            "r: cvt.rn.tf32.f32 $, %f0;",
            "r: cvt.rz.tf32.f32 $, %f0;",
            "r: cvt.rn.relu.tf32.f32 $, %f0;",
            "r: cvt.rz.relu.tf32.f32 $, %f0;",
            "r: cvt.rna.satfinite.tf32.f32 $, %f0;",
        ]
    elif source == "f16":
        forms += [f"{result[t[1:]]}: cvt.{r}.{t}.f16 $, %h0;" for r, t in to_integer]
        forms += [f"f: cvt{z}{s}.f32.f16 $, %h0;" for z, s in
                  product(("", ".ftz"), ("", ".sat"))]  # fmt: skip
        forms += ["e: cvt.f64.f16 $, %h0;"]
        forms += [f"h: cvt.{r}{s}.f16.f16 $, %h0;" for r, s in
                  product(("rni", "rzi", "rmi", "rpi"), ("", ".sat"))]  # fmt: skip
        forms += [f"h: cvt.rn.satfinite{relu}.{t}.f16x2 $, %r0;" for relu, t in
                  product(("", ".relu"), ("e4m3x2", "e5m2x2"))]  # fmt: skip
        forms += [f"r: cvt.rn{relu}.f16x2.{t} $, %h0;" for relu, t in
                  product(("", ".relu"), ("e4m3x2", "e5m2x2"))]  # fmt: skip
        forms += ["h: cvt.rn.bf16.f16 $, %h0;"]
    elif source == "bf16":
        forms += ["f: cvt.f32.bf16 $, %h0;", "h: cvt.rn.f16.bf16 $, %h0;"]
        forms += [f"{result[t[1:]]}: cvt.{r}.{t}.bf16 $, %h0;" for r, t in to_integer
                  if t[1:] != "8"]  # fmt: skip
        forms += ["e: cvt.f64.bf16 $, %h0;"]
        forms += [f"h: cvt.{r}.bf16.bf16 $, %h0;" for r in ("rni", "rzi", "rmi", "rpi")]
    else:
        for t, r in product(integers, ROUNDINGS):
            register = {"8": "%h0", "16": "%h0", "32": "%r0", "64": "%a0"}[t[1:]]
            forms.append(f"f: cvt.{r}.f32.{t} $, {register};")
            if r == "rn":
                forms.append(f"f: cvt.{r}.sat.f32.{t} $, {register};")
                forms.append(f"h: cvt.{r}.f16.{t} $, {register};")
                if t[1:] != "8":
                    forms.append(f"h: cvt.{r}.bf16.{t} $, {register};")
    return forms


FAMILIES = {
    "integer": ("int", integer_forms()),
    "bits": ("int", bit_forms()),
    "float32": ("f32", float32_forms()),
    "float64": ("f64", float64_forms()),
    "float16": ("f16", half_forms("f16")),
    "bfloat16": ("bf16", half_forms("bf16")),
    "convert f32": ("f32", conversion_forms("f32")),
    "convert f16": ("f16", conversion_forms("f16")),
    "convert bf16": ("bf16", conversion_forms("bf16")),
    "convert integers": ("int", conversion_forms("int")),
}
"""Name -> (operand values, forms)."""
