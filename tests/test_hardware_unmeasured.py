"""Cases that no GPU has run yet: a GPU and the emulator leave the same bytes.

Once an H200 has passed one, move it to the recorded ones of hardware_catalog.
"""

import pytest
from hardware_catalog import unmeasured_cases
from hardware_runs import check_with_emulator

from ptxgen.launcher import GpuDevice

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", unmeasured_cases())
def test_a_gpu_leaves_the_bytes_that_the_emulator_leaves(name: str) -> None:
    check_with_emulator(GpuDevice.get(), unmeasured_cases()[name])
