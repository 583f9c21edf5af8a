"""grouped_gemm: arrays or pointers of many products in, D out, on a GPU or on the emulator."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxgen.dtypes import DTYPES
from ptxgen.errors import ArgumentError, ProblemError, is_one_of, not_one_of
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.launcher.arrays import Operand, as_operand, overlaps
from ptxgen.launcher.device import GpuDevice
from ptxgen.launcher.gemm_arguments import MAX_ALIGNMENT, output_dtype, real_number
from ptxgen.launcher.placement import (
    HOST,
    call_on,
    device_at,
    new_device_array,
    numpy_dtype,
    place_of,
)
from ptxgen.launcher.staging import Staging
from ptxgen.launcher.streams import stream_handle
from ptxgen.problem import MAX_EXTENT, SCALES

SWAPS = ("auto", "on", "off")


@dataclass(frozen=True)
class _Stack:
    """Matrices one after another, as a kernel reads them."""

    operand: Operand
    stride: int
    """Elements from one row to the next in device memory."""
    group_stride: int
    """Elements from one matrix to the next."""
    alignment: int


def grouped_gemm(
    a: Any,
    b: Any,
    sizes: Any = None,
    *,
    mode: str = "masked",
    index: str = "offsets",
    alignment: int = 1,
    scale_a: Any = None,
    scale_b: Any = None,
    scale: str | None = None,
    alpha: float = 1.0,
    accumulate: str | None = None,
    d_dtype: str | None = None,
    out: Any = None,
    groups: int | None = None,
    expected_rows: int | None = None,
    swap_ab: str = "auto",
    stream: Any = None,
    device: Any = None,
    config: Any = None,
) -> Any:
    """D_g = alpha * scale_a * scale_b * A_g @ B_g^T for every group g.

    mode: masked - a [G,M,K], of which group g uses its first sizes[g] rows; contiguous - a [rows,K]
    holds the groups one after another, as `index` and `alignment` say (see GroupedGemm); batched -
    a [G,M,K], all rows, no sizes; kgrouped - a [M,K], b [N,K], and D_g += A[:, part g] @
    B[:, part g]^T with float32 D [G,M,N]. Else b is [G,N,K]. The last axes are contiguous. Rows of
    D that belong to no group stay as they are.
    sizes: int32 or int64, in the same memory as the rest; read by the kernel only, so that a
    captured graph may be replayed with other sizes. What lies outside the matrices is clamped.
    masked: the rows of each group [G]; contiguous: as `index` says; kgrouped: [G+1] offsets along
    K, part g from sizes[g] to sizes[g+1].
    alignment: kgrouped: parts must start at multiples of it, and it must be one of 16 bytes. Of
    numpy arrays this is checked; what only the device knows is not, and breaking it is an illegal
    instruction.
    scale_a, scale_b: None or float32 arrays. tensor: [1] and [G]; rowcol: [G,M] (or [rows]) and
    [G,N]; block: [G,M,ceil(K/128)] and [G,ceil(N/128),ceil(K/128)]; group: the same with [G,N,...].
    kgrouped: none or group, [M,ceil(K/128)] and [N,ceil(K/128)] where `alignment` is a multiple of
    128; else G columns more, and part g's begin at ceil(sizes[g]/128) + g. Any strides.
    scale: none, tensor, rowcol, block or group; None = what the shapes of the scales say.
    out: D; None = a new array (kgrouped: must be given, as it is added to).
    groups: number of groups where neither b nor sizes tell (index=rows with kgrouped never).
    expected_rows: rows per group that swap_ab=auto reckons with; None = m / 2 (masked), m / groups
    (contiguous). It never changes a result.
    swap_ab: auto, on or off, see ptxgen.swap_selection.
    stream, device, config: as for `gemm`.

    Returns: `out`, or the new array.

    Raises: ArgumentError, ConfigError, ToolMissingError, DriverError, EmulationError.
    """
    if not is_one_of(swap_ab, SWAPS):
        raise ArgumentError(not_one_of("swap_ab:", swap_ab, SWAPS))
    if expected_rows is not None and not is_one_of(expected_rows, range(MAX_EXTENT + 1)):
        raise ArgumentError(
            f"expected_rows: must be an integer from 0 to {MAX_EXTENT}, got {expected_rows!r}; "
            "try None"
        )
    handle = stream_handle(stream)
    operands = {"a": as_operand(a, "a", handle), "b": as_operand(b, "b", handle)}
    for name, array in (("sizes", sizes), ("scale_a", scale_a), ("scale_b", scale_b)):
        if array is not None:
            operands[name] = as_operand(array, name, handle)
    x_out = None if out is None else as_operand(out, "out", handle)
    d = "f32" if mode == "kgrouped" and d_dtype is None else output_dtype(d_dtype, x_out)
    place = place_of(operands if x_out is None else {**operands, "out": x_out})
    problem = _problem(operands, mode, index, alignment, groups, scale, alpha, accumulate, d, x_out)
    shape = _d_shape(problem)
    if x_out is None:
        if mode == "kgrouped":
            raise ArgumentError(
                "out: must be given for mode=kgrouped, which adds to it; try out=zeros of "
                f"{shape} in float32"
            )
        if place == HOST:
            # Rows of no group are never written: zeros are better than what was there.
            out = np.zeros(shape, numpy_dtype(d))
            x_out = as_operand(out, "out")
    target = device_at(place, device)
    if x_out is None:
        out = new_device_array(shape, d, target, handle)
        x_out = as_operand(out, "out")
    _check_out(x_out, d, operands)
    if 0 not in shape:
        options = (config, swap_ab, expected_rows)
        _run(problem, options, target, {**operands, "d": x_out}, handle)
    return out


def _problem(
    operands: dict[str, Operand], mode: str, index: str, alignment: int, groups: int | None,
    scale: str | None, alpha: float, accumulate: str | None, d: str, out: Operand | None,
) -> GroupedGemm:  # fmt: skip
    """The problem that the arrays describe.

    Raises: ArgumentError.
    """
    a, b = operands["a"], operands["b"]
    sizes = operands.get("sizes")
    stacked = mode in ("masked", "batched")
    for name, x, rank in (("a", a, 3 if stacked else 2), ("b", b, 2 if mode == "kgrouped" else 3)):
        if len(x.shape) != rank:
            raise ArgumentError(
                f"{name}: must have {rank} axes for mode={mode}, got {x.shape}; try reshape, or "
                "another mode"
            )
        if x.dtype not in DTYPES:
            raise ArgumentError(not_one_of(f"{name}: dtype", x.dtype, DTYPES))
    if a.shape[-1] != b.shape[-1]:
        raise ArgumentError(
            f"K must agree: a has {a.shape[-1]}, b has {b.shape[-1]}; try b with K as its last axis"
        )
    bits = _check_sizes(sizes, mode)
    count = b.shape[0] if mode != "kgrouped" else groups
    if count is None:
        assert sizes is not None
        count = sizes.size - 1
    if groups is not None and groups != count:
        raise ArgumentError(
            f"groups={groups} must agree with b, which has {count}; try groups=None"
        )
    if stacked and a.shape[0] != count:
        raise ArgumentError(
            f"a must have as many matrices as b, {count}, got {a.shape[0]}; try mode=contiguous "
            "with one matrix of all rows"
        )
    given = sizes.size if mode == "kgrouped" and sizes is not None else 0
    if given and out is not None and out.shape[:1] == (given,):
        raise ArgumentError(
            f"sizes: must be {given + 1} offsets along K for the {given} matrices of out, got "
            f"{given}; try numpy.concatenate([[0], numpy.cumsum(sizes)])"
        )
    matrices = (count,) if mode == "kgrouped" else ()
    expected = (*matrices, *a.shape[:-1], b.shape[-2])
    if out is not None and out.shape != expected:
        raise ArgumentError(f"out: shape must be {expected}, got {out.shape}; try out=None")
    stacks = {name: _stack(x, name) for name, x in (("a", a), ("b", b))}
    d_stack = None if out is None else _stack(out, "out")
    kind = _scale_kind(operands) if scale is None else scale
    if not is_one_of(kind, SCALES) or (kind == "none") != ("scale_a" not in operands):
        raise ArgumentError(
            f"scale={kind} must be one of none, tensor, rowcol, block and group, with arrays "
            "scale_a and scale_b unless it is none; try scale=None, which asks their shapes"
        )
    accumulates = "auto" if accumulate is None else accumulate
    try:
        problem = GroupedGemm(
            mode, count, a.shape[-2], b.shape[-2], a.shape[-1], a.dtype, b.dtype, d, kind,
            accumulates, index, alignment, bits,
            a_stride=stacks["a"].stride, b_stride=stacks["b"].stride,
            d_stride=d_stack.stride if d_stack else 0,
            a_group_stride=stacks["a"].group_stride, b_group_stride=stacks["b"].group_stride,
            d_group_stride=d_stack.group_stride if d_stack else 0,
            a_alignment=stacks["a"].alignment, b_alignment=stacks["b"].alignment,
            d_alignment=d_stack.alignment if d_stack else MAX_ALIGNMENT,
            alpha=real_number("alpha", alpha),
            **{f"{n}_strides": _scale_strides(operands, n, kind) for n in ("scale_a", "scale_b")},
        )  # fmt: skip
    except ProblemError as error:
        raise ArgumentError(str(error)) from error
    if sizes is not None and sizes.size != problem.sizes_length:
        raise ArgumentError(
            f"sizes: must have {problem.sizes_length} integers for mode={mode}"
            f"{f', index={index}' if mode == 'contiguous' else ''} and {count} groups, got "
            f"{sizes.size}; try {_sizes_hint(problem, sizes.size)}"
        )
    _check_scales(operands, problem)
    if sizes is not None and sizes.host is not None:
        try:
            problem.segments(sizes.host)
        except ProblemError as error:
            raise ArgumentError(str(error)) from error
    return problem


def _sizes_hint(problem: GroupedGemm, got: int) -> str:
    """What makes `got` sizes into as many as the problem has."""
    if problem.sizes_length == problem.groups + 1 == got + 1:
        return "offsets: numpy.concatenate([[0], numpy.cumsum(sizes)])"
    if problem.sizes_length == problem.groups == got - 1:
        return "sizes[1:]" if problem.mode == "contiguous" else "counts: numpy.diff(sizes)"
    if problem.index == "rows" and got == problem.groups:
        return "numpy.repeat(numpy.arange(groups), sizes), the group of each row"
    return "one for each group" + " and the end" * (problem.sizes_length > problem.groups)


def _check_sizes(sizes: Operand | None, mode: str) -> int:
    """Bits of the integers of sizes.

    Raises: ArgumentError if they are missing, superfluous, no integers, or not in a row.
    """
    if (sizes is None) != (mode == "batched"):
        must = "must not be given" if mode == "batched" else "must be given"
        hint = "mode=masked" if mode == "batched" else "mode=batched, which uses all rows"
        raise ArgumentError(f"sizes: {must} for mode={mode}; try {hint}")
    if sizes is None:
        return 32
    if sizes.dtype not in ("int32", "s32", "int64") or len(sizes.shape) != 1:
        raise ArgumentError(
            f"sizes: must be a vector of int32 or int64, got {sizes.dtype} of shape {sizes.shape}; "
            "try sizes.astype('int32').ravel()"
        )
    if sizes.size > 1 and sizes.strides_bytes[0] != sizes.itemsize:
        raise ArgumentError("sizes: must be contiguous; try a copy")
    return 8 * sizes.itemsize


def _stack(x: Operand, name: str) -> _Stack:
    """Strides of a matrix or a stack of them.

    Raises: ArgumentError if elements of a row are not side by side, or strides are not usable.
    """
    rank = len(x.shape)
    strides = [s // x.itemsize for s in x.strides_bytes]
    if x.host is not None:
        dense = x.shape[-1] + -x.shape[-1] % (16 // x.itemsize)
        return _Stack(x, max(dense, 1), max(dense * x.shape[-2], 1), MAX_ALIGNMENT)
    if x.size and (strides[-1] != 1 or any(s < 1 for s in strides)):
        raise ArgumentError(
            f"{name}: the last axis must be contiguous and strides positive, got {strides} "
            f"elements for shape {x.shape}; try a copy"
        )
    row = strides[-2] if x.shape[-2] > 1 else max(x.shape[-1], 1)
    row += -row % (16 // x.itemsize) if x.shape[-2] == 1 else 0
    group = strides[0] if rank == 3 and x.shape[0] > 1 else row * max(x.shape[-2], 1)
    return _Stack(x, row, group, min(MAX_ALIGNMENT, x.pointer & -x.pointer or MAX_ALIGNMENT))


def _scale_kind(operands: dict[str, Operand]) -> str:
    """What the shapes of the scales say."""
    if "scale_a" not in operands or "scale_b" not in operands:
        return "none"
    a, b = operands["scale_a"], operands["scale_b"]
    if a.size == 1 and len(b.shape) == 1:
        return "tensor"
    x, w = operands["a"], operands["b"]
    if len(a.shape) < len(x.shape):
        return "rowcol"
    return "group" if b.shape[-2] == w.shape[-2] else "block"


def _scale_strides(operands: dict[str, Operand], name: str, kind: str) -> tuple[int, int, int]:
    """Elements from one matrix, row and block of K of a scale to the next; zeros = dense."""
    x = operands.get(name)
    if x is None or x.host is not None:
        return (0, 0, 0)
    strides = [s // x.itemsize for s in x.strides_bytes]
    if kind == "tensor":
        return (0 if name == "scale_a" else strides[0], 0, 0)
    if kind == "rowcol":
        return (strides[0] if len(strides) == 2 else 0, 1, 0)
    return (strides[0] if len(strides) == 3 else 0, strides[-2], strides[-1])


def _check_scales(operands: dict[str, Operand], problem: GroupedGemm) -> None:
    """Raises: ArgumentError if a scale has another dtype or shape than the problem's."""
    for name in ("scale_a", "scale_b"):
        x = operands.get(name)
        if x is None:
            continue
        if x.dtype != "f32":
            raise ArgumentError(
                f"{name}: dtype must be f32, got {x.dtype}; try {name}.astype('float32')"
            )
        expected = problem.scale_shape(name)
        allowed = {expected, expected[1:]} if expected[0] == 1 else {expected}
        if x.shape not in allowed and not (problem.scale == "tensor" and x.size == expected[0]):
            hint = "alignment=128" if problem.has_block_gaps else "another scale, or reshape"
            raise ArgumentError(
                f"{name}: must have shape {expected} for scale={problem.scale}, got {x.shape}; "
                f"try {hint}"
            )
        rowcol = problem.scale == "rowcol"
        if rowcol and x.size and x.host is None and x.strides_bytes[-1] != x.itemsize:
            raise ArgumentError(f"{name}: rows must be contiguous; try a copy")


def _d_shape(problem: GroupedGemm) -> tuple[int, ...]:
    """Shape of D as callers see it: without the axis of groups where there is none."""
    shape = problem.d_shape
    return shape[1:] if problem.mode == "contiguous" else shape


def _check_out(out: Operand, d: str, inputs: dict[str, Operand]) -> None:
    """Raises: ArgumentError if D cannot be written to `out`, whose shape is right."""
    if out.dtype != d:
        raise ArgumentError(f"out: dtype must be {d}, got {out.dtype}; try d_dtype={out.dtype!r}")
    if out.readonly:
        raise ArgumentError("out: must be writable, got a read-only array; try a copy")
    for name, x in inputs.items():
        if overlaps(out, x):
            raise ArgumentError(f"out overlaps {name}; try a separate output")


def _run(
    problem: GroupedGemm, options: tuple[Any, str, int | None], target: Any,
    operands: dict[str, Operand], stream: int,
) -> None:  # fmt: skip
    """Bring host operands over, launch, bring D back."""
    with Staging(target, stream) as staging:
        addresses = {
            name: staging.bring_padded(x, _padded_shape(problem, name, x))
            for name, x in operands.items()
        }
        key = (problem, options)
        call_on(target, key, lambda gpu: _emit(*key, gpu), operands.values(), addresses, stream)
        d = operands["d"]
        if d.host is not None:
            staging.fetch_padded(d, _padded_shape(problem, "d", d), addresses["d"])


def _padded_shape(problem: GroupedGemm, name: str, x: Operand) -> tuple[int, ...]:
    """Shape of the copy of a host array on the device: A, B and D have rows of whole 16 bytes."""
    return (*x.shape[:-1], problem.stride(name)) if name in ("a", "b", "d") else x.shape


def _emit(
    problem: GroupedGemm, options: tuple[Any, str, int | None], gpu: GpuDevice | None
) -> tuple[Any, Any]:
    """(rendered text, launch) for `problem` on `gpu`, or on the emulator.

    Raises: ConfigError if no kernel serves it, or the given config does not.
    """
    from ptxgen.kernels import kernel_of
    from ptxgen.renderer import render

    config, swap_ab, expected_rows = options
    arguments: tuple[Any, ...] = ()
    if gpu is not None:
        arguments = (gpu.properties.num_sms,)
    if config is None:
        config = _chosen_config(problem, swap_ab, expected_rows, gpu)
    plan = kernel_of(config).plan(problem, config, *arguments)
    return render(plan), plan.launch


def _chosen_config(
    problem: GroupedGemm, swap_ab: str, expected_rows: int | None, gpu: GpuDevice | None
) -> Any:
    """The config that the model of the GPU prefers; of a GPU that we know nothing of, and of the
    emulator, what that of DEFAULT_GPU does.

    Raises: ConfigError.
    """
    from ptxgen.selection import known_model
    from ptxgen.swap_selection import DEFAULT_GPU, config_for

    if gpu is None:
        return config_for(problem, expected_rows, swap_ab=swap_ab)
    arch = gpu.properties.arch
    model = known_model(gpu.name, gpu.properties.num_sms, arch)
    return config_for(problem, expected_rows, arch, model or DEFAULT_GPU, swap_ab)
