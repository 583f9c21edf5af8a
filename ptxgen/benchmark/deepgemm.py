"""deepgemm: DeepGEMM's own kernels as cubins, launched where neither it nor nvcc is installed.

benchmarks/deepgemm_cubins.py compiles them, and says in an index how DeepGEMM launches each. They
run on the A, B and D that ours is timed on; scales are laid out as DeepGEMM takes them.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ptxgen.benchmark.grouped_peers import PADDING
from ptxgen.benchmark.grouped_workload import GroupedWorkload
from ptxgen.benchmark.method import Contender, Method, compare
from ptxgen.benchmark.peers import Peer, PeerError
from ptxgen.benchmark.replay import Stopwatch, launch_contender
from ptxgen.benchmark.workload import Workload, copy_on_device
from ptxgen.errors import ArgumentError, DriverError
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.launch import Launch
from ptxgen.operands import Operands
from ptxgen.problem import SCALE_BLOCK, Gemm

Array = np.ndarray[Any, Any]

SCHEMA = "ptxgen.deepgemm/1"
INDEX = "deepgemm.json"
SCALE_ALIGNMENT = 4
"""Scales of one block of K start at multiples of this: 16 bytes, for TMA."""
TRIAL = Method(slot_s=0.004, settle_s=0.03, min_rounds=3, max_rounds=3)
"""Tells a problem's kernels apart, where there are several."""
FUNCTIONS = {
    "deepgemm_fp8_1d2d": "fp8_gemm_nt",
    "deepgemm_bf16": "bf16_gemm_nt",
    "deepgemm_fp8_masked": "m_grouped_fp8_gemm_nt_masked",
    "deepgemm_fp8_contiguous": "m_grouped_fp8_gemm_nt_contiguous",
    "deepgemm_fp8_kgrouped": "k_grouped_fp8_gemm_nt_contiguous",
}
"""The function of DeepGEMM that launches what a peer of this name measures."""


@dataclass(frozen=True)
class Compiled:
    """One kernel for one problem."""

    launch: Launch
    cubin: Path


@dataclass(frozen=True)
class Cubins:
    """What benchmarks/deepgemm_cubins.py wrote into a folder."""

    source: str
    """DeepGEMM's commit and the compiler."""
    kernels: Mapping[str, Sequence[Compiled]]
    """By `problem_key` as text: those that DeepGEMM's heuristics rate best, its choice first."""

    def what(self, name: str) -> str:
        """What a peer measures, for the report."""
        return (
            f"the kernel that DeepGEMM's {FUNCTIONS[name]} chooses for an H200, {self.source}, "
            "launched by ptxgen; where several configs were compiled, the fastest"
        )

    def contender(
        self, name: str, watch: Stopwatch, key: Mapping[str, Any],
        copies: Sequence[Mapping[str, int]], arrays: Mapping[str, Array],
    ) -> Contender:  # fmt: skip
        """The kernel of a problem on all copies of its operands, the fastest if there are several.

        arrays: contents of the buffers that are not shared with ours; each copy gets its own.

        Raises: PeerError if none was compiled for the problem; LaunchError, DriverError.
        """
        kernels = self.kernels.get(_text(key), ())
        if not kernels:
            raise PeerError(
                f"{name}: no cubin was compiled for {_text(key)}; try "
                "benchmarks/deepgemm_cubins.py with --shape or --set"
            )
        with ExitStack() as stack:
            buffers = _Buffers(watch.device, copies, arrays)
            stack.callback(buffers.free)
            tried: dict[str, Contender] = {}
            for number, kernel in enumerate(kernels):
                image = kernel.cubin.read_bytes()
                each = launch_contender(str(number), watch, kernel.launch, image, buffers.copies)
                stack.callback(each.close)
                tried[each.name] = each
            best = "0"
            if len(tried) > 1:
                samples = compare(list(tried.values()), TRIAL)
                best = min(samples, key=lambda rank: samples[rank].median)
            stack.pop_all()
        for each in tried.values():
            if each.name != best:
                each.close()
        graph = tried[best]

        def close() -> None:
            graph.close()
            buffers.free()

        return replace(graph, name=name, close=close)


class _Buffers:
    """Buffers beside a workload's, one for each of its copies."""

    def __init__(
        self, device: Any, copies: Sequence[Mapping[str, int]], arrays: Mapping[str, Array]
    ) -> None:
        """Raises: DriverError, e.g. for want of memory."""
        self._device = device
        self._allocations: list[int] = []
        self.copies = [dict(copy) for copy in copies]
        try:
            for name, content in arrays.items():
                self._add(name, np.ascontiguousarray(content).reshape(-1).view(np.uint8))
        except DriverError:
            self.free()
            raise

    def _add(self, name: str, raw: Array) -> None:
        for copy in self.copies:
            copy[name] = self._device.alloc(raw.nbytes)
            self._allocations.append(copy[name])
        first = self.copies[0][name]
        self._device.write(first, raw.data)
        for copy in self.copies[1:]:
            copy_on_device(self._device, copy[name], first, raw.nbytes)

    def free(self) -> None:
        while self._allocations:
            self._device.free(self._allocations.pop())


def load_cubins(folder: Path) -> Cubins:
    """Read the index of a folder.

    Raises: ArgumentError if there is none, or it is not one.
    """
    path = folder / INDEX
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
        if index["schema"] != SCHEMA:
            raise ArgumentError(
                f"{path}: schema must be {SCHEMA!r}, got {index['schema']!r}; try "
                "benchmarks/deepgemm_cubins.py again"
            )
        kernels: dict[str, list[Compiled]] = {}
        for entry in sorted(index["kernels"], key=lambda entry: int(entry["rank"])):
            launch = Launch.from_json(json.dumps(entry["launch"]))
            compiled = Compiled(launch, folder / entry["cubin"])
            kernels.setdefault(_text(entry["problem"]), []).append(compiled)
        source = f"commit {index['deepgemm']}, {index['nvcc']}"
    except OSError as error:
        raise ArgumentError(
            f"cannot read {path}: {error.strerror}; try benchmarks/deepgemm_cubins.py -o {folder}"
        ) from error
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ArgumentError(
            f"{path} must be what benchmarks/deepgemm_cubins.py writes: {error!r}; try it again"
        ) from error
    return Cubins(source, kernels)


def problem_key(problem: Gemm | GroupedGemm, rows: Sequence[int] = ()) -> dict[str, Any]:
    """A problem as DeepGEMM's functions see it: what its choice of a kernel depends on.

    rows: of each group (kgrouped: K).
    """
    p = problem
    if isinstance(p, Gemm):
        family = "fp8" if p.a == "e4m3" else "bf16"
        return _key(family, p.m, p.n, p.k, 1)
    if p.mode == "contiguous":
        return _key(p.mode, sum(-(-r // PADDING) * PADDING for r in rows), p.n, p.k, p.groups)
    if p.mode == "kgrouped":
        return _key(p.mode, p.m, p.n, sum(rows), p.groups, rows=tuple(rows))
    return _key(p.mode, p.m, p.n, p.k, p.groups, expected_m=-(-sum(rows) // len(rows)))


def _key(
    family: str, m: int, n: int, k: int, groups: int, expected_m: int = 0,
    rows: tuple[int, ...] = (),
) -> dict[str, Any]:  # fmt: skip
    return {"family": family, "m": m, "n": n, "k": k, "groups": groups,
            "expected_m": expected_m, "rows": rows}  # fmt: skip


def _text(key: Mapping[str, Any]) -> str:
    return json.dumps(dict(key), sort_keys=True)


@dataclass(frozen=True)
class CubinPeer(Peer):
    """A function of DeepGEMM for dense GEMM, by its cubins."""

    cubins: Cubins

    def serves(self, problem: Gemm) -> bool:
        """As `Peer.serves`; D must be bf16."""
        return super().serves(problem) and problem.d == "bf16"

    def problem(self, problem: Gemm) -> Gemm:
        """Block scales are its own; else as `Peer.problem`."""
        return problem if problem.scale == "block" else super().problem(problem)

    def operands(self, workload: Workload) -> Operands:
        """As `problem`."""
        block = workload.problem.scale == "block"
        return workload.operands if block else super().operands(workload)

    def contender(self, workload: Workload, watch: Stopwatch) -> Contender:
        """The cubin on all copies of a workload.

        Raises: PeerError if none was compiled for the problem; LaunchError, DriverError.
        """
        p, arrays = workload.problem, {}
        if self.fp8:
            seen = self.operands(workload)
            blocks = -(-p.k // SCALE_BLOCK)
            scale_a = np.broadcast_to(np.asarray(seen.scale_a), (p.m, blocks))
            scale_b = np.broadcast_to(np.asarray(seen.scale_b), (-(-p.n // SCALE_BLOCK), blocks))
            arrays = {"scale_a": rows_innermost(scale_a), "scale_b": scale_b}
        return self.cubins.contender(self.name, watch, problem_key(p), workload.copies, arrays)


def with_cubins(peers: Sequence[Peer], cubins: Cubins) -> list[Peer]:
    """The peers, those of DeepGEMM by their cubins."""
    return [
        CubinPeer(p.name, cubins.what(p.name), p.fp8, p.accumulate, p.prepare, cubins)
        if p.name in FUNCTIONS
        else p
        for p in peers
    ]


def grouped_contender(
    name: str, workload: GroupedWorkload, watch: Stopwatch, cubins: Cubins
) -> Contender:
    """A grouped function of DeepGEMM by its cubin, on all copies of a workload.

    Raises: PeerError if none was compiled for the problem, or it needs other operands than ours;
        LaunchError, DriverError.
    """
    p, rows, host = workload.problem, workload.rows, workload.host
    if p.mode == "contiguous" and any(r % PADDING for r in rows):
        raise PeerError(
            f"{name}: segments must be multiples of {PADDING} rows to be shared with ours"
        )
    arrays = {"scale_a": rows_innermost(host["scale_a"])}
    if p.mode == "kgrouped":
        arrays["scale_b"] = rows_innermost(host["scale_b"])
        ends = np.cumsum(rows)[:-1]
        for operand in ("a", "b"):  # each group's part of K as a matrix of its own
            parts = np.split(host[operand][0], ends, axis=1)
            arrays[operand] = np.concatenate([np.ascontiguousarray(x).reshape(-1) for x in parts])
    else:
        arrays["scale_b"] = host["scale_b"]
    sizes = np.repeat(np.arange(p.groups), rows) if p.mode == "contiguous" else np.asarray(rows)
    arrays["sizes"] = sizes.astype(np.int32)
    key = problem_key(p, rows)
    for kernel in cubins.kernels.get(_text(key), ()):
        for buffer in kernel.launch.buffers:  # what the kernel writes for itself
            if buffer.name not in {*arrays, *workload.copies[0]}:
                arrays[buffer.name] = np.zeros(buffer.nbytes, np.uint8)
    return cubins.contender(name, watch, key, workload.copies, arrays)


def rows_innermost(scales: Array) -> Array:
    """Scales [...,rows,blocks of K] as DeepGEMM takes them: [...,blocks,rows], rows padded."""
    padding = [(0, 0)] * (scales.ndim - 1) + [(0, -scales.shape[-2] % SCALE_ALIGNMENT)]
    return np.pad(np.swapaxes(scales, -1, -2), padding).astype(np.float32)
