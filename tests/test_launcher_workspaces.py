"""Workspaces on a GPU: launches that overlap never share one, and graphs keep theirs."""

import gc
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from grouped_runs import assert_shares_a_tile

from ptxgen.grouped_operands import device_sizes, make_grouped_operands
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.kernels import grouped_sm90
from ptxgen.launcher import GpuDevice, PreparedCall, workspaces
from ptxgen.launcher.timing import Graph, captured, new_stream
from ptxgen.quantize import numpy_dtype
from ptxgen.renderer import render

pytestmark = pytest.mark.gpu

PROBLEM = GroupedGemm("masked", 4, 72, 384, 8192, scale="block", accumulate="promoted")
NUM_SMS = 16
"""CTAs of a launch: a part of the GPU, so that launches on two streams run at once."""
CONFIG = grouped_sm90.default_config(PROBLEM, swap_ab=True, tile_m=24, stream_k=True)
ROWS = ([70, 0, 17, 30], [3, 64, 0, 30])
"""Each 18 tiles: a wave, and 2 that the CTAs share."""


class Case:
    """Operands on the GPU with some rows in each group, and the right D."""

    def __init__(self, gpu: GpuDevice, rows: list[int], seed: int) -> None:
        self.gpu = gpu
        x = make_grouped_operands(PROBLEM, device_sizes(PROBLEM, rows), "integers", seed)
        self.sizes = x.sizes
        self.d = PROBLEM.reference(x.sizes, x.a, x.b, x.scale_a, x.scale_b)
        self.d_bytes = PROBLEM.extent_bytes("d")
        self.contents = {name: value.tobytes() for name, value in x.contents().items()}
        sizes = {**{name: len(value) for name, value in self.contents.items()}, "d": self.d_bytes}
        self.addresses = {name: gpu.alloc(size) for name, size in sizes.items()}
        for name, value in self.contents.items():
            gpu.write(self.addresses[name], value)

    def take_rows_of(self, other: "Case") -> None:
        """Exchange everything but addresses for the other's."""
        self.d, self.sizes = other.d, other.sizes
        for name, value in other.contents.items():
            self.gpu.write(self.addresses[name], value)

    def poison(self) -> None:
        self.gpu.fill(self.addresses["d"], self.d_bytes)

    def is_exact(self) -> bool:
        raw = np.frombuffer(self.gpu.read(self.addresses["d"], self.d_bytes), np.uint8)
        kind = numpy_dtype(PROBLEM.d)
        found = raw.view(kind).reshape(PROBLEM.d_shape).astype(np.float32)
        want = self.d.astype(np.float32).astype(kind).astype(np.float32)
        return np.array_equal(found, want, equal_nan=True)


@pytest.fixture(scope="module")
def gpu() -> GpuDevice:
    return GpuDevice.get()


@pytest.fixture(scope="module")
def text() -> tuple[Any, str]:
    """Launch and PTX of a kernel that shares tiles out along K."""
    plan = grouped_sm90.plan(PROBLEM, CONFIG, NUM_SMS)
    assert plan.launch.workspaces
    return plan.launch, render(plan).text


@pytest.fixture
def cases(gpu: GpuDevice) -> Iterator[list[Case]]:
    made = [Case(gpu, rows, seed) for seed, rows in enumerate(ROWS)]
    for case in made:
        assert_shares_a_tile(PROBLEM, CONFIG, case.sizes, NUM_SMS)
    yield made
    for case in made:
        for address in case.addresses.values():
            gpu.free(address)


def test_launches_on_two_streams_at_once_are_exact(
    gpu: GpuDevice, text: tuple[Any, str], cases: list[Case]
) -> None:
    call = PreparedCall(gpu, *text)
    in_order = [b.name for b in text[0].buffers if b.role != "workspace"]
    with new_stream(gpu) as one, new_stream(gpu) as other:
        for _ in range(20):
            for case in cases:
                case.poison()
            gpu.synchronize()
            for _ in range(10):
                for case, stream in zip(cases, (one, other), strict=True):
                    call([case.addresses[name] for name in in_order], stream)
            assert all(case.is_exact() for case in cases)


def test_a_call_first_made_in_a_capture_replays_with_other_sizes(
    gpu: GpuDevice, text: tuple[Any, str], cases: list[Case]
) -> None:
    first, other = cases
    calls = [PreparedCall(gpu, *text) for _ in range(3)]
    with new_stream(gpu) as stream:
        with captured(gpu, stream) as graph:
            for call in calls:
                call(first.addresses, stream)
        replays_exactly(first, graph, stream)
        first.take_rows_of(other)
        replays_exactly(first, graph, stream)
        graph.destroy()


def replays_exactly(case: Case, graph: Graph, stream: int) -> None:
    case.poison()
    case.gpu.synchronize()
    graph.launch(stream)
    assert case.is_exact()


def test_graphs_of_one_stream_are_exact_at_once_on_two(
    gpu: GpuDevice, text: tuple[Any, str], cases: list[Case]
) -> None:
    call = PreparedCall(gpu, *text)
    with new_stream(gpu) as one, new_stream(gpu) as other, ExitStack() as stack:
        graphs = []
        for case in cases:
            with captured(gpu, one) as graph:
                for _ in range(10):
                    call(case.addresses, one)
            graphs.append(graph)
            stack.callback(graph.destroy)
        for _ in range(20):
            for case in cases:
                case.poison()
            gpu.synchronize()
            for graph, stream in zip(graphs, (one, other), strict=True):
                graph.launch(stream)
            assert all(case.is_exact() for case in cases)


def test_streams_and_graphs_that_are_gone_leave_no_workspace(
    gpu: GpuDevice, text: tuple[Any, str], cases: list[Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    held: set[int] = set()
    free, zeroed = workspaces._free, workspaces._zeroed

    def noted(device: GpuDevice, nbytes: int) -> int:
        address = zeroed(device, nbytes)
        held.add(address)
        return address

    def forgotten(device: GpuDevice, address: int) -> None:
        free(device, address)
        held.discard(address)  # or of a graph of another test

    monkeypatch.setattr(workspaces, "_zeroed", noted)
    monkeypatch.setattr(workspaces, "_free", forgotten)
    call = PreparedCall(gpu, *text)
    with ExitStack() as stack:
        streams = [stack.enter_context(new_stream(gpu)) for _ in range(20)]
        for stream in streams:
            call(cases[0].addresses, stream)
        assert len(held) == workspaces.MOST_STREAMS
        for stream in streams:
            with captured(gpu, stream) as graph:
                call(cases[0].addresses, stream)
            graph.destroy()
        gpu.synchronize()
    del call
    gc.collect()
    until = time.monotonic() + 5
    while held and time.monotonic() < until:  # the driver tells of graphs a little later
        workspaces._free_released()
        time.sleep(0.01)
    assert not held
