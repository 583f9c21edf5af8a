"""Kinds of block-scaled MMAs: which formats and scales each takes, on tcgen05 and mma.sync alike.

Source: PTX ISA 9.0, "Block Scaling" of tcgen05.mma and "Block Scaling for mma.sync".
"""

from dataclasses import dataclass

from ptxgen.errors import ConfigError, not_one_of
from ptxgen.problem import MICRO_SCALES


@dataclass(frozen=True)
class MicroKind:
    """One `.kind`."""

    mma_k: int
    """K of one MMA, in elements: 32 bytes of shared memory."""
    scales: tuple[str, ...]
    """Scales of problems that it serves."""
    is_fp4: bool
    """Whether it takes two e2m1 from a byte; mxf8f6f4 wants each element in a byte of its own."""

    def scales_per_mma(self, scale: str) -> int:
        """Scales along K of one MMA: 1, 2 or 4."""
        return max(1, self.mma_k // MICRO_SCALES[scale][0])


MICRO_KINDS = {
    "mxf8f6f4": MicroKind(32, ("mx32", "mx128"), False),
    "mxf4": MicroKind(64, ("mx32",), True),
    "mxf4nvf4": MicroKind(64, ("mx32", "nv16"), True),
}


def micro_kind(a: str, b: str, scale: str) -> str:
    """The kind that the formats and the scale call for: the fp4 kinds are twice as fast."""
    if (a, b) != ("e2m1", "e2m1") or scale == "mx128":
        return "mxf8f6f4"
    return "mxf4nvf4" if scale == "nv16" else "mxf4"


def check_micro_kind(kind: str, a: str, b: str, scale: str) -> None:
    """Refuse formats and scales that `kind` lacks.

    Raises: ConfigError.
    """
    if kind not in MICRO_KINDS:
        raise ConfigError(not_one_of("kind", kind, MICRO_KINDS))
    known = MICRO_KINDS[kind]
    if scale not in known.scales:
        raise ConfigError(not_one_of(f"scale of kind={kind}", scale, known.scales))
    if known.is_fp4 and (a, b) != ("e2m1", "e2m1"):
        raise ConfigError(
            f"kind={kind} multiplies e2m1 with e2m1, got {a} with {b}; try kind=mxf8f6f4"
        )
