"""A first check of a GPU machine: loads, encodes, launches, times; prints one JSON object.

Run from a checkout: python scripts/gpu_smoke.py. Exit status 0 if every check holds, 3 without a
driver or GPU.
"""

import json
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ptxgen.errors import AssemblyError, PtxgenError, ToolMissingError  # noqa: E402
from ptxgen.launch import Buffer, Launch, Param, TensorMap  # noqa: E402
from ptxgen.launcher.device import GpuDevice  # noqa: E402
from ptxgen.launcher.launching import PreparedCall  # noqa: E402
from ptxgen.launcher.tensor_maps import encode_tensor_map  # noqa: E402
from ptxgen.launcher.timing import time_calls, time_graph  # noqa: E402

KERNELS = ROOT / "tests" / "kernels"
COLUMNS, ROWS = 192, 40
BOX = (64, 16)
MAP = TensorMap(
    buffer="x", element_type="bfloat16", dims=(COLUMNS, ROWS), strides_bytes=(COLUMNS * 2,), box=BOX
)


def ptx(name: str) -> str:
    """Text of one of the small kernels that the tests use."""
    return (KERNELS / f"{name}.ptx").read_text(encoding="utf-8")


def check_parameters(device: GpuDevice) -> dict[str, Any]:
    """Every kind of parameter arrives with the bytes that the kernel declares."""
    params = (
        Param("out", "pointer", "out"), Param("a", "u32", 2**32 - 1), Param("b", "s32", -5),
        Param("c", "u64", 2**64 - 2), Param("d", "s64", -(2**40)), Param("e", "f32", 1.5),
        Param("f", "bytes", "0102030405060708090a0b0c"), Param("map", "tensor_map", MAP),
    )  # fmt: skip
    buffers = (Buffer("out", 192), Buffer("x", COLUMNS * ROWS * 2))
    launch = Launch("params", (1, 1, 1), (1, 1, 1), params=params, buffers=buffers)
    out, x = device.alloc(192), device.alloc(COLUMNS * ROWS * 2)
    device.fill(out, 192)
    call = PreparedCall(device, launch, ptx("params"))
    call({"out": out, "x": x})
    got = device.read(out, 192)
    with device.current():
        encoded = encode_tensor_map(MAP, x)
    expected = {
        "u32": (got[0:4], struct.pack("<I", 2**32 - 1)),
        "s32": (got[8:12], struct.pack("<i", -5)),
        "u64": (got[16:24], struct.pack("<Q", 2**64 - 2)),
        "s64": (got[24:32], struct.pack("<q", -(2**40))),
        "f32": (got[32:36], struct.pack("<f", 1.5)),
        "bytes": (got[40:52], bytes.fromhex("0102030405060708090a0b0c")),
        "tensor_map": (got[64:192], encoded),
    }
    wrong = [name for name, (seen, sent) in expected.items() if seen != sent]
    usage = call.module.jit_log.kernels
    report = {
        "ok": not wrong and "params" in usage,
        "wrong": wrong,
        "jit_info": call.module.jit_log.info.splitlines(),
        "jit_seconds": call.module.jit_log.seconds,
        "jit_kernels": {name: asdict(kernel) for name, kernel in usage.items()},
        "param_sizes": call.kernel.param_sizes,
        "registers": call.kernel.registers,
        "encoded_map": encoded.hex(),
    }
    device.free(out)
    device.free(x)
    return report


def check_our_encoding(device: GpuDevice) -> dict[str, Any]:
    """The driver's 128 bytes equal those of the encoder that the emulator uses."""
    from ptxgen.emulator.tensor_map import encode_launch_map

    address = device.alloc(COLUMNS * ROWS * 2)
    with device.current():
        theirs = encode_tensor_map(MAP, address)
    ours = encode_launch_map(MAP, address)
    device.free(address)
    return {"ok": theirs == ours, "driver": theirs.hex(), "ours": ours.hex()}


def check_tma(device: GpuDevice) -> dict[str, Any]:
    """A box through TMA with 200 KB of dynamic shared memory, at two buffers and two places."""
    data = np.arange(COLUMNS * ROWS, dtype=np.uint16).reshape(ROWS, COLUMNS)
    errors = []
    for x, y in ((64, 16), (128, 32)):
        params = (
            Param("map", "tensor_map", MAP), Param("out", "pointer", "out"),
            Param("x", "u32", x), Param("y", "u32", y),
        )  # fmt: skip
        buffers = (Buffer("x", data.nbytes), Buffer("out", 2048))
        launch = Launch(
            "tma_copy", (1, 1, 1), (128, 1, 1), dynamic_smem_bytes=200_000, params=params,
            buffers=buffers,
        )  # fmt: skip
        call = PreparedCall(device, launch, ptx("tma_copy"))
        padded = np.zeros((ROWS + BOX[1], COLUMNS), np.uint16)
        padded[:ROWS] = data
        for _ in range(2):  # a second pair of buffers: the map must be encoded again
            source, out = device.alloc(data.nbytes), device.alloc(2048)
            device.write(source, data.tobytes())
            call((source, out))
            got = np.frombuffer(device.read(out, 2048), np.uint16).reshape(BOX[1], BOX[0])
            if not np.array_equal(got, padded[y : y + BOX[1], x : x + BOX[0]]):
                errors.append(f"box at {x},{y} from {source:#x}")
    return {"ok": not errors, "errors": errors}


def check_cluster(device: GpuDevice) -> dict[str, Any]:
    """The grid counts CTAs, with and without clusters, up to the non-portable size of 16."""
    out = device.alloc(16 * 48)
    wrong = []
    for size in (1, 2, 4, 8, 16):
        launch = Launch(
            "cluster", (48, 1, 1), (1, 1, 1), cluster_ctas=(size, 1, 1),
            params=(Param("out", "pointer", "out"),), buffers=(Buffer("out", 16 * 48),),
        )  # fmt: skip
        device.fill(out, 16 * 48)
        device.launch(launch, ptx("cluster"), {"out": out})
        got = np.frombuffer(device.read(out, 16 * 48), np.uint32).reshape(48, 4)
        expected = np.array([(i % size, size, 48, 0) for i in range(48)], np.uint32)
        if not np.array_equal(got, expected):
            wrong.append({"cluster": size, "got": got.tolist()})
    device.free(out)
    return {"ok": not wrong, "wrong": wrong}


def check_rejections(device: GpuDevice) -> dict[str, Any]:
    """Messages for PTX that the driver cannot take, each from the driver or before it."""
    good = ptx("cluster")
    texts = {
        "newer than the driver": good.replace(".version 8.0", ".version 9.9"),
        "wrong target": good.replace("sm_90a", "sm_100a").replace("8.0", "8.6"),
        "syntax error": good.replace("mul.wide.u32 %offset, %cta, 16;", "mul.wild.u32 %offset;"),
        "not PTX": "hello",
    }
    messages: dict[str, Any] = {}
    for what, text in texts.items():
        try:
            device.modules.acquire(text)
            messages[what] = None
        except AssemblyError as error:
            messages[what] = {"message": str(error)[:600], "line": error.line}
    ok = all(m is not None for m in messages.values())
    return {"ok": ok and messages["syntax error"]["line"] is not None, "messages": messages}


def measure_overhead(device: GpuDevice) -> dict[str, Any]:
    """Host and device time of a launch of the smallest kernel, in microseconds."""
    launch = Launch(
        "tma_copy", (1, 1, 1), (128, 1, 1), dynamic_smem_bytes=2048, buffers=(
            Buffer("x", COLUMNS * ROWS * 2), Buffer("out", 2048),
        ), params=(
            Param("map", "tensor_map", MAP), Param("out", "pointer", "out"),
            Param("x", "u32", 0), Param("y", "u32", 0),
        ),
    )  # fmt: skip
    call = PreparedCall(device, launch, ptx("tma_copy"))
    pairs = [(device.alloc(COLUMNS * ROWS * 2), device.alloc(2048)) for _ in range(2)]

    def host_microseconds(pick: Callable[[int], tuple[int, int]], count: int = 500) -> float:
        device.synchronize()
        start = time.perf_counter()
        for i in range(count):
            call(pick(i))
        elapsed = time.perf_counter() - start
        device.synchronize()
        return elapsed / count * 1e6

    same = min(host_microseconds(lambda _: pairs[0]) for _ in range(5))
    moving = min(host_microseconds(lambda i: pairs[i % 2]) for _ in range(5))
    with device.current():
        in_context = min(host_microseconds(lambda _: pairs[0]) for _ in range(5))
    events = time_calls(device, lambda s: call(pairs[0], s), calls_per_repeat=50)
    graph = time_graph(device, lambda s: call(pairs[0], s), calls_per_graph=50)
    return {
        "ok": True,
        "host_us_same_pointers": same,
        "host_us_same_pointers_context_current": in_context,
        "host_us_new_pointers": moving,
        "event_us_per_launch": events.median * 1e6,
        "graph_us_per_launch": graph.median * 1e6,
    }


CHECKS = (
    check_parameters, check_our_encoding, check_tma, check_cluster, check_rejections,
    measure_overhead,
)  # fmt: skip


def main() -> int:
    """Run all checks on GPU 0 and print what they found."""
    try:
        device = GpuDevice.get()
    except ToolMissingError as error:
        print(json.dumps({"schema": "ptxgen.gpu_smoke/1", "ok": False, "error": str(error)}))
        return error.exit_code
    report: dict[str, Any] = {
        "schema": "ptxgen.gpu_smoke/1",
        "ok": True,
        "device": asdict(device.properties),
    }
    for check in CHECKS:
        try:
            result = check(device)
        except PtxgenError as error:
            result = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        report[check.__name__] = result
        report["ok"] = report["ok"] and result["ok"]
    print(json.dumps(report, indent=1))
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
