"""Operations that the emulator computes together: equal ones, too, keep one value per lane."""

import numpy as np

from ptxgen.emulator import EmulatorDevice
from ptxgen.launch import Buffer, Launch, Param

TEXT = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry repeat(.param .u64 out)
{
    .reg .u32 %thread, %lane<6>, %sum;
    .reg .u64 %out;
    mov.u32 %thread, %tid.x;
    and.b32 %lane0, %thread, 31;
    and.b32 %lane1, %thread, 31;
    and.b32 %lane2, %thread, 31;
    and.b32 %lane3, %thread, 31;
    and.b32 %lane4, %thread, 31;
    and.b32 %lane5, %thread, 31;
    add.u32 %sum, %lane0, %lane1;
    mad.lo.u32 %sum, %lane2, 100, %sum;
    mad.lo.u32 %sum, %lane3, 100, %sum;
    mad.lo.u32 %sum, %lane4, 10000, %sum;
    mad.lo.u32 %sum, %lane5, 10000, %sum;
    ld.param.u64 %out, [out];
    mad.wide.u32 %out, %thread, 4, %out;
    st.global.u32 [%out], %sum;
    ret;
}
"""


def test_equal_operations_keep_their_lanes() -> None:
    device = EmulatorDevice()
    address = device.alloc(128)
    launch = Launch(
        "repeat", (1, 1, 1), (32, 1, 1), params=(Param("out", "pointer", "out"),),
        buffers=(Buffer("out", 128, "out"),),
    )  # fmt: skip
    device.launch(launch, TEXT, {"out": address})
    got = np.frombuffer(device.read(address, 128), np.uint32)
    assert got.tolist() == [lane * 20202 for lane in range(32)]
