"""Warp-wide forms that compilers emit: members per lane, meeting at different instructions."""

from collections.abc import Callable

import numpy as np
import pytest
from emulator_kernels import STORE_R2, execute, words

from ptxgen.emulator import Options

VALUES = np.array([3, 3, 5, 3, 5, 5, 9, 9] * 4, np.uint32)
TILES = """
mul.wide.u32 %d2, %r0, 4;
add.s64 %d2, %d2, %d0;
ld.global.u32 %r3, [%d2];
and.b32 %r4, %r1, 24;
shl.b32 %r5, 0xFF, %r4;
setp.gt.u32 %p1, %r3, 4;
"""
"""%r3 = value, %r5 = the lanes of this lane's tile of 8, %p1 = value > 4."""


def _tile(function: Callable[[np.ndarray, int], int]) -> np.ndarray:
    """One result per lane of a function of (values of the tile, first lane)."""
    found = [function(VALUES[i // 8 * 8 : i // 8 * 8 + 8], i // 8 * 8) for i in range(32)]
    return np.array(found, np.uint32)


def _ballot(values: np.ndarray, first: int) -> int:
    return sum(1 << first + i for i in range(8) if values[i] > 4)


TILED = {
    "vote.sync.ballot.b32 %r2, %p1, %r5;": _tile(_ballot),
    "vote.ballot.sync.b32 %r2, %p1, %r5;": _tile(_ballot),
    "redux.sync.add.u32 %r2, %r3, %r5;": _tile(lambda v, _: int(v.sum())),
    "redux.sync.max.u32 %r2, %r3, %r5;": _tile(lambda v, _: int(v.max())),
    "vote.sync.all.pred %p2, %p1, %r5; selp.b32 %r2, 1, 0, %p2;": _tile(
        lambda v, _: int((v > 4).all())
    ),
    "vote.sync.any.pred %p2, %p1, %r5; selp.b32 %r2, 1, 0, %p2;": _tile(
        lambda v, _: int((v > 4).any())
    ),
    "match.any.sync.b32 %r2, %r3, %r5;": np.array(
        [sum(1 << j for j in range(i // 8 * 8, i // 8 * 8 + 8) if VALUES[j] == VALUES[i])
         for i in range(32)], np.uint32,
    ),
    "match.all.sync.b32 %r2|%p2, %r3, %r5;": np.zeros(32, np.uint32),
}  # fmt: skip
"""Instructions in which each tile of 8 lanes names itself, and their results."""


@pytest.mark.parametrize("instruction", TILED)
def test_each_tile_of_a_warp_has_its_own_result(instruction: str) -> None:
    result = execute(TILES + instruction + STORE_R2, VALUES)
    assert np.array_equal(words(result), TILED[instruction])


@pytest.mark.parametrize("schedule", ["lazy", "random"])
def test_bar_warp_sync_meets_lanes_at_another_one(schedule: str) -> None:
    body = f"""
mov.u32 %r4, buffer;
shl.b32 %r5, %r1, 2;
add.u32 %r5, %r5, %r4;
setp.lt.u32 %p1, %r1, 8;
@%p1 bra LOW;
st.shared.u32 [%r5], %r1;
bar.warp.sync 0xFFFFFFFF;
mov.u32 %r2, 7;
bra DONE;
LOW:
bar.warp.sync 0xFFFFFFFF;
ld.shared.u32 %r2, [%r5+96];
DONE:
{STORE_R2}"""
    shared = ".shared .align 4 .b8 buffer[128];\n"
    result = execute(body, shared=shared, options=Options(schedule=schedule))
    assert list(words(result)) == [*range(24, 32), *[7] * 24]


def test_scratch_of_cooperative_groups_can_be_used() -> None:
    body = (
        """
mov.u32 %r4, %reserved_smem_offset_1;
st.shared.u32 [%r4], %r0;
ld.shared.u32 %r2, [%r4];
"""
        + STORE_R2
    )
    assert list(words(execute(body))) == [31] * 32


def test_grid_workspace_is_zeroed_memory_for_every_cta() -> None:
    body = f"""
mov.u32 %r4, %envreg2;
mov.u32 %r5, %envreg1;
mov.b64 %d4, {{%r4, %r5}};
setp.ne.u32 %p1, %r1, 0;
@%p1 bra NEXT;
atom.add.release.gpu.u32 %r6, [%d4+4], 1;
WAIT:
ld.acquire.gpu.u32 %r6, [%d4+4];
setp.lt.u32 %p1, %r6, 3;
@%p1 bra WAIT;
NEXT:
bar.warp.sync 0xFFFFFFFF;
mov.u32 %r2, 5;
{STORE_R2}"""
    assert list(words(execute(body, grid=3))) == [5] * 32
