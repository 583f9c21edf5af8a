"""One run of a kernel on a device, with its result checked."""

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxgen.dtypes import dtype
from ptxgen.emulator.buffers import check_sizes, initial_bytes
from ptxgen.errors import ArgumentError
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.launch import Device, Launch
from ptxgen.operands import POISON, Operands, make_operands, with_strides
from ptxgen.packing import storage
from ptxgen.problem import MICRO_SCALES, Gemm
from ptxgen.quantize import numpy_dtype
from ptxgen.scale_tiles import pack_scales
from ptxgen.verification import Verdict, verify

GUARD_BYTES = 1024
"""Poisoned bytes before and after each operand on a GPU."""
ALLOCATION_ALIGNMENT = 256
"""Of the allocations of every device, in bytes."""


@dataclass(frozen=True)
class Run:
    """What a device left behind."""

    d: Any
    """D, of its shape."""
    stray_bytes: int
    """Bytes outside D, between its rows or around it, that were written."""
    seconds: tuple[float, ...]
    """Of each launch, until its result was there; the first one loads the text."""
    d_scale: Any = None
    """The scales that the kernel wrote beside D, float32 [M, ceil(columns / 128)]; or None."""
    amax: float | None = None
    """Largest magnitude of D, if the epilogue keeps it."""


@dataclass(frozen=True)
class Trial:
    """What came of a run."""

    device: str
    seconds: float
    """Of the launch, until its result was there; without loading the text."""
    load_seconds: float
    """What the first launch took more than that: the driver's JIT. 0 on the emulator."""
    verdict: Verdict
    stray_bytes: int
    """Bytes outside D, between its rows or around it, that were written."""
    worst_group: int | None = None
    """Grouped: the group whose verdict it is, the worst."""

    @property
    def ok(self) -> bool:
        """Whether D is right and nothing else was written."""
        return self.verdict.ok and self.stray_bytes == 0


def run_gemm(
    problem: Gemm,
    launch: Launch,
    ptx: str,
    device: Device,
    *,
    tile: tuple[int, int] = (64, 64),
    data: str = "random",
    seed: int = 0,
    exact: bool = False,
    unit: str = "wgmma",
    k_parts: Sequence[tuple[int, int]] | None = None,
    tell: Callable[[str], None] = lambda what: None,
) -> Trial:
    """Run `ptx` on operands made from `data` and `seed` (see `make_operands`), and check D.

    tile: tile_m and tile_n of the kernel, whose edges are looked at. exact: the device sums as a
    tensor core does, so that a sample must be equal bit for bit; sums of integers always must.
    unit: the tensor core's instruction, and k_parts: the parts of K; see `exact_result`. tell: is
    told what begins.

    Raises: ArgumentError, and as `Device.launch`.
    """
    check_alpha(problem)
    emulated = device.name == "emulator"
    if emulated:
        check_sizes(launch.buffers)
    tell("making A and B")
    operands = make_operands(problem, data, seed)
    tell("running the kernel")
    run = run_operands(problem, operands, launch, ptx, device, launches=1 if emulated else 2)
    exact = exact or not emulated or data == "integers"
    tell("checking D")
    verdict = verify(problem, operands, run.d, exact=exact, tile=tile, seed=seed, unit=unit,
                     k_parts=k_parts, d_scale=run.d_scale, amax=run.amax)  # fmt: skip
    first, last = run.seconds[0], run.seconds[-1]
    return Trial(device.name, last, max(0.0, first - last), verdict, run.stray_bytes)


def check_alpha(problem: Gemm | GroupedGemm) -> None:
    """Refuse a factor that leaves nothing to compare.

    Raises: ArgumentError.
    """
    if not math.isfinite(problem.alpha):
        raise ArgumentError(
            f"alpha must be finite for a result to be checked, got {problem.alpha}; try 1"
        )


def run_operands(
    problem: Gemm,
    operands: Operands,
    launch: Launch,
    ptx: str,
    device: Device,
    *,
    launches: int = 1,
) -> Run:
    """Run `ptx` on `operands`, each at an address that is exactly as aligned as the problem says.

    On a GPU poison surrounds every operand. The emulator faults on any access outside a buffer, so
    there buffers end where operands do. Before every launch D and its scales are poison, and amax
    is zero.

    Raises: as `Device.launch`.
    """
    guard = 0 if device.name == "emulator" else GUARD_BYTES
    outputs = {"d": bytes([POISON]) * problem.extent_bytes("d")}
    if problem.epilogue.d_scale == "group":
        outputs["d_scale"] = bytes([POISON]) * (4 * problem.d_scale_length)
    if problem.epilogue.amax:
        outputs["amax"] = bytes(4)
    images = {}
    for name, content in {**buffer_contents(problem, operands), **outputs}.items():
        of = problem.epilogue if name == "c" else problem
        alignment = getattr(of, f"{name}_alignment", ALLOCATION_ALIGNMENT)
        start = guard + alignment % ALLOCATION_ALIGNMENT
        images[name] = (start, bytes([POISON]) * start + content + bytes([POISON]) * guard)

    def launch_it(addresses: Mapping[str, int]) -> None:
        if problem.m and problem.n:
            device.launch(launch, ptx, addresses)

    seconds, left = launch_on(device, images, launches, launch_it, tuple(outputs))
    starts = {name: start for name, (start, _) in images.items()}
    d, stray = poisoned_d(problem, left["d"], starts["d"], [(0, 0, problem.m)])
    d_scale = amax = None
    if "d_scale" in left:
        d_scale, more = _poisoned_scales(problem, left["d_scale"], starts["d_scale"])
        stray += more
    if "amax" in left:
        amax = float(left["amax"][starts["amax"] :][:4].view(np.float32)[0])
    return Run(d, stray, seconds, d_scale, amax)


def launch_on(
    device: Device,
    images: Mapping[str, tuple[int, bytes]],
    launches: int,
    launch: Callable[[Mapping[str, int]], None],
    outputs: Sequence[str] = ("d",),
) -> tuple[tuple[float, ...], dict[str, Any]]:
    """Launch on allocations that hold `images`, each with the byte at which its buffer starts.

    Images of outputs are written before every launch. launch: takes the buffers' addresses.

    Returns: seconds of each launch, until its result was there; and what the allocations of the
    outputs hold then, as bytes in arrays.
    """
    addresses, seconds = {}, []
    with ExitStack() as stack:
        for name, (start, image) in images.items():
            base = device.alloc(len(image))
            stack.callback(device.free, base)
            device.write(base, image)
            addresses[name] = base + start
        bases = {name: addresses[name] - images[name][0] for name in outputs}
        for _ in range(launches):
            for name, base in bases.items():
                device.write(base, images[name][1])
            began = time.perf_counter()
            launch(addresses)
            device.read(addresses["d"], 0)
            seconds.append(time.perf_counter() - began)
        left = {
            name: np.frombuffer(device.read(base, len(images[name][1])), np.uint8)
            for name, base in bases.items()
        }
    return tuple(seconds), left


def run_launch(launch: Launch, ptx: str, device: Device) -> tuple[float, dict[str, bytes]]:
    """Run anybody's `ptx` on buffers filled as the launch says.

    Returns: seconds, and the bytes of every buffer that holds a result.

    Raises: LaunchError, and as `Device.launch`.
    """
    if device.name == "emulator":
        check_sizes(launch.buffers)
    with ExitStack() as stack:
        addresses = {}
        for buffer in launch.buffers:
            content = initial_bytes(buffer)
            addresses[buffer.name] = device.alloc(buffer.nbytes)
            stack.callback(device.free, addresses[buffer.name])
            device.write(addresses[buffer.name], content)
        began = time.perf_counter()
        device.launch(launch, ptx, addresses)
        outputs = {
            b.name: device.read(addresses[b.name], b.nbytes) for b in launch.buffers if b.is_result
        }
        return time.perf_counter() - began, outputs


def digest(ptx: str) -> str:
    """SHA-256 of a text, as sha256sum prints it for a file with that text."""
    return hashlib.sha256(ptx.encode()).hexdigest()


def buffer_contents(problem: Gemm, operands: Operands) -> Mapping[str, bytes]:
    """The bytes of each input buffer, by its name in the launch."""
    contents = {
        "a": _storage(operands.a, problem.a, problem.extent_bytes("a")),
        "b": _storage(operands.b, problem.b, problem.extent_bytes("b")),
    }
    if operands.c is not None:
        contents["c"] = _storage(operands.c, problem.c, problem.extent_bytes("c"))
    if operands.bias is not None:
        contents["bias"] = operands.bias.tobytes()
    if operands.d_scale is not None:
        contents["d_scale"] = operands.d_scale.tobytes()
    for name, scale in (("scale_a", operands.scale_a), ("scale_b", operands.scale_b)):
        if scale is not None and problem.scale in MICRO_SCALES:
            contents[name] = pack_scales(scale).tobytes()
        elif scale is not None and problem.scale_format == "ue8m0x4":
            contents[name] = _packed_words(problem, name, scale)
        elif scale is not None:
            nbytes = problem.scale_bytes * getattr(problem, f"{name}_length")
            contents[name] = _bytes_of(scale, nbytes)
    return contents


def _storage(x: Any, name: str, nbytes: int) -> bytes:
    """The bytes from the first to past the last element of a view of dtype `name`, with gaps."""
    if not nbytes:
        return b""
    if dtype(name).is_packed:
        return storage(x, name)
    return _bytes_of(x, nbytes)


def _bytes_of(x: Any, nbytes: int) -> bytes:
    """The bytes from the first to past the last element of a view."""
    if not nbytes:
        return b""
    words = x.view(f"u{x.itemsize}")  # as_strided does not know every type of ml_dtypes
    return np.lib.stride_tricks.as_strided(words, (nbytes // x.itemsize,), (x.itemsize,)).tobytes()


def _packed_words(problem: Gemm, name: str, scale: Any) -> bytes:
    """UE8M0 scales [rows, blocks], four to a word, with the problem's strides."""
    padded = np.pad(scale.view(np.uint8), ((0, 0), (0, -scale.shape[1] % 4)))
    words = np.ascontiguousarray(padded).view(np.uint32)
    placed = with_strides(words, getattr(problem, f"{name}_strides"))
    return _bytes_of(placed, 4 * int(getattr(problem, f"{name}_length")))


def _poisoned_scales(problem: Gemm, raw: Any, start: int) -> tuple[Any, int]:
    """The scales of D, which begin at byte `start` of `raw`, and how many bytes between and around
    them are no longer poison."""
    shape = problem.d_scale_shape
    if 0 in shape:
        return np.empty(shape, np.float32), int(np.count_nonzero(raw != POISON))
    steps = (*(4 * s for s in problem.d_scale_strides), 1)
    window = np.lib.stride_tricks.as_strided
    values = np.ascontiguousarray(window(raw[start:], (*shape, 4), steps)).view(np.float32)[..., 0]
    inside = np.zeros(raw.size, bool)
    window(inside[start:], (*shape, 4), steps)[...] = True
    return values, int(np.count_nonzero(raw[~inside] != POISON))


def poisoned_d(
    problem: Gemm | GroupedGemm, raw: Any, start: int, parts: Sequence[tuple[int, int, int]]
) -> tuple[Any, int]:
    """D, of d_shape, which begins at byte `start` of `raw`, and how many bytes are no longer poison
    outside the parts of it that a kernel writes: (matrix, first row, number of rows)."""
    kind = numpy_dtype(problem.d)
    *matrices, rows, columns = shape = problem.d_shape
    if 0 in shape:
        return np.empty(shape, kind), int(np.count_nonzero(raw != POISON))
    pitch = problem.stride("d") * kind.itemsize
    group = problem.group_stride("d") * kind.itemsize if isinstance(problem, GroupedGemm) else 0
    window = np.lib.stride_tricks.as_strided
    layout = ((*(matrices or [1]), rows, columns * kind.itemsize), (group, pitch, 1))
    values = np.ascontiguousarray(window(raw[start:], *layout)).view(kind)
    inside = np.zeros(raw.size, bool)
    places = window(inside[start:], *layout)
    for matrix, first, count in parts:
        places[matrix, first : first + count] = True
    return values.reshape(shape), int(np.count_nonzero(raw[~inside] != POISON))
