"""The H200's bytes do not depend on the emulator's schedule, nor on whether it is watched."""

import pytest
from hardware_catalog import copy_cases, warp_cases
from hardware_runs import Case, differences, run_case

from ptxgen.emulator import EmulatorDevice, Observer, Options

FAMILIES: dict[str, list[Case]] = {
    **{family: list(cases.values()) for family, cases in copy_cases().items()},
    **{name: [case] for name, case in warp_cases().items() if name != "mma.sync"},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_watched_run_in_random_order_leaves_the_bytes_of_an_h200(family: str) -> None:
    options = Options(exact=True, schedule="random", seed=3)
    for case in FAMILIES[family]:
        device = EmulatorDevice(options, Observer())
        assert differences(case, run_case(device, case), device) == []
