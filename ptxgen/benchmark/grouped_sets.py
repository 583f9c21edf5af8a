"""grouped_sets: the named grouped problems that are measured."""

from dataclasses import dataclass

import numpy as np

from ptxgen.errors import ArgumentError, not_one_of
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.problem import BLOCK_SCALES

MASKED_ROOM = 4096
"""Rows that a masked group has room for, as in DeepGEMM's tests."""


@dataclass(frozen=True)
class GroupedCase:
    """One grouped problem with the rows of its groups."""

    set_name: str
    kind: str
    problem: GroupedGemm
    rows: tuple[int, ...]
    """Rows of each group (kgrouped: K)."""

    @property
    def label(self) -> str:
        """What tells cases of one set apart."""
        p = self.problem
        least, most = min(self.rows), max(self.rows)
        rows = f"{least}" if least == most else f"{least}..{most}"
        of = "k" if p.mode == "kgrouped" else "m"
        other = f"{p.m} x {p.n}" if p.mode == "kgrouped" else f"n={p.n} k={p.k}"
        return f"{p.groups} groups {of}={rows} {other}"


@dataclass(frozen=True)
class GroupedKind:
    """What is computed: formats, scales and accumulation."""

    name: str
    a: str
    scale: str
    d: str = "bf16"


KINDS: dict[str, GroupedKind] = {
    kind.name: kind
    for kind in (
        GroupedKind("fp8-block", "e4m3", "block"),
        GroupedKind("fp8-group", "e4m3", "group"),
        GroupedKind("fp8-tensor", "e4m3", "tensor"),
        GroupedKind("fp8-rowcol", "e4m3", "rowcol"),
        GroupedKind("bf16", "bf16", "none"),
    )
}


@dataclass(frozen=True)
class GroupedSet:
    """Shapes that are measured together: (groups, rows of each, n, k)."""

    name: str
    what: str
    mode: str
    shapes: tuple[tuple[int, tuple[int, ...], int, int], ...]
    kind: str = "fp8-block"
    """The kind that is measured unless another is asked for."""
    both_ways: bool = False
    """Whether swapped and straight are measured side by side."""
    quick: bool = False
    """Whether the problems are many points of a curve, measured shortly."""


def _uneven(groups: int, mean: int, step: int, seed: int) -> tuple[int, ...]:
    """Seeded numbers from 0.7 to 1.3 times the mean, in multiples of step."""
    drawn = np.random.default_rng(seed).uniform(0.7, 1.3, groups) * mean
    return tuple(int(x) // step * step for x in drawn)


def _equal(groups: int, rows: int, n: int, k: int) -> tuple[int, tuple[int, ...], int, int]:
    return groups, (rows,) * groups, n, k


# Source of the shapes: DeepGEMM, tests/generators.py.
_MASKED = (
    *(_equal(16, m, n, k) for m in (32, 96, 160) for n, k in ((4096, 7168), (7168, 2048))),
    _equal(16, 1024, 4096, 7168), _equal(32, 8, 4096, 7168), _equal(32, 20, 7168, 2048),
)  # fmt: skip
_PREFILL = tuple(
    (groups, _uneven(groups, m, 128, groups), n, k)
    for groups, m in ((4, 8192), (8, 4096))
    for n, k in ((6144, 7168), (7168, 3072), (4096, 4096), (4096, 2048))
)
_DECODE = tuple(int(x) for x in np.random.default_rng(0).integers(1, 41, 64))
_CURVE_WEIGHTS = ((4096, 7168), (7168, 2048), (2112, 7168))

SETS: dict[str, GroupedSet] = {
    s.name: s
    for s in (
        GroupedSet("masked", "experts of a decoder, 8 to 1024 tokens each", "masked", _MASKED),
        GroupedSet("contiguous", "prefill, 4 and 8 experts", "contiguous", _PREFILL),
        GroupedSet("contiguous-decode", "64 experts of 1 to 40 tokens, seeded", "contiguous",
                   tuple((64, _DECODE, n, k) for n, k in ((4096, 7168), (7168, 2048)))),
        GroupedSet("masked-decode", "the same work, masked", "masked",
                   tuple((64, _DECODE, n, k) for n, k in ((4096, 7168), (7168, 2048)))),
        GroupedSet("kgrouped", "weight gradients, 16 groups of about 2048 tokens", "kgrouped",
                   tuple((16, _uneven(16, 2048, 128, 1), n, m)
                         for m, n in ((4096, 7168), (7168, 2048))), "fp8-group"),
        GroupedSet("swap-curve", "16 groups, m = 8 to 256", "masked",
                   tuple(_equal(16, m, n, k) for n, k in _CURVE_WEIGHTS
                         for m in range(8, 257, 8)), both_ways=True, quick=True),
        GroupedSet("speculative", "verification of 4 to 8 speculative tokens of 1 to 16 requests",
                   "masked", tuple(_equal(16, tokens * requests, n, k)
                                   for n, k in ((4096, 7168), (7168, 2048))
                                   for tokens in (4, 8) for requests in (1, 4, 16)),
                   both_ways=True),
        GroupedSet("lora", "small-batch LoRA: rank 16 to 64, 8 adapters", "batched",
                   tuple(_equal(8, rows, n, k) for rank in (16, 32, 64)
                         for rows in (4, 16) for n, k in ((rank, 4096), (4096, rank))), "bf16",
                   both_ways=True),
    )
}  # fmt: skip


def grouped_set(name: str) -> GroupedSet:
    """The set called `name`.

    Raises: ArgumentError if there is none.
    """
    if name not in SETS:
        raise ArgumentError(not_one_of("set", name, SETS))
    return SETS[name]


def cases_of(names: tuple[str, ...], kinds: tuple[str, ...] = ()) -> list[GroupedCase]:
    """Every shape of every set, in each kind (without any: in the set's own).

    Raises: ArgumentError, ProblemError.
    """
    found = []
    for name in names:
        members = grouped_set(name)
        for kind_name in kinds or (members.kind,):
            if kind_name not in KINDS:
                raise ArgumentError(not_one_of("kind", kind_name, KINDS))
            kind = KINDS[kind_name]
            found += [_case(members, kind, *shape) for shape in members.shapes]
    return found


def _case(
    members: GroupedSet, kind: GroupedKind, groups: int, rows: tuple[int, ...], n: int, k: int
) -> GroupedCase:
    """kgrouped: the shape's k is M, and the rows are parts of K.

    Scales of single rows lie with rows innermost, as DeepGEMM takes them.
    """
    d = "f32" if members.mode == "kgrouped" else kind.d
    m, length = k, sum(rows)
    if members.mode in ("masked", "batched"):
        m = max(MASKED_ROOM, *rows) if members.mode == "masked" else rows[0]
        length = k
    elif members.mode == "contiguous":
        m, length = sum(rows), k
    blocks = -(-length // 128)
    a_by_rows = kind.scale in BLOCK_SCALES and members.mode != "batched"
    b_by_rows = kind.scale == "group" and members.mode == "kgrouped"
    problem = GroupedGemm(
        members.mode, groups, m, n, length, kind.a, kind.a, d, kind.scale,
        alignment=128 if members.mode == "kgrouped" else 1,
        scale_a_strides=(m * blocks, 1, m) if a_by_rows else (0, 0, 0),
        scale_b_strides=(n * blocks, 1, n) if b_by_rows else (0, 0, 0),
    )  # fmt: skip
    return GroupedCase(members.name, kind.name, problem, rows)
