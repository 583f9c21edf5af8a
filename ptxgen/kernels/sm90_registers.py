"""Registers per thread of gemm_sm90: what each role has, and what a consumer needs."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ptxgen.kernels.sm90_config import Config

PRODUCER_REGISTERS = {1: {False: 24, True: 40}, 2: {False: 24, True: 40}, 3: {False: 32, True: 32}}
"""Registers per thread of the producer warpgroup, by consumer warpgroups: few, or more where it has
much to do."""
CONSUMER_REGISTERS = {
    1: {False: 255, True: 255}, 2: {False: 240, True: 232}, 3: {False: 160, True: 160}
}  # fmt: skip
"""Registers per consumer thread, by warpgroups and by whether the producer has much to do. Two:
3 x 168 at entry = 24 + 240 + 240 = 40 + 232 + 232. Three: 4 x 128 = 32 + 3 x 160. One: the entry
count already suffices, so setmaxnreg is left out."""
FEW_BOXES = 8
"""TMA boxes per k-tile that a producer thread with few registers can issue without a spill."""
OVERHEAD_REGISTERS = {1: 104, 2: 96, 3: 32}
"""Registers for everything but accumulators, by warpgroups. Measured: ptxas 13.0 and 13.5 assemble
every configuration within this bound without a spill (tests/test_gemm_sm90_configs.py)."""
OVERLAP_SPARES = {1: 40, 2: 56}
DEFERRED_SPARES = {1: 40, 2: 48}
"""Registers by which the overhead is smaller where accumulators die before the epilogue starts."""
COLUMN_SCALE_REGISTERS = 16
"""Registers more for column scales that ptxas loads ahead of their use."""
DEFERRED_ROWS_REGISTERS = 8
"""Registers more for rows of two blocks that threads store during a main loop. Measured: ptxas 13.0
and 13.5."""
C_REGISTERS = 48
"""Registers more for elements of C that ptxas loads ahead of their use; what else an epilogue needs
is free by then, since pauses bound what ptxas works on at once. Measured: ptxas 13.0 and 13.5."""


def needed_registers(config: "Config") -> int:
    """Registers per consumer thread that ptxas needs, about, so as not to spill."""
    sets: float = config.num_accumulators
    if config.defers:
        sets += config.blocks_per_warpgroup / 2
    if config.accumulate == "promoted":
        sets += config.blocks_per_warpgroup
    needed = int(sets * config.registers_per_block) + OVERHEAD_REGISTERS[config.warpgroups]
    if config.overlaps_promotion:
        needed -= OVERLAP_SPARES[config.warpgroups]
    elif config.defers:
        needed -= DEFERRED_SPARES[config.warpgroups]
        if config.stores_rows and config.blocks_per_warpgroup > 1:
            needed += DEFERRED_ROWS_REGISTERS
    elif config.scale == "rowcol":
        needed += COLUMN_SCALE_REGISTERS
    if not config.overlaps_promotion:  # there the accumulators are free by then
        needed += C_REGISTERS if config.c != "none" else 0
    elif config.scale == "group" and config.has_epilogue:
        needed += COLUMN_SCALE_REGISTERS
    return needed
