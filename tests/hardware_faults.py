"""Kernels that an H200 stops with an error.

`python tests/hardware_faults.py NAME` runs one on a GPU and prints the number of the error: a fault
ends the context, so each needs a process.
"""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

from hardware_async import async_case, one_thread
from hardware_runs import Case, run_case
from hardware_tma import SIZES, im2col_case, load_case, store_case, tensor_map_of

from ptxgen.emulator.tensor_map import Im2col
from ptxgen.errors import DriverError
from ptxgen.launch import TensorMap

ILLEGAL_INSTRUCTION, MISALIGNED_ADDRESS, LAUNCH_FAILED = 715, 716, 719


@cache
def faults() -> dict[str, tuple[Case, int]]:
    """Name -> (kernel, error)."""
    found = {}
    for element_type in ("uint8", "uint16", "uint32", "uint64"):
        m = tensor_map_of(element_type, (256 // SIZES[element_type], 8), (16, 4))
        found[f"load at column 1 of {element_type}"] = load_case(m, (1, 0)), ILLEGAL_INSTRUCTION
    halves = tensor_map_of("uint16", (64, 8), (32, 4))
    swizzled = tensor_map_of("uint16", (64, 8), (32, 4), swizzle="64B")
    found |= {
        "load at column -1": (load_case(halves, (-1, 0)), ILLEGAL_INSTRUCTION),
        "store at column 4": (store_case(halves, (4, 0)), ILLEGAL_INSTRUCTION),
        "store at column -8": (store_case(halves, (-8, 0)), ILLEGAL_INSTRUCTION),
        "store at row -1": (store_case(halves, (0, -1)), ILLEGAL_INSTRUCTION),
        "reduction at row -1": (store_case(halves, (0, -1), "add"), ILLEGAL_INSTRUCTION),
        "int64 sum": (
            store_case(tensor_map_of("int64", (16, 8), (8, 4)), (0, 0), "add"),
            ILLEGAL_INSTRUCTION,
        ),
        "load to 16 bytes past a line": (load_case(halves, (0, 0), 16), MISALIGNED_ADDRESS),
        "load to 64 bytes past a line": (load_case(halves, (0, 0), 64), MISALIGNED_ADDRESS),
        "swizzled load to 64 bytes past": (load_case(swizzled, (0, 0), 64), MISALIGNED_ADDRESS),
        "store from 32 bytes past": (store_case(halves, (0, 0), offset=32), MISALIGNED_ADDRESS),
        "im2col channel 4": (
            im2col_case((32, 11, 4), Im2col((0,), (0,), 16, 8), (4, 0, 0), (0,)),
            ILLEGAL_INSTRUCTION,
        ),
        "im2col below its lower corner": (
            im2col_case((32, 11, 4), Im2col((0,), (0,), 16, 8), (0, -1, 0), (0,)),
            ILLEGAL_INSTRUCTION,
        ),
        "map of zeros": (_null_map(), ILLEGAL_INSTRUCTION),
    }
    init = "mbarrier.inval.shared::cta.b64 [%bar+8];\nmbarrier.init.shared::cta.b64 [%bar+8], 1;\n"
    arrive = "mbarrier.arrive.shared::cta.b64 _, [%bar+8]"
    expect = "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%bar+8]"
    for name, script in {
        "arrival at a full phase": f"{expect}, 16;\n{arrive};\n{arrive};",
        "two arrivals at once at one": f"{arrive}, 2;",
        "2^20 bytes expected": f"{expect}, 1048576;",
    }.items():
        found[name] = async_case(name, one_thread(init + script)), LAUNCH_FAILED
    return found


def _null_map() -> Case:
    body = one_thread(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 16;\ncvta.param.u64 %map, map;\n"
        "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%smem], [%map, {0}], [%bar];"
    )
    return async_case("map of zeros", body, tensor_map=TensorMap(None))


def error_on_a_gpu(name: str) -> str:
    """What `main` prints for that kernel, in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, name], capture_output=True, text=True, timeout=60, check=False,
        cwd=Path(__file__).parent.parent,
    )  # fmt: skip
    return done.stdout.strip() or done.stderr[-300:]


def main() -> None:
    """Run one."""
    from ptxgen.launcher import GpuDevice

    try:
        run_case(GpuDevice.get(), faults()[sys.argv[1]][0])
    except DriverError as error:
        code = re.search(r"\((\d+)\)", str(error))
        sys.stdout.write(code[1] if code else str(error))
    else:
        sys.stdout.write("no error")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
