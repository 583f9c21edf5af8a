"""stream_read_sm90: reads global memory by TMA and drops it, to measure the read bandwidth.

Pairs with templates/stream_read_sm90.ptx.j2.
"""

from dataclasses import dataclass

from ptxgen.arch import arch
from ptxgen.errors import ConfigError
from ptxgen.launch import Buffer, Launch, Param
from ptxgen.layout import SmemRegion
from ptxgen.plans import Barrier, Plan

NAME = "stream_read_sm90"
TARGET = "sm_90a"
VERSION = "8.0"
BARRIER_BYTES = 8


@dataclass(frozen=True)
class Config:
    """What may be tuned, and what the text depends on."""

    chunk_bytes: int = 16384
    """Bytes of one bulk copy."""
    stages: int = 12
    """Bulk copies that each CTA keeps in flight."""

    def __str__(self) -> str:
        return f"{NAME}_{self.chunk_bytes}_s{self.stages}"

    @property
    def smem_bytes(self) -> int:
        """Dynamic shared memory of one CTA."""
        return self.stages * (self.chunk_bytes + BARRIER_BYTES)

    def check(self) -> None:
        """Refuse what cannot work.

        Raises: ConfigError.
        """
        if self.chunk_bytes < 128 or self.chunk_bytes % 128:
            raise ConfigError(
                f"chunk_bytes={self.chunk_bytes} must be a positive multiple of 128, so that each "
                "copy starts at a multiple of 128 bytes in shared memory; try 16384"
            )
        limit = arch(TARGET).smem_bytes
        if self.stages < 1 or self.smem_bytes > limit:
            raise ConfigError(
                f"stages={self.stages} of {self.chunk_bytes} bytes needs {self.smem_bytes} B of "
                f"shared memory; must be at least one stage and at most {limit} B; try stages=12"
            )


def plan(nbytes: int, num_ctas: int, config: Config | None = None) -> Plan:
    """A launch in which `num_ctas` CTAs read `nbytes` bytes once.

    Raises: ConfigError if the config is illegal or `nbytes` is no multiple of its chunk.
    """
    config = config or Config()
    config.check()
    if nbytes % config.chunk_bytes:
        raise ConfigError(
            f"nbytes={nbytes} must be a multiple of chunk_bytes={config.chunk_bytes}; try "
            f"{nbytes - nbytes % config.chunk_bytes}"
        )
    num_chunks = nbytes // config.chunk_bytes
    barriers_offset = config.stages * config.chunk_bytes
    launch = Launch(
        entry=str(config),
        grid_ctas=(max(1, min(num_ctas, num_chunks)), 1, 1),
        cta_threads=(32, 1, 1),
        dynamic_smem_bytes=config.smem_bytes,
        params=(Param("data", "pointer", "data"), Param("num_chunks", "u32", num_chunks)),
        buffers=(Buffer("data", nbytes, "in", "zeros"),),
    )
    return Plan(
        kernel=NAME, entry=str(config), target=TARGET, version=VERSION, launch=launch,
        smem_map=(
            SmemRegion("chunks", 0, barriers_offset, "one chunk per stage"),
            SmemRegion("full", barriers_offset, BARRIER_BYTES * config.stages,
                       "mbarriers: chunk arrived"),
        ),
        barriers=(
            Barrier("full", config.stages, 1, config.chunk_bytes,
                    "the thread, by arrive.expect_tx; the bulk copy counts the bytes down",
                    "the thread"),
        ),
        parts={},
        fields={
            "chunk_bytes": config.chunk_bytes,
            "stages": config.stages,
            "full_offset": barriers_offset,
            "stage_barriers": [
                {"offset": BARRIER_BYTES * i, "smem_offset": config.chunk_bytes * i}
                for i in range(config.stages)
            ],
        },
    )  # fmt: skip
