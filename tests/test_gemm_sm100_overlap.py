"""What runs side by side in gemm_sm100: shown by an order of events that the protocol allows."""

import pytest

from ptxgen.emulator import EmulatorDevice, Observer, Options
from ptxgen.emulator.observer import AsyncOperation
from ptxgen.kernels import gemm_sm100
from ptxgen.operands import make_operands
from ptxgen.problem import Gemm
from ptxgen.renderer import render
from ptxgen.trial import buffer_contents

K_TILES = 2
MMAS_PER_TILE = 4 * K_TILES
LOADS_PER_TILE = 2 * K_TILES


class Events(Observer):
    """Kinds of asynchronous operations of CTA 0 in the order in which they are issued."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def on_issue(self, operation: AsyncOperation) -> None:
        if operation.origin.cta == 0:
            self.kinds.append(operation.kind)

    def place(self, kind: str, number: int) -> int:
        """Where in the order the operation of that kind and number was issued."""
        return [i for i, k in enumerate(self.kinds) if k == kind][number]


def events(group: int, **chosen: int) -> Events:
    """Events of two tiles or more on one CTA, or pair, whose lowest warps always go first."""
    problem = Gemm(128 * group, 256, 64 * K_TILES)
    config = gemm_sm100.default_config(
        problem, cta_group=group, tile_m=128, tile_n=64, stages=8, **chosen
    )
    plan = gemm_sm100.plan(problem, config, num_sms=group)
    observer = Events()
    device = EmulatorDevice(Options(schedule="run_to_block"), observer)
    contents = buffer_contents(problem, make_operands(problem, "integers"))
    addresses = {b.name: device.alloc(b.nbytes) for b in plan.launch.buffers}
    for name, content in contents.items():
        device.write(addresses[name], content)
    device.launch(plan.launch, render(plan).text, addresses)
    return observer


@pytest.mark.parametrize("group", [1, 2])
def test_the_first_mma_of_a_tile_does_not_follow_the_epilogue_of_the_tile_before(
    group: int,
) -> None:
    found = events(group)
    assert found.place("tcgen05_mma", MMAS_PER_TILE) < found.place("tcgen05_ld", 0)


@pytest.mark.parametrize("group", [1, 2])
def test_with_one_accumulator_it_does(group: int) -> None:
    found = events(group, accumulators=1)
    assert found.place("tcgen05_mma", MMAS_PER_TILE) > found.place("tcgen05_ld", 0)


@pytest.mark.parametrize("group", [1, 2])
def test_the_loads_of_a_tile_do_not_follow_the_mmas_of_the_tile_before(group: int) -> None:
    found = events(group)
    assert found.place("tma_load", LOADS_PER_TILE) < found.place("tcgen05_mma", 0)
