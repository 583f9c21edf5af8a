"""grouped_gemm: arrays or pointers of many products in, D out, on a GPU or on the emulator."""

from typing import Any

import numpy as np

from ptxgen.dtypes import DTYPES
from ptxgen.errors import ArgumentError, ProblemError, is_one_of, not_one_of
from ptxgen.grouped_problem import MAX_GROUPS, MODES, GroupedGemm
from ptxgen.launcher.arrays import Operand, as_operand
from ptxgen.launcher.device import GpuDevice
from ptxgen.launcher.gemm_arguments import (
    MAX_ALIGNMENT,
    check_name,
    output_dtype,
    real_number,
    whole_number,
)
from ptxgen.launcher.given_config import check_config
from ptxgen.launcher.grouped_arguments import (
    check_out,
    check_scales,
    check_sizes,
    read_stack,
    scale_kind,
    scale_strides,
    sizes_hint,
)
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
from ptxgen.problem import ACCUMULATES, MAX_EXTENT, SCALES

SWAPS = ("auto", "on", "off")


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
    captured graph may be replayed with other sizes. What lies outside the matrices is clamped. Of
    int64 the kernel reads the lower 32 bits, so all must be from -2^31 to 2^31 - 1; of numpy arrays
    this is checked.
    masked: the rows of each group [G]; contiguous: as `index` says; kgrouped: [G+1] offsets along
    K, part g from sizes[g] to sizes[g+1].
    alignment: kgrouped: parts must start at multiples of it, and it must be one of 16 bytes. Of
    numpy arrays this is checked; what only the device knows is not, and breaking it is an illegal
    instruction.
    scale_a, scale_b: None or float32 arrays. tensor: [1] and [G]; rowcol: [G,M] (or [rows]) and
    [G,N]; block: [G,M,ceil(K/128)] and [G,ceil(N/128),ceil(K/128)]; group: the same with [G,N,...].
    kgrouped: none or group, [M,ceil(K/128)] and [N,ceil(K/128)] where `alignment` is a multiple of
    128; else G columns more, and part g's begin at ceil(sizes[g]/128) + g. Strides may
    be any in numpy arrays, and must not be negative in device memory.
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
    check_name("mode:", mode, MODES)
    check_name("swap_ab:", swap_ab, SWAPS)
    if expected_rows is not None:
        expected_rows = whole_number("expected_rows", expected_rows, 0, MAX_EXTENT)
    if groups is not None:
        groups = whole_number("groups", groups, 1, MAX_GROUPS)
    check_config(config, "grouped_gemm")
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
    check_out(x_out, d, operands)
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
    bits = check_sizes(sizes, mode)
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
    if mode == "kgrouped" and count < 1:
        raise ArgumentError(
            "sizes: must have at least 2 offsets along K, the start and the end of a part, got "
            f"{count + 1}; try numpy.asarray([0, K])"
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
    stacks = {name: read_stack(x, name) for name, x in (("a", a), ("b", b))}
    d_stack = None if out is None else read_stack(out, "out")
    kind = scale_kind(operands) if scale is None else scale
    if not is_one_of(kind, SCALES) or (kind == "none") != ("scale_a" not in operands):
        raise ArgumentError(
            f"scale={kind} must be one of none, tensor, rowcol, block and group, with arrays "
            "scale_a and scale_b unless it is none; try scale=None, which asks their shapes"
        )
    accumulates = "auto" if accumulate is None else accumulate
    check_name("accumulate:", accumulates, ("auto", *ACCUMULATES))
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
            **{f"{n}_strides": scale_strides(operands, n, kind) for n in ("scale_a", "scale_b")},
        )  # fmt: skip
    except ProblemError as error:
        raise ArgumentError(str(error)) from error
    if sizes is not None and sizes.size != problem.sizes_length:
        raise ArgumentError(
            f"sizes: must have {problem.sizes_length} integers for mode={mode}"
            f"{f', index={index}' if mode == 'contiguous' else ''} and {count} groups, got "
            f"{sizes.size}; try {sizes_hint(problem, sizes.size)}"
        )
    check_scales(operands, problem)
    if sizes is not None and sizes.host is not None:
        try:
            problem.segments(sizes.host)
        except ProblemError as error:
            raise ArgumentError(str(error)) from error
    return problem


def _d_shape(problem: GroupedGemm) -> tuple[int, ...]:
    """Shape of D as callers see it: without the axis of groups where there is none."""
    shape = problem.d_shape
    return shape[1:] if problem.mode == "contiguous" else shape


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
