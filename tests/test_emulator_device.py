"""The emulator as a device: allocations, parameters, buffers, errors of a launch."""

from dataclasses import replace

import numpy as np
import pytest
from emulator_kernels import HEAD, STORE_R2, kernel, launch, words

from ptxgen.emulator import EmulatorDevice, Options, Stepper, Stop, run
from ptxgen.errors import ArgumentError, LaunchError, OutOfBoundsError, PtxError
from ptxgen.launch import Buffer, Device, Launch, Param, TensorMap

COPY = """
mul.wide.u32 %d2, %r0, 4;
add.s64 %d3, %d2, %d0;
ld.global.u32 %r2, [%d3];
add.u32 %r2, %r2, 1;
"""


def test_the_device_runs_a_launch_on_its_own_allocations() -> None:
    device: Device = EmulatorDevice()
    data = np.arange(32, dtype=np.uint32)
    source, target = device.alloc(128), device.alloc(4096)
    assert source % 256 == 0
    device.write(source, data.tobytes())
    device.launch(launch(128), kernel(COPY + STORE_R2), {"in": source, "out": target})
    assert np.frombuffer(device.read(target, 128), np.uint32).tolist() == (data + 1).tolist()
    device.free(source)
    with pytest.raises(OutOfBoundsError):
        device.launch(launch(128), kernel(COPY + STORE_R2), {"in": source, "out": target})


def test_module_variables_keep_their_values_between_launches() -> None:
    module = ".global .align 4 .u32 counter = 5;\n"
    body = "mov.u64 %d4, counter;\natom.global.add.u32 %r2, [%d4], 1;\n"
    device = EmulatorDevice()
    target = device.alloc(4096)
    for start in (5, 37):
        device.launch(launch(), kernel(body + STORE_R2, module), {"in": target, "out": target})
        found = np.frombuffer(device.read(target, 128), np.uint32)
        assert found.tolist() == list(range(start, start + 32))


PARAMETERS = f"""{HEAD}
.visible .entry k(.param .u32 a, .param .u64 b, .param .f32 c, .param .align 8 .b8 d[12],
                  .param .s32 e, .param .u64 out)
{{
.reg .b32 %r<8>;
.reg .b64 %d<8>;
ld.param.u64 %d1, [out];
ld.param.u32 %r1, [a];
ld.param.u64 %d2, [b];
ld.param.u32 %r2, [c];
ld.param.u32 %r3, [d+8];
ld.param.s32 %r4, [e];
st.global.u32 [%d1], %r1;
st.global.u64 [%d1+8], %d2;
st.global.u32 [%d1+16], %r2;
st.global.u32 [%d1+20], %r3;
st.global.u32 [%d1+24], %r4;
ret;
}}
"""
VALUES = (
    Param("a", "u32", 7), Param("b", "u64", 1 << 40), Param("c", "f32", -1.5),
    Param("d", "bytes", "00112233445566778899aabb"), Param("e", "s32", -2),
    Param("out", "pointer", "out", 32),
)  # fmt: skip


def _with(params: tuple[Param, ...]) -> Launch:
    return Launch("k", (1, 1, 1), (1, 1, 1), params=params, buffers=(Buffer("out", 64, "out"),))


def test_parameters_of_every_kind_arrive_with_their_alignment() -> None:
    raw = run(PARAMETERS, _with(VALUES)).buffers["out"][32:]
    assert np.frombuffer(raw[:4], np.uint32)[0] == 7
    assert np.frombuffer(raw[8:16], np.uint64)[0] == 1 << 40
    assert np.frombuffer(raw[16:20], np.float32)[0] == -1.5
    assert raw[20:24] == bytes.fromhex("8899aabb")
    assert np.frombuffer(raw[24:28], np.int32)[0] == -2


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (VALUES[:-1], "has 6 parameters .*gives 5"),
        ((replace(VALUES[0], kind="u64"), *VALUES[1:]), "parameter a of k has 4 B"),
        ((replace(VALUES[0], value="seven"), *VALUES[1:]), "'seven' is not a u32"),
        ((replace(VALUES[0], value=1 << 33), *VALUES[1:]), "is not a u32"),
    ],
)
def test_parameters_that_do_not_fit_the_entry_are_named(
    params: tuple[Param, ...], message: str
) -> None:
    with pytest.raises(LaunchError, match=message):
        run(PARAMETERS, _with(params))


def test_an_entry_that_is_not_there_is_named() -> None:
    with pytest.raises(LaunchError, match="no entry 'other'"):
        run(kernel(""), replace(launch(), entry="other"))


def test_text_that_is_not_ptx_is_an_error_of_ours() -> None:
    with pytest.raises(PtxError):
        run("hello", launch())


def test_buffers_without_data_start_as_their_init_says() -> None:
    names = ("poison", "zeros", "random:f32:3")
    found = {}
    for init in names:
        buffers = (Buffer("in", 16), Buffer("out", 4096, "out", init))
        found[init] = run(kernel(""), replace(launch(), buffers=buffers)).buffers["out"]
    assert found["poison"] == b"\xff" * 4096
    assert found["zeros"] == bytes(4096)
    values = np.frombuffer(found["random:f32:3"], np.float32)
    assert 0.9 < values.std() < 1.1


def test_data_for_a_buffer_that_is_not_there_is_an_error() -> None:
    with pytest.raises(LaunchError, match=r"each name of data must be one of .*, got 'x'"):
        run(kernel(""), launch(), {"x": b"1234"})


def test_more_data_than_a_buffer_holds_is_an_error() -> None:
    with pytest.raises(LaunchError, match="16 B, but 32 B were given"):
        run(kernel(""), launch(), {"in": bytes(32)})


@pytest.mark.parametrize("choice", [{"schedule": "fair"}, {"max_instructions": 0}])
def test_options_that_do_not_exist_are_refused(choice: dict[str, object]) -> None:
    with pytest.raises(ArgumentError):
        Options(**choice)  # type: ignore[arg-type]


def test_a_grid_covers_all_ctas_in_three_dimensions() -> None:
    body = """
mov.u32 %r3, %ctaid.x;
mov.u32 %r4, %ctaid.y;
mov.u32 %r5, %ctaid.z;
mov.u32 %r6, %nctaid.x;
mov.u32 %r7, %nctaid.y;
mad.lo.u32 %r8, %r5, %r7, %r4;
mad.lo.u32 %r8, %r8, %r6, %r3;
mov.u32 %r9, %tid.y;
mov.u32 %r10, %tid.z;
mad.lo.u32 %r11, %r10, 3, %r9;
mad.lo.u32 %r11, %r11, 2, %r0;
mad.lo.u32 %r12, %r8, 12, %r11;
mul.wide.u32 %d4, %r12, 4;
add.s64 %d4, %d4, %d1;
st.global.u32 [%d4], %r12;
"""
    shape = replace(launch(), grid_ctas=(2, 3, 4), cta_threads=(2, 3, 2))
    found = words(run(kernel(body), shape), 24 * 12)
    assert found.tolist() == list(range(24 * 12))


TMA = """
setp.ne.u32 %p1, %r0, 0;
@%p1 bra READY;
mbarrier.init.shared.b64 [full], 1;
mbarrier.arrive.expect_tx.shared.b64 _, [full], 512;
cvta.param.u64 %d4, tmap;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
    [tile], [%d4, {0, 2}], [full];
READY:
bar.sync 0;
LOOP:
mbarrier.try_wait.parity.shared.b64 %p2, [full], 0;
@!%p2 bra LOOP;
mov.u32 %r3, tile;
shl.b32 %r4, %r0, 2;
add.u32 %r3, %r3, %r4;
ld.shared.u32 %r2, [%r3+128];
"""


def test_a_tensor_map_parameter_reaches_the_copy() -> None:
    text = kernel(TMA + STORE_R2, shared=TMA_SHARED).replace(
        "(.param .u64 input,", "(.param .align 64 .b8 tmap[128], .param .u64 input,"
    )
    tensor_map = TensorMap("in", 0, "uint32", (32, 8), (128,), (32, 4), (), "128B")
    frame = launch(1024)
    shape = replace(frame, params=(Param("tmap", "tensor_map", tensor_map), *frame.params))
    data = np.arange(256, dtype=np.uint32).reshape(8, 32)
    found = words(run(text, shape, {"in": data}))
    swizzled = data[3].reshape(8, 4)[np.arange(8) ^ 1].ravel()
    assert found.tolist() == swizzled.tolist()


TMA_SHARED = ".shared .align 1024 .b8 tile[512];\n.shared .align 8 .b64 full;\n"


def test_shared_memory_starts_at_1024_and_dynamic_arrays_follow_aligned() -> None:
    module = """
.extern .shared .align 16 .b8 small[];
.extern .shared .align 128 .b8 big[];
"""
    body = """
mov.u32 %r3, fixed;
mov.u32 %r4, small;
mov.u32 %r5, big;
shl.b32 %r4, %r4, 8;
add.u32 %r2, %r3, %r4;
shl.b32 %r5, %r5, 20;
add.u32 %r2, %r2, %r5;
"""
    text = kernel(body + STORE_R2, module, ".shared .align 4 .b8 fixed[20];")
    found = words(run(text, launch(dynamic_smem_bytes=64)))
    assert set(found) == {(1024 + (1056 << 8) + (1152 << 20)) & 0xFFFFFFFF}


class _Walk(Stepper):
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.last: dict[str, object] = {}

    def on_stop(self, stop: Stop) -> None:
        self.texts.append(stop.instruction.opcode)
        if stop.instruction.name == "st":
            self.last = dict(stop.registers())


def test_a_stepper_sees_every_instruction_and_its_live_registers() -> None:
    walk = _Walk()
    body = "mov.u32 %r2, 7;\nsetp.lt.u32 %p1, %r1, 2;\n@%p1 add.u32 %r2, %r1, 1;\n"
    result = run(kernel(body + STORE_R2), launch(), observer=walk)
    assert words(result)[:4].tolist() == [1, 2, 7, 7]
    assert walk.texts[:6] == [
        "ld.param.u64", "ld.param.u64", "mov.u32", "mov.u32", "mov.u32", "setp.lt.u32",
    ]  # fmt: skip
    assert walk.texts[-1] == "ret"
    values = walk.last["%r2"]
    assert isinstance(values, dict)
    assert [values[i] for i in range(4)] == [1, 2, 7, 7]
