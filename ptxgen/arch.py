"""Facts about GPU architectures, as data. An architecture of a known MMA family is one row."""

from dataclasses import dataclass

from ptxgen.errors import ConfigError, not_one_of

SECTOR_BYTES = 32
"""What the L2 moves at once."""
ONE_CTA_BYTES = 116 << 10
"""Shared memory of which an SM of sm_90a or sm_100a (228 KiB) has no two, so that a CTA that asks
for it is the only such one on its SM. Two CTAs that wait for each other's tensor memory, each
holding some, would wait for ever."""
TWO_CTAS_BYTES = 113 << 10
"""Shared memory that each of two CTAs on such an SM can have, beside the KiB that CUDA keeps."""


@dataclass(frozen=True)
class Arch:
    """One `.target`."""

    name: str
    """The PTX target, e.g. sm_90a."""
    mma_family: str
    """Which Tensor Core instruction it has: wgmma, tcgen05 or mma_sync."""
    min_ptx_version: str
    """Lowest `.version` that knows this target."""
    smem_bytes: int
    """Shared memory that one CTA can have with opt-in, in bytes."""
    registers_per_sm: int
    """32-bit registers of one SM (and, with one CTA on it, of that CTA)."""
    max_registers_per_thread: int
    """Registers that one thread can hold at entry."""
    max_cta_threads: int
    """Threads of one CTA."""
    max_cluster_ctas: int
    """Portable cluster size."""


# Source: limits and versions that ptxas 13.0 enforces; CUDA C++ Programming Guide, "Technical
# Specifications per Compute Capability".
ARCHS: dict[str, Arch] = {
    a.name: a
    for a in (
        Arch("sm_80", "mma_sync", "7.0", 166912, 65536, 255, 1024, 1),
        Arch("sm_86", "mma_sync", "7.1", 101376, 65536, 255, 1024, 1),
        Arch("sm_89", "mma_sync", "7.8", 101376, 65536, 255, 1024, 1),
        Arch("sm_90a", "wgmma", "8.0", 232448, 65536, 255, 1024, 8),
        Arch("sm_100a", "tcgen05", "8.6", 232448, 65536, 255, 1024, 8),
        Arch("sm_100f", "tcgen05", "8.8", 232448, 65536, 255, 1024, 8),
        Arch("sm_103a", "tcgen05", "8.8", 232448, 65536, 255, 1024, 8),
        Arch("sm_120a", "mma_sync", "8.7", 101376, 65536, 255, 1024, 8),
    )
}


def arch(name: str) -> Arch:
    """The architecture called `name`.

    Raises: ConfigError if there is none; it names the one that is most like it.
    """
    found = ARCHS.get(name)
    if found is None:
        raise ConfigError(not_one_of("arch", name, ARCHS))
    return found
