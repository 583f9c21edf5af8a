"""Which targets take which instruction forms, and from which `.version` on, as data.

Every row was tried on every target and version from 7.8 on with ptxas 13.0.88. All rows that match
an instruction hold: the targets are their intersection, the version is their largest.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ptxgen.ptx import form_conditions as conditions
from ptxgen.ptx.module import Instruction

TARGETS: dict[str, str] = {
    "sm_80": "7.8", "sm_86": "7.8", "sm_87": "7.8", "sm_89": "7.8", "sm_90": "7.8",
    "sm_90a": "8.0", "sm_100": "8.6", "sm_100a": "8.6", "sm_100f": "8.8", "sm_103": "8.8",
    "sm_103a": "8.8", "sm_103f": "8.8", "sm_110": "9.0", "sm_110a": "9.0", "sm_110f": "9.0",
    "sm_120": "8.7", "sm_120a": "8.7", "sm_120f": "8.8", "sm_121": "8.8", "sm_121a": "8.8",
    "sm_121f": "8.8",
}  # fmt: skip
"""Target -> lowest `.version` that has it; 7.8 stands for 7.8 or less."""


def number(target: str) -> int:
    """The number in a target's name: 90 of sm_90a."""
    return int(target.removeprefix("sm_").rstrip("af"))


def _from(lowest: int, suffixes: tuple[str, ...] = ("", "a", "f")) -> frozenset[str]:
    return frozenset(
        t for t in TARGETS if number(t) >= lowest and t[len(f"sm_{number(t)}") :] in suffixes
    )


def _exactly(*names: str) -> frozenset[str]:
    return frozenset(f"sm_{name}" for name in names)


ALL = frozenset(TARGETS)
SM_89, SM_90, SM_100 = _from(89), _from(90), _from(100)
HOPPER = _exactly("90a")
SPECIFIC = _from(90, ("a", "f"))
"""Targets with architecture- or family-specific features."""
BLACKWELL = _from(100, ("a", "f"))
GEFORCE = _exactly("120a", "120f", "121a", "121f")
TCGEN05 = BLACKWELL - GEFORCE
TCGEN05_A = _exactly("100a", "103a", "110a")
SM_100_OR_103 = _exactly("100a", "100f", "103a", "103f")


@dataclass(frozen=True, slots=True)
class Rule:
    """What one feature of an instruction needs."""

    pattern: str
    """Regular expression that the opcode with its modifiers must match from its start."""
    targets: frozenset[str] = ALL
    since: str = "7.8"
    """Lowest `.version`, on targets that are not older than it."""
    when: Callable[[Instruction], bool] | None = None
    """Condition on the operands; None = always."""
    exceptions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Target -> `.version` where it differs from `since`."""


_FP6_FP4 = r"(?:e2m3|e3m2|e2m1)"

RULES: tuple[Rule, ...] = (
    # Tensor cores
    Rule(r"wgmma\.", HOPPER, "8.0"),
    Rule(r"wgmma\.mma_async\.sp\.", HOPPER, "8.2"),
    Rule(r"wgmma\..*\.(?:s8\.u8|u8\.s8)", HOPPER, "8.4"),
    Rule(r"tcgen05\.", TCGEN05, "8.6"),
    Rule(r"tcgen05\.mma\..*kind::i8", _exactly("100a", "110a")),
    Rule(r"tcgen05\.mma\..*kind::(?:f16|tf32)", SM_100_OR_103, when=conditions.scale_input_d),
    Rule(r"tcgen05\.mma\..*\.scale_vec::", TCGEN05_A),
    Rule(r"tcgen05\.mma\..*kind::mxf4nvf4\..*\.scale_vec::", TCGEN05_A, "8.7"),
    Rule(r"tcgen05\.mma\.(?!.*\.scale_vec::).*\.block_scale", TCGEN05, "8.8"),
    Rule(r"tcgen05\.shift\.", TCGEN05_A),
    Rule(r"tcgen05\.ld\.red\.", _exactly("103a", "103f", "110a", "110f")),
    Rule(r"mma\.sp::ordered_metadata\.", since="8.5"),
    Rule(r"mma\.(?!.*kind::).*\.(?:e4m3|e5m2)\.", SM_89, "8.4"),
    Rule(r"mma\.(?!.*kind::).*\.m16n8k16\..*\.(?:e4m3|e5m2)\.", SM_89, "8.7"),
    Rule(r"mma\.(?!.*kind::).*\.f16\.(?:e4m3|e5m2)\.", SM_89, "8.7"),
    Rule(r"mma\..*kind::", BLACKWELL, "8.6"),
    Rule(r"mma\..*kind::f8f6f4\..*\." + _FP6_FP4 + r"\.", GEFORCE),
    Rule(r"mma\..*kind::mx", GEFORCE),
    Rule(r"mma\..*\.m16n8k(?:4|8|16)\..*\.f64\.f64", SM_90),
    Rule(r"stmatrix\.", SM_90),
    Rule(r"stmatrix\..*\.m16n8\.", BLACKWELL),
    Rule(r"ldmatrix\..*\.(?:m8n16|m16n16)\.", BLACKWELL),
    Rule(r"redux\..*\.f32", SM_100_OR_103),
    # Bulk copies and tensor maps
    Rule(r"cp\.(?:reduce\.)?async\.bulk\b", SM_90, "8.0"),
    Rule(r"cp\.async\.bulk\..*\bshared::cta\.global\b", SM_90, "8.6"),
    Rule(r"cp\.async\.bulk\..*\.cta_group::", TCGEN05),
    Rule(r"cp\.async\.bulk\..*\.(?:tile::gather4|im2col::w)", SM_100),
    Rule(
        r"cp\.async\.bulk\.(?!.*shared::cta\.global).*\.(?:tile::(?:gather|scatter)4|im2col::w)",
        TCGEN05,
    ),
    Rule(r"cp\.async\.bulk\..*\.cp_mask", SM_100),
    Rule(r"(?:st|red)\.async\.", SM_90, "8.1"),
    Rule(r"st\.async\.mmio\.", SM_100, "8.7"),
    Rule(r"st\.bulk\b", SM_100),
    Rule(r"prefetch\..*\btensormap", SM_90, "8.0"),
    Rule(r"tensormap\.replace\.", SPECIFIC, "8.3"),
    Rule(r"tensormap\.replace\..*\.swizzle_atomicity\.", BLACKWELL),
    Rule(
        r"tensormap\.replace\..*\.elemtype\.", BLACKWELL, "8.7", when=conditions.packed_element_type
    ),
    Rule(
        r"tensormap\.replace\..*\.swizzle_mode\.",
        _exactly("103a"),
        when=conditions.swizzle_96_bytes,
    ),
    Rule(r"tensormap\.cp_fenceproxy\.", SM_90, "8.3"),
    # Barriers, fences, clusters
    Rule(
        r"mbarrier\.(?:arrive|arrive_drop)\.(?!noComplete|expect_tx)",
        SM_90,
        when=conditions.counted,
    ),
    Rule(r"mbarrier\.try_wait\.", SM_90),
    Rule(r"mbarrier\..*\.(?:release|acquire)\.", since="8.0"),
    Rule(r"mbarrier\..*\.shared::cluster\.", SM_90, "8.0"),
    Rule(r"mbarrier\..*\.cluster\.", SM_90, "8.0"),
    Rule(r"mbarrier\.(?:\w+\.)?(?:expect_tx|complete_tx)\.", SM_90, "8.0"),
    Rule(r"mbarrier\.(?:arrive|arrive_drop|test_wait|try_wait)\..*\brelaxed\.", SM_90, "8.6"),
    Rule(r"fence\.(?:mbarrier_init|proxy\.async)\b", SM_90, "8.0"),
    Rule(r"fence\.proxy\.tensormap", SM_90, "8.3"),
    Rule(r"fence\..*\.sync_restrict::", SM_90, "8.6"),
    Rule(r"(?:fence|ld|st|atom|red)\.(?:.*\.)?cluster(?![:\w])", SM_90),
    Rule(r"barrier\.cluster\.", SM_90),
    Rule(r"barrier\.cluster\..*\.(?:release|relaxed|acquire)\b", SM_90, "8.0"),
    Rule(r"\w+\.(?:.*\.)?shared::cluster\b", SM_90),
    Rule(r"(?:mapa|getctarank|griddepcontrol)\.", SM_90),
    Rule(r"elect\.", SM_90, "8.0"),
    Rule(r"setmaxnreg\.", SPECIFIC, "8.0"),
    Rule(r"clusterlaunchcontrol\.", SM_100, "8.6"),
    Rule(r"clusterlaunchcontrol\..*\.multicast::cluster::all\.", BLACKWELL),
    Rule(r"multimem\.", SM_90, "8.1"),
    Rule(r"multimem\..*\.acc::", SM_90, "8.2"),
    Rule(r"multimem\..*\.(?:e4m3|e5m2)", TCGEN05 | _exactly("120a", "121a"), "8.6"),
    # Memory
    Rule(
        r"(?:ld|st)\.(?!.*\b(?:shared|local|param|const)\b)(?:.*\.)?(?:v8\.[bfsu]32|v4\.[bfsu]64)",
        SM_100,
        "8.8",
    ),
    Rule(r"(?:ld|st|mov|atom)\.(?:.*\.)?b128\b", since="8.3"),
    Rule(r"atom\.(?:.*\.)?b128\b", SM_90),
    Rule(r"(?:ld|st)\.mmio\.", since="8.2"),
    Rule(r"(?:ld|st)\.param::", since="8.3"),
    Rule(r"(?:atom|red)\..*\.add\.noftz\..*\bbf16", SM_90),
    Rule(r"(?:atom|red)\..*\.v[248]\.", SM_90, "8.1"),
    # Arithmetic
    Rule(r"(?:add|sub|mul|setp|ex2|tanh)\.(?:.*\.)?bf16(?:x2)?$", SM_90),
    Rule(r"(?:add|sub|fma)\.(?:.*\.)?f32\.b?f16$", SM_100, "8.6"),
    Rule(r"(?:add|sub|mul|fma)\.(?:.*\.)?f32x2$", SM_100, "8.6"),
    Rule(r"(?:min|max)\.(?:.*\.)?f32$", SM_100, "8.8", when=conditions.three_inputs),
    Rule(r"(?:add|min|max)\.(?:.*\.)?[us]16x2$", SM_90, "8.0"),
    Rule(r"(?:min|max)\.(?:.*\.)?relu\.s(?:32|16x2)$", SM_90, "8.0"),
    Rule(r"(?:min|max)\..*\.xorsign\.", _from(86)),
    Rule(r"fma\..*\.oob\.", SM_90, "8.1"),
    Rule(r"lop3\.(?:or|and)\.", since="8.2"),
    # Conversions
    Rule(r"cvt\..*\b(?:e4m3|e5m2)x2\b", SM_89, exceptions={"sm_89": "8.1"}),
    Rule(r"cvt\..*\b(?:" + _FP6_FP4 + r"|ue8m0)x2\b", BLACKWELL, "8.6"),
    Rule(r"cvt\.rs\.", _exactly("100a", "103a"), "8.7"),
    Rule(r"cvt\.(?:rn|rz)\.(?:relu\.)?(?:satfinite\.)?(?:relu\.)?tf32\.", SM_90),
    Rule(r"cvt\.(?:rn|rz)\..*satfinite\..*\btf32\.", SM_100, "8.6"),
    Rule(r"cvt\..*satfinite\..*\bb?f16(?:x2)?\.f32$", since="8.1"),
    Rule(r"cvt\.(?:.*\.)?(?:bf16\.[us]\d+|[us]\d+\.bf16)$", SM_90),
    # Special registers
    Rule(r".", SM_90, when=conditions.reads_cluster_register),
    Rule(r".", SM_90, "8.1", when=conditions.reads_aggregate_smem_size),
    Rule(r".", since="8.0", when=conditions.reads_graph_register),
)

DIRECTIVES: dict[str, tuple[frozenset[str], str]] = {
    "explicitcluster": (SM_90, "7.8"),
    "reqnctapercluster": (SM_90, "7.8"),
    "maxclusterrank": (SM_90, "7.8"),
    "blocksareclusters": (SM_90, "9.0"),
    "abi_preserve": (ALL, "9.0"),
    "abi_preserve_control": (ALL, "9.0"),
}
"""Directive of a function -> (targets, lowest `.version`), for those that need more than 7.8."""

PRAGMAS: dict[str, str] = {
    "used_bytes_mask": "8.3",
    "enable_smem_spilling": "8.7",
    "frequency": "9.0",
}
"""First word of a `.pragma` -> lowest `.version`, for those that need more than 7.8."""

PARAM_BYTES: tuple[tuple[int, str], ...] = ((4352, "7.8"), (32764, "8.1"))
"""(bytes that all parameters of a kernel may have, from `.version`)."""
