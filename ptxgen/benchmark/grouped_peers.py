"""grouped_peers: grouped functions of DeepGEMM and torch, called as their users call them.

DeepGEMM pads each segment of a contiguous problem to whole tiles, so it gets its own layout of the
same rows; masked problems and sums over K are shared with ours.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from ptxgen.benchmark.grouped_sets import GroupedCase
from ptxgen.benchmark.grouped_workload import GroupedWorkload
from ptxgen.benchmark.method import Contender
from ptxgen.benchmark.peers import PeerError, capture, device_tensor, torch_module
from ptxgen.benchmark.replay import Stopwatch

Call = Callable[[], Any]

DEEPGEMM = {
    "masked": "deepgemm_fp8_masked",
    "contiguous": "deepgemm_fp8_contiguous",
    "kgrouped": "deepgemm_fp8_kgrouped",
}
TORCH = {True: "torch_fp8_grouped_rowwise", False: "torch_bf16_grouped"}
"""torch's function by whether the operands are FP8."""
WHAT = {
    "deepgemm_fp8_masked": "deep_gemm.m_grouped_fp8_gemm_nt_masked, A 1x128 and B 128x128 scales",
    "deepgemm_fp8_contiguous": "deep_gemm.m_grouped_fp8_gemm_nt_contiguous, segments padded to 128",
    "deepgemm_fp8_kgrouped": "deep_gemm.k_grouped_fp8_gemm_nt_contiguous, 1x128 scales on both",
    "torch_fp8_grouped_rowwise": "torch._scaled_grouped_mm, e4m3, one scale per row and column, "
    "fast accumulation, bf16 results, nothing added",
    "torch_bf16_grouped": "torch._grouped_mm, bf16",
}
PADDING = 128
"""Rows that DeepGEMM pads segments of a contiguous problem to."""


def serving(case: GroupedCase) -> tuple[str, ...]:
    """Names of the peers that compute the case, or the same products with other scales."""
    p = case.problem
    found = []
    if p.a == p.b == "e4m3" and p.scale == ("group" if p.mode == "kgrouped" else "block"):
        found += [DEEPGEMM[p.mode]] if p.mode in DEEPGEMM else []
    if p.mode in ("contiguous", "kgrouped") and p.a == p.b and p.a in ("e4m3", "bf16"):
        found.append(TORCH[p.a == "e4m3"])
    return tuple(found)


def contender(
    name: str, case: GroupedCase, workload: GroupedWorkload, watch: Stopwatch
) -> Contender:
    """A peer on all copies of a workload, captured into a graph by torch.

    Raises: PeerError if it is not installed, or refuses the problem.
    """
    torch = torch_module()
    deep_gemm = None
    if name in DEEPGEMM.values():
        try:
            deep_gemm = import_module("deep_gemm")
        except ImportError as error:
            raise PeerError(f"deep_gemm is not installed ({error})") from error
    prepare = {
        "deepgemm_fp8_masked": _masked, "deepgemm_fp8_contiguous": _contiguous,
        "deepgemm_fp8_kgrouped": _kgrouped, "torch_fp8_grouped_rowwise": _torch_rowwise,
        "torch_bf16_grouped": _torch_plain,
    }[name]  # fmt: skip
    try:
        torch.cuda.set_device(watch.device.index)
        calls = [prepare(torch, deep_gemm, workload, copy) for copy in workload.copies]
        torch.cuda.synchronize()
        return capture(name, torch, watch, calls)
    except (RuntimeError, ValueError, TypeError, AttributeError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        raise PeerError(f"{name}: {first}") from error


def _tensors(torch: Any, workload: GroupedWorkload, copy: Mapping[str, int]) -> dict[str, Any]:
    p = workload.problem
    return {
        name: device_tensor(torch, copy[name], getattr(p, f"{name}_shape"), getattr(p, name))
        for name in ("a", "b", "d")
    }


def _scales(torch: Any, workload: GroupedWorkload, name: str) -> Any:
    return torch.from_numpy(np.ascontiguousarray(workload.host[name])).cuda()


def _ends(torch: Any, workload: GroupedWorkload) -> Any:
    """Where each group ends, as torch wants it."""
    return torch.from_numpy(np.cumsum(workload.rows).astype(np.int32)).cuda()


def _torch_plain(
    torch: Any, deep_gemm: None, workload: GroupedWorkload, copy: Mapping[str, int]
) -> Call:
    x, ends = _tensors(torch, workload, copy), _ends(torch, workload)
    a, b = x["a"][0], x["b"].transpose(-2, -1)
    b = b[0] if workload.problem.mode == "kgrouped" else b
    return lambda: torch._grouped_mm(a, b, ends)


def _torch_rowwise(
    torch: Any, deep_gemm: None, workload: GroupedWorkload, copy: Mapping[str, int]
) -> Call:
    p = workload.problem
    x, ends = _tensors(torch, workload, copy), _ends(torch, workload)
    a, b = x["a"][0], x["b"].transpose(-2, -1)
    shapes: tuple[tuple[int, ...], tuple[int, ...]] = (p.m,), (p.groups, p.n)
    if p.mode == "kgrouped":
        b, shapes = b[0], ((p.m * p.groups,), (p.n * p.groups,))
    scales = [torch.ones(shape, device="cuda") for shape in shapes]
    return lambda: torch._scaled_grouped_mm(
        a, b, scales[0], scales[1], ends, out_dtype=torch.bfloat16, use_fast_accum=True
    )


def _masked(torch: Any, deep_gemm: Any, workload: GroupedWorkload, copy: Mapping[str, int]) -> Call:
    x = _tensors(torch, workload, copy)
    scale_a = deep_gemm.get_mn_major_tma_aligned_tensor(_scales(torch, workload, "scale_a"))
    scale_b = _scales(torch, workload, "scale_b")
    sizes = torch.from_numpy(np.asarray(workload.rows, np.int32)).cuda()
    expected = -(-sum(workload.rows) // len(workload.rows))
    return lambda: deep_gemm.m_grouped_fp8_gemm_nt_masked(
        (x["a"], scale_a), (x["b"], scale_b), x["d"], sizes, expected
    )


def _contiguous(
    torch: Any, deep_gemm: Any, workload: GroupedWorkload, copy: Mapping[str, int]
) -> Call:
    p, rows = workload.problem, workload.rows
    x = _tensors(torch, workload, copy)
    padded = [-(-r // PADDING) * PADDING for r in rows]
    total = sum(padded)
    a = torch.zeros((total, p.k), dtype=torch.uint8, device="cuda").view(torch.float8_e4m3fn)
    scales = torch.ones((total, -(-p.k // 128)), device="cuda")
    index = torch.full((total,), -1, dtype=torch.int32, device="cuda")
    d = torch.empty((total, p.n), dtype=torch.bfloat16, device="cuda")
    scale_a = _scales(torch, workload, "scale_a")[0]
    source = target = 0
    for group, (count, room) in enumerate(zip(rows, padded, strict=True)):
        a[target : target + count] = x["a"][0, source : source + count]
        scales[target : target + count] = scale_a[source : source + count]
        index[target : target + count] = group
        source += count
        target += room
    scale_b = _scales(torch, workload, "scale_b")
    aligned = deep_gemm.get_mn_major_tma_aligned_tensor(scales)
    return lambda: deep_gemm.m_grouped_fp8_gemm_nt_contiguous(
        (a, aligned), (x["b"], scale_b), d, index
    )


def _kgrouped(
    torch: Any, deep_gemm: Any, workload: GroupedWorkload, copy: Mapping[str, int]
) -> Call:
    """DeepGEMM wants each group's [M,k] and [N,k] dense, one after another."""
    lengths = list(workload.rows)
    x = _tensors(torch, workload, copy)
    flat, scales = {}, {}
    for name in ("a", "b"):
        parts = torch.split(x[name][0].view(torch.uint8), lengths, dim=1)
        joined = torch.cat([part.reshape(-1) for part in parts])
        flat[name] = joined.view(torch.float8_e4m3fn)
        scales[name] = _scales(torch, workload, f"scale_{name}")[0].T.contiguous()
    ks = torch.tensor(lengths, dtype=torch.int32, device="cuda")
    d = x["d"]
    return lambda: deep_gemm.k_grouped_fp8_gemm_nt_contiguous(
        (flat["a"], scales["a"]), (flat["b"], scales["b"]), d, lengths, ks, d
    )
