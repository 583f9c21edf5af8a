"""DeepGEMM by its cubins: what is compiled, how it would be launched, and on which bytes."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_benchmark_grouped import MODES, Watch
from test_benchmark_suite import HostGpu

from benchmarks.deepgemm_config import (
    FAMILIES,
    NUM_SMS,
    SMEM_BYTES,
    Problem,
    best_configs,
    candidates,
)
from benchmarks.deepgemm_cubins import problems_of
from benchmarks.deepgemm_launch import describe, instantiation
from ptxgen.benchmark import deepgemm
from ptxgen.benchmark.check import check, expect
from ptxgen.benchmark.deepgemm import (
    INDEX,
    SCHEMA,
    Cubins,
    grouped_contender,
    load_cubins,
    problem_key,
    with_cubins,
)
from ptxgen.benchmark.grouped_check import check as check_grouped
from ptxgen.benchmark.grouped_workload import GroupedWorkload
from ptxgen.benchmark.method import Contender
from ptxgen.benchmark.peers import PEERS, PeerError
from ptxgen.benchmark.sets import KINDS
from ptxgen.benchmark.workload import Workload
from ptxgen.errors import ArgumentError
from ptxgen.kernels import grouped_sm90
from ptxgen.launch import Launch
from ptxgen.problem import Gemm
from ptxgen.quantize import numpy_dtype

Array = np.ndarray[Any, Any]
MEASURED = [*problems_of(("dense", "small-m", "masked", "contiguous", "kgrouped"), (), bf16=False),
            *problems_of(("dense",), (), bf16=True)]  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_every_measured_problem_has_a_launch_that_an_h200_takes(family: str) -> None:
    problems = [p for p in MEASURED if p.family == family]
    assert problems
    for problem in problems:
        (config,) = best_configs(problem)
        launch = describe(problem, config, "entry")
        assert launch.dynamic_smem_bytes <= SMEM_BYTES
        assert launch.grid_ctas == (NUM_SMS, 1, 1)
        boxes = [p.value.box for p in launch.params if p.kind == "tensor_map"]
        assert all(1 <= side <= 256 for box in boxes for side in box)


def test_a_tile_never_spans_unequal_runs_of_one_scale_of_b() -> None:
    widths = {c.block_n for c in candidates(Problem("fp8", 4096, 4096, 4096))}
    assert {144, 160, 192} <= widths
    assert 176 not in widths


def test_a_cluster_is_never_taken_where_one_wave_is_enough() -> None:
    (config,) = best_configs(Problem("fp8", 64, 2112, 7168))
    assert config.cluster == 1


def test_only_sizes_that_deepgemm_compiles_in_are_template_arguments() -> None:
    problem = Problem("fp8", 4001, 2112, 7168)
    source = instantiation(problem, best_configs(problem)[0])
    assert ", 0, 2112, 7168, 1, " in source
    assert "4001" not in source


class Interpreter:
    """Stands in for the GPU: computes what a launch of DeepGEMM says, from the bytes it names."""

    def __init__(self, gpu: HostGpu, seconds: Mapping[str, float]) -> None:
        self.gpu, self.seconds = gpu, seconds
        self.closed: list[str] = []

    def __call__(
        self, name: str, watch: Any, launch: Launch, image: bytes,
        copies: Sequence[Mapping[str, int]],
    ) -> Contender:  # fmt: skip
        def replay(lead: int, count: int) -> float:
            for copy in copies:
                self.run(launch, copy)
            return self.seconds.get(image.decode(), 1e-6) * count

        return Contender(name, len(copies), replay, lambda: self.closed.append(image.decode()))

    def matrix(self, launch: Launch, name: str, copy: Mapping[str, int], element: str) -> Array:
        """What a map views, rows first."""
        param = next(p for p in launch.params if p.name == f"tensor_map_{name}")
        columns, rows = param.value.dims
        kind = numpy_dtype(element)
        assert param.value.strides_bytes == (columns * kind.itemsize,)
        nbytes = rows * columns * kind.itemsize
        assert nbytes <= launch.buffer(name).nbytes
        return np.frombuffer(self.gpu.read(copy[name], nbytes), kind).reshape(rows, columns)

    def vector(self, launch: Launch, name: str, copy: Mapping[str, int], kind: Any) -> Array:
        return np.frombuffer(self.gpu.read(copy[name], launch.buffer(name).nbytes), kind)

    def run(self, launch: Launch, copy: Mapping[str, int]) -> None:
        m, n, k = (next(p.value for p in launch.params if p.name == f"shape_{x}") for x in "mnk")
        kind = launch.entry
        sizes = [] if kind == "fp8" else self.vector(launch, "sizes", copy, np.int32).tolist()
        if kind == "kgrouped":
            self.add_products(launch, copy, (m, n), sizes)
            return
        a: Array = self.matrix(launch, "a", copy, "e4m3").astype(np.float32)
        b: Array = self.matrix(launch, "b", copy, "e4m3").astype(np.float32)
        blocks = -(-k // 128)
        all_a: Array = self.matrix(launch, "scale_a", copy, "f32")
        scale_a = all_a.reshape(-1, blocks, -(-m // 4) * 4)
        all_b: Array = self.vector(launch, "scale_b", copy, np.float32)
        scale_b = all_b.reshape(b.shape[0] // n, -1, blocks)
        a = a.reshape(-1, m, k) * scale_a[:, :, :m].repeat(128, 1)[:, :k].swapaxes(1, 2)
        b = b.reshape(-1, n, k) * scale_b.repeat(128, 1)[:, :n].repeat(128, 2)[:, :, :k]
        kinds: dict[str, list[tuple[int, int, Sequence[int]]]] = {
            "fp8": [(0, 0, range(m))],
            "masked": [(g, g, range(size)) for g, size in enumerate(sizes)],
            "contiguous": [(0, g, [i for i, x in enumerate(sizes) if x == g]) for g in set(sizes)],
        }
        for matrix, group, rows in kinds[kind]:
            for row in rows:
                line = (b[group] @ a[matrix, row]).astype(numpy_dtype("bf16"))
                self.gpu.write(copy["d"] + ((matrix * m + row) * n) * 2, line.view(np.uint8).data)

    def add_products(
        self, launch: Launch, copy: Mapping[str, int], shape: tuple[int, int], lengths: list[int]
    ) -> None:
        total, start = sum(lengths), 0
        scales = [self.matrix(launch, f"scale_{x}", copy, "f32") for x in "ab"]
        for group, length in enumerate(lengths):
            sides = []
            for name, rows, scale in zip("ab", shape, scales, strict=True):
                flat = self.gpu.read(copy[name] + start * rows, length * rows)
                values = np.frombuffer(flat, numpy_dtype("e4m3")).reshape(rows, length)
                own = scale[start // 128 : (start + length) // 128, :rows].repeat(128, 0).T
                sides.append(values.astype(np.float32) * own)
            place = copy["d"] + group * math.prod(shape) * 4
            held = np.frombuffer(self.gpu.read(place, math.prod(shape) * 4), np.float32)
            added = held.reshape(shape) + sides[0] @ sides[1].T
            self.gpu.write(place, np.ascontiguousarray(added).view(np.uint8).reshape(-1).data)
            start += length
        assert start == total


def cubins_of(folder: Path, key: Mapping[str, Any], names: Sequence[str] = ("first",)) -> Cubins:
    """An index with cubins for one problem, which hold their names."""
    problem = Problem(**{**key, "rows": tuple(key["rows"])})
    entries = []
    for rank, (name, config) in enumerate(zip(names, best_configs(problem, 9), strict=False)):
        (folder / name).write_bytes(name.encode())
        launch = json.loads(describe(problem, config, problem.family).to_json())
        entries.append({"problem": key, "rank": rank, "cubin": name, "launch": launch})
    index = {"schema": SCHEMA, "deepgemm": "54e2261", "nvcc": "13.0", "kernels": entries}
    (folder / INDEX).write_text(json.dumps(index))
    return load_cubins(folder)


@pytest.mark.parametrize("m", [40, 33, 1])
@pytest.mark.parametrize("kind", ["fp8-block", "fp8-tensor"])
def test_dense_kernels_get_operands_and_scales_as_they_read_them(
    m: int, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu: Any = HostGpu()
    problem = KINDS[kind].problem((m, 136, 256))
    cubins = cubins_of(tmp_path, problem_key(problem))
    monkeypatch.setattr(deepgemm, "launch_contender", Interpreter(gpu, {}))
    (peer,) = with_cubins([PEERS["deepgemm_fp8_1d2d"]], cubins)
    watch: Any = Watch(gpu)
    workload = Workload(gpu, problem)
    contender = peer.contender(workload, watch)
    expected = expect(peer.problem(problem), peer.operands(workload), (64, 64), exact=False)
    assert check(workload, contender, expected).ok
    contender.close()
    workload.free()
    assert not gpu.live


@pytest.mark.parametrize("mode", ["masked", "contiguous", "kgrouped"])
def test_grouped_kernels_get_groups_and_scales_as_they_read_them(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu: Any = HostGpu()
    problem, rows = MODES[mode]
    if mode == "contiguous":
        problem, rows = problem.with_rows(384), (256, 0, 128)
    cubins = cubins_of(tmp_path, problem_key(problem, rows))
    monkeypatch.setattr(deepgemm, "launch_contender", Interpreter(gpu, {}))
    watch: Any = Watch(gpu)
    workload = GroupedWorkload(gpu, problem)
    workload.use(rows)
    config = grouped_sm90.default_config(problem)
    contender = grouped_contender(mode, workload, watch, cubins)
    assert check_grouped(workload, contender, config, exact=False).ok
    if mode != "kgrouped":  # which has an A of its own
        gpu.write(workload.copies[0]["a"], b"\x70" * 2048)
        assert not check_grouped(workload, contender, config, exact=False).ok
    contender.close()
    workload.free()
    assert not gpu.live


def test_segments_that_deepgemm_would_pad_are_refused(tmp_path: Path) -> None:
    gpu: Any = HostGpu()
    problem, rows = MODES["contiguous"]
    workload = GroupedWorkload(gpu, problem)
    workload.use(rows)
    watch: Any = Watch(gpu)
    with pytest.raises(PeerError, match="multiples of 128"):
        grouped_contender("x", workload, watch, cubins_of(tmp_path, problem_key(problem, rows)))


def test_the_fastest_of_several_kernels_stands_for_deepgemm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu: Any = HostGpu()
    problem = Gemm(8, 64, 128, "e4m3", "e4m3", scale="tensor")
    cubins = cubins_of(tmp_path, problem_key(problem), ("first", "second", "third"))
    run = Interpreter(gpu, {"first": 3e-6, "second": 1e-6, "third": 2e-6})
    monkeypatch.setattr(deepgemm, "launch_contender", run)
    (peer,) = with_cubins([PEERS["deepgemm_fp8_1d2d"]], cubins)
    watch: Any = Watch(gpu)
    workload = Workload(gpu, problem)
    contender = peer.contender(workload, watch)
    assert run.closed == ["first", "third"]
    contender.close()
    assert run.closed == ["first", "third", "second"]


def test_a_problem_without_a_cubin_is_refused_with_what_compiles_one(tmp_path: Path) -> None:
    gpu: Any = HostGpu()
    cubins = cubins_of(tmp_path, problem_key(Gemm(8, 64, 128, "e4m3", "e4m3", scale="tensor")))
    (peer,) = with_cubins([PEERS["deepgemm_fp8_1d2d"]], cubins)
    workload = Workload(gpu, Gemm(16, 64, 128, "e4m3", "e4m3", scale="tensor"))
    watch: Any = Watch(gpu)
    with pytest.raises(PeerError, match="deepgemm_cubins"):
        peer.contender(workload, watch)


def test_a_folder_without_an_index_is_refused_with_what_writes_one(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="deepgemm_cubins"):
        load_cubins(tmp_path)
    (tmp_path / INDEX).write_text('{"schema": "other"}')
    with pytest.raises(ArgumentError, match=SCHEMA):
        load_cubins(tmp_path)
