"""peers: the libraries that ours is measured against, called as their users call them.

The only place where torch is imported. Each peer works on the very buffers that ours is timed on;
where a peer knows other scales than the problem has, it gets one scale per tensor, and its result
is checked against that problem.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from ptxgen.benchmark.method import Contender
from ptxgen.benchmark.replay import Stopwatch, calls_per_graph
from ptxgen.benchmark.workload import Workload
from ptxgen.errors import ArgumentError, PtxgenError, not_one_of
from ptxgen.operands import Operands
from ptxgen.problem import FP8, Gemm

Call = Callable[[], Any]


class PeerError(PtxgenError):
    """A peer is not here, or refuses the problem."""


@dataclass(frozen=True)
class Peer:
    """A library's function for dense GEMM."""

    name: str
    what: str
    """What is called, for the report."""
    fp8: bool
    """Whether it takes FP8 operands (else 16-bit ones)."""
    accumulate: str
    """Which of our accumulations its result has."""
    prepare: Callable[[Workload, Mapping[str, int]], Call]
    """A function of no arguments that computes D of one copy on torch's current stream."""

    def serves(self, problem: Gemm) -> bool:
        """Whether formats, layout and strides are ones that it takes."""
        dense = all(problem.stride(x) == getattr(problem, f"{x}_shape")[1] for x in ("a", "b", "d"))
        formats = (
            problem.a == problem.b == "e4m3" and problem.d in ("bf16", "f32")
            if self.fp8
            else problem.a not in FP8 and problem.d == problem.a
        )
        return dense and formats and problem.layout == "nt" and problem.alpha == 1.0

    def problem(self, problem: Gemm) -> Gemm:
        """The problem whose result this peer computes on the operands of `problem`."""
        scale = "tensor" if self.fp8 else "none"
        return replace(problem, scale=scale, accumulate=self.accumulate)

    def operands(self, workload: Workload) -> Operands:
        """The operands that it sees: the same A and B, one scale each."""
        if not self.fp8:
            return workload.operands
        scales = [np.full(1, s, np.float32) for s in workload.uniform_scales]
        return Operands(workload.operands.a, workload.operands.b, scales[0], scales[1])

    def contender(self, workload: Workload, watch: Stopwatch) -> Contender:
        """This peer on all copies of a workload, captured into a graph by torch.

        Raises: PeerError if it is not installed, or refuses the problem.
        """
        torch = torch_module()
        try:
            torch.cuda.set_device(watch.device.index)
            calls = [self.prepare(workload, copy) for copy in workload.copies]
            torch.cuda.synchronize()  # the scales were filled on another stream
            return capture(self.name, torch, watch, calls)
        except (RuntimeError, ValueError, TypeError) as error:  # torch's and DeepGEMM's refusals
            first = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
            raise PeerError(f"{self.name}: {first}") from error


def torch_module() -> Any:
    """torch, with a GPU.

    Raises: PeerError if it is not here.
    """
    try:
        torch = import_module("torch")
    except ImportError as error:
        raise PeerError(f"torch is not installed ({error}); try pip install torch") from error
    if not torch.cuda.is_available():
        raise PeerError("torch is installed without CUDA, or sees no GPU")
    return torch


class _DeviceBytes:
    """Bytes on the GPU, for torch.as_tensor, which takes them without a copy."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 3,
        }


def device_tensor(torch: Any, address: int, shape: tuple[int, ...], name: str) -> Any:
    """A tensor over our bytes at `address`, without a copy."""
    kind = {
        "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "bf16": torch.bfloat16,
        "f16": torch.float16, "f32": torch.float32,
    }[name]  # fmt: skip
    nbytes = math.prod(shape) * kind.itemsize
    flat = torch.as_tensor(_DeviceBytes(address, nbytes), device="cuda")
    return flat.view(kind).view(shape)


def _operands(torch: Any, workload: Workload, copy: Mapping[str, int]) -> tuple[Any, Any, Any]:
    """A [M,K], B as stored [N,K] and D [M,N] of one copy, as tensors over our buffers."""
    p = workload.problem
    return (
        device_tensor(torch, copy["a"], p.a_shape, p.a),
        device_tensor(torch, copy["b"], p.b_shape, p.b),
        device_tensor(torch, copy["d"], p.d_shape, p.d),
    )


def capture(name: str, torch: Any, watch: Stopwatch, calls: Sequence[Call]) -> Contender:
    """Calls on torch's current stream, captured into a graph over all copies."""
    stream = torch.cuda.ExternalStream(watch.stream)

    def all_copies() -> None:
        for call in calls:
            call()

    with torch.cuda.stream(stream):
        watch.timed(all_copies, 2, 1)
        seconds = watch.timed(all_copies, 0, 1) / len(calls)
        count = calls_per_graph(len(calls), seconds)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            for index in range(count):
                calls[index % len(calls)]()

    def replay(lead: int, timed: int) -> float:
        with torch.cuda.stream(stream):
            return watch.timed(graph.replay, lead, timed)

    return Contender(name, count, replay, graph.reset, holds=calls)


def _scaled_mm(fast: bool, by_row: bool) -> Callable[[Workload, Mapping[str, int]], Call]:
    def prepare(workload: Workload, copy: Mapping[str, int]) -> Call:
        torch = torch_module()
        a, b, d = _operands(torch, workload, copy)
        p = workload.problem
        shapes = ((p.m, 1), (1, p.n)) if by_row else ((), ())
        scales = [
            torch.full(shape, value, device="cuda", dtype=torch.float32)
            for shape, value in zip(shapes, workload.uniform_scales, strict=True)
        ]
        return lambda: torch._scaled_mm(
            a, b.t(), scales[0], scales[1], out_dtype=d.dtype, use_fast_accum=fast, out=d
        )

    return prepare


def _mm(workload: Workload, copy: Mapping[str, int]) -> Call:
    torch = torch_module()
    a, b, d = _operands(torch, workload, copy)
    return lambda: torch.mm(a, b.t(), out=d)


def _deep_gemm() -> Any:
    try:
        return import_module("deep_gemm")
    except ImportError as error:
        raise PeerError(f"deep_gemm is not installed ({error})") from error


def _deep_gemm_fp8(workload: Workload, copy: Mapping[str, int]) -> Call:
    torch, deep_gemm = torch_module(), _deep_gemm()
    a, b, d = _operands(torch, workload, copy)
    p = workload.problem
    blocks_k, blocks_n = -(-p.k // 128), -(-p.n // 128)
    scale_a = torch.full((p.m, blocks_k), workload.uniform_scales[0], device="cuda")
    scale_b = torch.full((blocks_n, blocks_k), workload.uniform_scales[1], device="cuda")
    aligned = deep_gemm.get_mn_major_tma_aligned_tensor(scale_a)  # no transform within the call
    return lambda: deep_gemm.fp8_gemm_nt((a, aligned), (b, scale_b), d)


def _deep_gemm_bf16(workload: Workload, copy: Mapping[str, int]) -> Call:
    torch, deep_gemm = torch_module(), _deep_gemm()
    a, b, d = _operands(torch, workload, copy)
    return lambda: deep_gemm.bf16_gemm_nt(a, b, d)


PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer("cublaslt_fp8_tensor_fast",
             "torch._scaled_mm e4m3 (cublasLt), per-tensor scales, fast accumulation",
             True, "fast", _scaled_mm(True, False)),
        Peer("cublaslt_fp8_tensor_slow",
             "torch._scaled_mm e4m3 (cublasLt), per-tensor scales, accumulation promoted",
             True, "promoted", _scaled_mm(False, False)),
        Peer("torch_fp8_rowwise",
             "torch._scaled_mm e4m3, row x column scales, fast accumulation",
             True, "fast", _scaled_mm(True, True)),
        Peer("deepgemm_fp8_1d2d",
             "deep_gemm.fp8_gemm_nt, A 1x128 and B 128x128 scales",
             True, "promoted", _deep_gemm_fp8),
        Peer("cublas_bf16", "torch.mm (cublas), 16-bit", False, "fast", _mm),
        Peer("deepgemm_bf16", "deep_gemm.bf16_gemm_nt", False, "fast", _deep_gemm_bf16),
    )
}  # fmt: skip

GROUPS: dict[str, tuple[str, ...]] = {
    "cublaslt": ("cublaslt_fp8_tensor_fast", "cublaslt_fp8_tensor_slow", "cublas_bf16"),
    "torch": ("torch_fp8_rowwise", "cublas_bf16"),
    "deepgemm": ("deepgemm_fp8_1d2d", "deepgemm_bf16"),
    "all": tuple(PEERS),
    "none": (),
}
"""Short names for --peers."""


def chosen_peers(names: Sequence[str]) -> list[Peer]:
    """The peers called by their names or groups, without repetition.

    Raises: ArgumentError for a name that is not known.
    """
    found: dict[str, Peer] = {}
    for name in names:
        members = GROUPS.get(name, (name,))
        for member in members:
            if member not in PEERS:
                raise ArgumentError(not_one_of("peer", name, (*GROUPS, *PEERS)))
            found[member] = PEERS[member]
    return list(found.values())
