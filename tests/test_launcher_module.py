"""Modules: what is refused before the driver, what its log says, and how many are kept."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from ptxgen.errors import AssemblyError, DriverError, PtxgenError
from ptxgen.launcher.jit_log import JitLog, decode_log
from ptxgen.launcher.module import Module, _load_error
from ptxgen.launcher.module_cache import ModuleCache
from ptxgen.launcher.properties import DeviceProperties
from ptxgen.launcher.ptx_header import check_target, check_version, read_header, runs_on

bindings = pytest.importorskip("cuda.bindings.driver")

HOPPER = DeviceProperties(
    name="H200", index=0, compute_capability=(9, 0), arch="sm_90a", num_sms=132,
    sm_clock_khz=1, memory_clock_khz=1, l2_bytes=1, memory_bytes=1, smem_bytes=232448,
    smem_per_sm_bytes=233472, driver_version=(13, 0),
)  # fmt: skip

TEXT = """// .version 7.0
/* .target sm_50 */
.version 8.6
.target sm_100a
.visible .entry first() { ret; }
.entry second$x(.param .u64 p) { ret; }
"""

# Printed by ptxas 13.0 -v for two kernels: one that spills, one whose setmaxnreg is dropped. The
# driver's verbose log equals ptxas -v (measured on driver 580.159).
INFO = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Function properties for k
    128 bytes stack frame, 128 bytes spill stores, 128 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 128 bytes cumulative stack size
ptxas info    : Compile time = 10.121 ms
ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine \
register count at entry.
"""
# Printed by ptxas 13.0 for an unknown modifier; the JIT's messages have the same form.
ERROR = """ptxas k.ptx, line 5; error   : Unknown modifier '.foo'
ptxas fatal   : Ptx assembly aborted due to errors"""


def test_the_header_is_read_past_comments() -> None:
    header = read_header(TEXT)
    assert (header.version, header.target_name) == ((8, 6), "sm_100a")
    assert header.entries == ("first", "second$x")


@pytest.mark.parametrize(
    ("target", "capability", "runs"),
    [
        ((90, "a"), (9, 0), True), ((90, "a"), (10, 0), False), ((90, ""), (10, 0), True),
        ((100, ""), (9, 0), False), ((100, "a"), (10, 3), False), ((100, "f"), (10, 3), True),
        ((100, "f"), (12, 0), False), ((103, "f"), (10, 0), False), ((120, "f"), (12, 1), True),
    ],
)  # fmt: skip
def test_a_target_runs_where_its_suffix_allows(
    target: tuple[int, str], capability: tuple[int, int], runs: bool
) -> None:
    assert runs_on(target, capability) is runs


def test_another_target_is_refused_by_name() -> None:
    with pytest.raises(AssemblyError, match=r"for sm_100a but the device is H200.*9\.0"):
        check_target(read_header(TEXT), (9, 0), "H200")


def test_ptx_newer_than_the_driver_names_both_versions_and_the_remedies() -> None:
    with pytest.raises(
        AssemblyError, match=r"8\.6 but the driver \(CUDA 12\.4\).*at most 8\.4"
    ) as e:
        check_version(read_header(TEXT), (8, 4), (12, 4))
    assert all(word in str(e.value) for word in ("newer driver", "lower .version", "cubin"))


def test_the_log_gives_registers_spills_and_notes() -> None:
    log = JitLog(INFO, "")
    assert (log.kernels["k"].registers, log.spill_bytes) == (32, 256)
    assert [note.code for note in log.notes] == ["C7508"]


def test_a_log_without_the_ptxas_prefix_is_read_too() -> None:
    assert JitLog(INFO.replace("ptxas ", ""), "").kernels["k"].registers == 32


def test_a_log_buffer_is_cut_at_the_nul_and_decoded_leniently() -> None:
    assert decode_log(b"caf\xe9 \xaa\n\0old text") == "caf\ufffd \ufffd"


def failure(code: int, log: JitLog, lines: Sequence[str] | None = None) -> PtxgenError:
    header = replace(read_header(TEXT), version=(9, 1), target=(90, "a"))
    return _load_error(bindings, code, log, header, HOPPER, lines)


def test_a_syntax_error_names_the_ptx_line_and_the_template_line() -> None:
    error = failure(218, JitLog("", ERROR), ("", "", "", "", "gemm.ptx.j2:17"))
    assert isinstance(error, AssemblyError)
    assert error.line == 5
    assert "PTX line 5 (gemm.ptx.j2:17): Unknown modifier '.foo'" in str(error)


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (222, AssemblyError, ".version 9.1 but the driver (CUDA 13.0) compiles at most 9.0"),
        (209, AssemblyError, "PTX for sm_90a cannot run on H200 (compute capability 9.0)"),
        (200, AssemblyError, "is not PTX"),
        (2, DriverError, "cuModuleLoadDataEx failed: CUDA_ERROR_OUT_OF_MEMORY (2)"),
    ],
)
def test_each_failed_load_has_its_own_message_and_the_log(
    code: int, kind: type[PtxgenError], words: str
) -> None:
    error = failure(code, JitLog("", "the log"))
    assert type(error) is kind
    assert words in str(error)
    assert "the log" in str(error)


class Loads:
    """Counts loads and unloads; the modules are empty."""

    def __init__(self) -> None:
        self.loaded: list[str | bytes] = []
        self.unloaded: list[Module] = []

    def load(self, image: str | bytes, template_lines: Any) -> Module:
        self.loaded.append(image)
        return Module(None, JitLog("", ""), ())

    def cache(self, limit: int) -> ModuleCache:
        return ModuleCache(self.load, self.unloaded.append, limit)


def test_a_text_is_loaded_once() -> None:
    loads = Loads()
    cache = loads.cache(4)
    with cache.loaded("a") as first, cache.loaded("a") as second:
        assert first is second
    assert loads.loaded == ["a"]


def test_many_texts_keep_few_modules_loaded() -> None:
    loads = Loads()
    cache = loads.cache(4)
    for i in range(100):
        with cache.loaded(f"text {i}"):
            pass
    assert (len(cache), len(loads.unloaded)) == (4, 96)


def test_a_module_in_use_is_not_unloaded() -> None:
    loads = Loads()
    cache = loads.cache(2)
    held = cache.acquire("held")
    for i in range(10):
        with cache.loaded(f"text {i}"):
            pass
    assert held not in loads.unloaded
    cache.release(held)
    cache.clear()
    assert held in loads.unloaded


def test_threads_that_ask_for_one_text_share_one_load() -> None:
    loads = Loads()
    gate = threading.Barrier(8)
    slow = threading.Event()

    def load(image: str | bytes, template_lines: Any) -> Module:
        slow.wait(0.05)
        return loads.load(image, template_lines)

    cache = ModuleCache(load, loads.unloaded.append, 4)
    seen: list[Module] = []

    def ask() -> None:
        gate.wait()
        seen.append(cache.acquire("a"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(set(map(id, seen))), loads.loaded) == (1, ["a"])
    assert cast(Any, cache)._users[id(seen[0])] == 8
