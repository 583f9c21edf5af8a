"""im2col tensor maps: the driver writes the words that the emulator writes."""

import pytest

from ptxgen.emulator.tensor_map import DecodedMap, Im2col, encode
from ptxgen.launcher import GpuDevice

pytestmark = pytest.mark.gpu
ADDRESS = 0x7F00_0000_0000
COLUMNS = [
    ((64, 20, 4), (-300,), (5,)), ((64, 20, 4), (7,), (-9,)),
    ((64, 20, 18, 4), (-1, -2), (3, -4)), ((64, 20, 18, 16, 4), (1, 2, 3), (-4, -5, -6)),
    ((64, 20, 18, 16, 4), (-1, 0, 7), (0, -8, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("dims", "lower", "upper"), COLUMNS)
def test_the_driver_encodes_an_im2col_map_as_the_emulator_does(
    dims: tuple[int, ...], lower: tuple[int, ...], upper: tuple[int, ...]
) -> None:
    gpu = GpuDevice.get()
    driver = gpu.driver
    strides = [dims[0] * 2]
    for extent in dims[1:-1]:
        strides.append(strides[-1] * extent)
    steps = (1, 2, *(1,) * (len(dims) - 2))
    with gpu.current():
        error, found = driver.cuTensorMapEncodeIm2col(
            driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16, len(dims), ADDRESS,
            [driver.cuuint64_t(d) for d in dims], [driver.cuuint64_t(s) for s in strides],
            list(lower), list(upper), 16, 100, [driver.cuuint32_t(s) for s in steps],
            driver.CUtensorMapInterleave(0), driver.CUtensorMapSwizzle(1),
            driver.CUtensorMapL2promotion(0), driver.CUtensorMapFloatOOBfill(0),
        )  # fmt: skip
    assert int(error) == 0
    m = DecodedMap(
        ADDRESS, "float16", dims, tuple(strides), (), steps, "32B",
        im2col=Im2col(lower, upper, 16, 100),
    )  # fmt: skip
    assert b"".join(int(word).to_bytes(8, "little") for word in found.opaque) == encode(m)
