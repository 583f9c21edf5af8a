"""empty: a kernel that returns at once, to measure what a launch costs.

Pairs with templates/empty.ptx.j2.
"""

from dataclasses import dataclass

from ptxgen.launch import Launch
from ptxgen.plans import Plan

NAME = "empty"
TARGET = "sm_90a"
VERSION = "8.0"


@dataclass(frozen=True)
class Config:
    """What the text depends on."""

    cta_threads: int = 384

    def __str__(self) -> str:
        return f"{NAME}_{self.cta_threads}"


def plan(num_ctas: int, dynamic_smem_bytes: int = 0, config: Config | None = None) -> Plan:
    """A launch of `num_ctas` CTAs that do nothing."""
    config = config or Config()
    launch = Launch(
        entry=str(config),
        grid_ctas=(num_ctas, 1, 1),
        cta_threads=(config.cta_threads, 1, 1),
        dynamic_smem_bytes=dynamic_smem_bytes,
    )
    return Plan(
        kernel=NAME, entry=str(config), target=TARGET, version=VERSION, launch=launch,
        smem_map=(), barriers=(), parts={}, fields={"cta_threads": config.cta_threads},
    )  # fmt: skip
