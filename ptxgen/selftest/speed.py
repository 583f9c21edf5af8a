"""The benchmark of a selftest: our default configs beside cublasLt, where torch is here for it.

The method is that of `ptxgen bench` (ptxgen.benchmark.method): rotating copies of the operands,
CUDA graphs, paired rounds in changing order, results checked on the timed buffers.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from ptxgen.benchmark.check import check, expect
from ptxgen.benchmark.measuring import our_contender
from ptxgen.benchmark.method import Method, compare, paired_ratio
from ptxgen.benchmark.peers import PeerError, chosen_peers
from ptxgen.benchmark.replay import Stopwatch, stopwatch
from ptxgen.benchmark.sets import KINDS
from ptxgen.benchmark.workload import Workload
from ptxgen.errors import ConfigError, PtxgenError
from ptxgen.images import assemble_all
from ptxgen.kernels import k_parts, kernel_for, kernel_of, target_fields, unit_of
from ptxgen.problem import Gemm
from ptxgen.selection import choose, model_of

OURS = "ptxgen"
PEERS = ("cublaslt",)
KINDS_TIMED = ("bf16", "fp8-tensor", "fp8-rowcol")
SHAPES = ((4096, 4096, 4096), (8192, 8192, 8192), (4096, 7168, 2048), (64, 4096, 7168),
          (16, 7168, 2048))  # fmt: skip
"""M, N, K: large ones, and few rows, whose weights stream from memory."""
SECONDS = 1.5
"""Of the rounds of one problem."""


def measure(
    device: Any, target: str, *, seconds: float, note: Callable[[str], None]
) -> dict[str, Any]:
    """Time our kernels and cublasLt on some problems, as plain data. seconds: begin no problem
    after these."""
    began, results, skipped = time.monotonic(), [], []
    with stopwatch(device) as watch, ThreadPoolExecutor(4) as executor:
        for problem in problems():
            label = f"{problem.a} {problem.scale} {problem.m} x {problem.n} x {problem.k}"
            if time.monotonic() - began > seconds:
                skipped.append({"problem": label, "reason": f"no time left of {seconds:g} s"})
                continue
            try:
                results.append(_measure(watch, target, problem, executor))
            except PtxgenError as error:
                skipped.append({"problem": label, "reason": str(error)})
                note(f"{label}: {error}")
                continue
            note(f"{label}: {results[-1]['us']:.2f} us, {results[-1]['tflops']:.0f} TFLOPS")
    return {"results": results, "skipped": skipped}


def problems() -> Iterator[Gemm]:
    """What is timed."""
    for kind in KINDS_TIMED:
        for shape in SHAPES:
            yield KINDS[kind].problem(shape)


def _config(watch: Stopwatch, target: str, problem: Gemm) -> Any:
    """What `gemm` would take on this GPU, or the default for another target or a model unknown."""
    try:
        model = model_of(watch.device.name, watch.device.properties.num_sms)
    except ConfigError:
        model = None
    if model is not None and model.arch == target:
        return choose(problem, model)
    kernel = kernel_for(problem, target)
    return kernel.default_config(problem, **target_fields(kernel, target))


def _measure(watch: Stopwatch, target: str, problem: Gemm, executor: Any) -> dict[str, Any]:
    """One problem.

    Raises: ConfigError, AssemblyError, DriverError, WrongResultError.
    """
    config = _config(watch, target, problem)
    kernel = kernel_of(config)
    image = assemble_all(executor, [(kernel.NAME, config)])[config]
    if image.error:
        raise PtxgenError(f"{config}: {image.error}")
    refusals = {}
    with ExitStack() as stack:
        workload = Workload(watch.device, problem)
        stack.callback(workload.free)
        contenders = [our_contender(OURS, watch, workload, image)]
        stack.callback(contenders[0].close)
        tile = (config.tile_m, config.tile_n)
        wanted = expect(
            problem, workload.operands, tile, exact=True, k_parts=k_parts(config, problem),
            unit=unit_of(config),
        )  # fmt: skip
        check(workload, contenders[0], wanted).require(str(config))
        for peer in chosen_peers(PEERS):
            if not peer.serves(problem):
                continue
            try:
                contender = peer.contender(workload, watch)
            except PeerError as error:
                refusals[peer.name] = str(error)
                continue
            stack.callback(contender.close)
            theirs = expect(peer.problem(problem), peer.operands(workload), tile, exact=False)
            if check(workload, contender, theirs).ok:
                contenders.append(contender)
            else:
                refusals[peer.name] = "its result is wrong"
        samples = compare(contenders, Method(), SECONDS)
    ours = samples[OURS]
    return {
        "m": problem.m, "n": problem.n, "k": problem.k, "a": problem.a, "scale": problem.scale,
        "kernel": kernel.NAME, "config": str(config), "us": ours.median * 1e6,
        "spread": ours.spread, "tflops": problem.flop / ours.median / 1e12,
        "gbytes_per_s": problem.compulsory_bytes / ours.median / 1e9,
        "peers": {
            name: {"us": found.median * 1e6, "ratio": paired_ratio(found, ours)}
            for name, found in samples.items()
            if name != OURS
        },
        "refusals": refusals,
    }  # fmt: skip
