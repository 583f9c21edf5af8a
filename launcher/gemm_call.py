"""gemm: arrays or pointers in, D out, on a GPU or on the emulator."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ptxgen.epilogue import columns_of_d
from ptxgen.errors import ArgumentError, ConfigError, ProblemError
from ptxgen.launch import Device
from ptxgen.launcher.arrays import Operand, as_operand
from ptxgen.launcher.device import GpuDevice
from ptxgen.launcher.epilogue_arguments import read_epilogue
from ptxgen.launcher.gemm_arguments import (
    MAX_ALIGNMENT,
    Matrix,
    check_name,
    check_output,
    output_dtype,
    read_matrix,
    real_number,
)
from ptxgen.launcher.given_config import check_config
from ptxgen.launcher.placement import (
    HOST,
    call_on,
    device_at,
    new_device_array,
    numpy_dtype,
    place_of,
)
from ptxgen.launcher.scale_arguments import read_scales
from ptxgen.launcher.staging import Staging
from ptxgen.launcher.streams import stream_handle
from ptxgen.problem import ACCUMULATES, LAYOUTS, Gemm


def gemm(
    a: Any,
    b: Any,
    *,
    d_dtype: str | None = None,
    layout: str = "nt",
    scale_a: Any = None,
    scale_b: Any = None,
    scale: str | None = None,
    alpha: float = 1.0,
    accumulate: str | None = None,
    c: Any = None,
    beta: float | None = None,
    bias: Any = None,
    activation: str = "none",
    amax: Any = None,
    d_scale: Any = None,
    d_scales: Any = None,
    out: Any = None,
    stream: Any = None,
    device: Any = None,
    config: Any = None,
    batch_invariant: bool = False,
    dependent_launch: bool = False,
) -> Any:
    """D = activation(alpha * scale_a * scale_b * A @ B + beta * C + bias), of shape [M,N].

    a: [M,K] (layout n) or [K,M] (t); b: [N,K] (layout t) or [K,N] (n); the last axis contiguous.
    Each may be a numpy array (with ml_dtypes), a DLPack object, a `__cuda_array_interface__`
    object, a RawArray, or `view(x, dtype)` of one; all in the same memory.
    d_dtype: bf16, f16, f32, e4m3 (s32 for integers); None = that of `out`, else bf16.
    scale_a, scale_b: None, numbers, or float32 arrays: one element each (tensor), vectors of M and
    N (rowcol), [M, ceil(K/128)] and [ceil(N/128), ceil(K/128)] (block), or [M, ceil(K/128)] and
    [N, ceil(K/128)] (group). Matrices may have any two strides, and may hold UE8M0 exponents: uint8
    (or float8_e8m0fnu), or int32 of four blocks of K each, [rows, ceil(K/512)].
    scale: none, tensor, rowcol, block or group; None = what the shapes of the scales say.
    accumulate: fast or promoted, see Gemm; None = promoted for block and group, else fast.
    c: [M,N] of bf16, f16 or f32, rows contiguous; it may be `out`. beta: its factor; None = 1.
    bias: bf16, f16 or f32, [N] for columns or [M,1] for rows.
    activation: gelu, gelu_tanh, silu, or swiglu, for which B's columns are 8 gates and 8 values in
    turns (see `ptxgen.quantize.interleave_halves`) and D has N / 2; see Epilogue.
    amax: one float32, raised to the largest magnitude of D (as it is before d_scale).
    d_scale, d_scales: of D in e4m3: one float32 that D is to be multiplied with; or float32
    [M, ceil(columns of D / 128)], any strides, which the kernel writes: largest magnitude / 448.
    out: [M,N], rows contiguous; None = a new array: numpy for numpy, else a DeviceArray.
    stream: see `stream_handle`; work is ordered after what the streams that the arrays export hold
    now, and before what they are given later. Host arrays are complete on return, device arrays
    when the stream gets there.
    device: for numpy arrays, where to run: "emulator", a GPU index (default: the current one), or
    a Device. Device arrays run where they are.
    config: a kernel's Config; None = chosen for the problem and the GPU.
    batch_invariant: sum K in parts that are chosen by N and K alone, so that the bits of a row of D
    do not depend on M.
    dependent_launch: let the kernel start before the one before it on the stream ends, and wait for
    its end only before it reads A and writes D. B and scale_b must not be that kernel's output.

    Returns: `out`, or the new array.

    Raises: ArgumentError, ConfigError, ToolMissingError, DriverError, EmulationError.
    """
    handle = stream_handle(stream)
    check_name("layout:", layout, LAYOUTS)
    check_config(config, "gemm")
    x_a, x_b = as_operand(a, "a", handle), as_operand(b, "b", handle)
    a_stored = "[M,K]" if layout[0] == "n" else "[K,M]"
    b_stored = "[N,K]" if layout[1] == "t" else "[K,N]"
    m_a = read_matrix(x_a, "a", a_stored)
    m_b = read_matrix(x_b, "b", b_stored)
    m, k = x_a.shape if layout[0] == "n" else x_a.shape[::-1]
    n, k_of_b = x_b.shape if layout[1] == "t" else x_b.shape[::-1]
    if k != k_of_b:
        raise ArgumentError(
            f"K must agree: a is {a_stored}={x_a.shape} so K={k}, b is {b_stored}={x_b.shape} so"
            f" K={k_of_b}, with layout={layout}; try another layout ({', '.join(LAYOUTS)}) or x.T"
        )
    scales = read_scales(scale_a, scale_b, (m, n, k), handle, scale)
    dense: dict[str, Operand] = {}
    if scales.a is not None and scales.b is not None:
        dense |= {"scale_a": scales.a, "scale_b": scales.b}
    following = read_epilogue(
        (m, n), handle, c=c, beta=beta, bias=bias, activation=activation, amax=amax,
        d_scale=d_scale, d_scales=d_scales,
    )  # fmt: skip
    dense |= following.inputs
    inputs = {"a": x_a, "b": x_b, **dense, **following.outputs}
    x_out = None if out is None else as_operand(out, "out", handle)
    d = output_dtype(d_dtype, x_out)
    everything = inputs | ({"c": following.c.operand} if following.c else {})
    place = place_of(everything if x_out is None else {**everything, "out": x_out})
    d_shape = (m, columns_of_d(following.epilogue, n))
    if x_out is None and place == HOST:
        out = np.empty(d_shape, numpy_dtype(d))
        x_out = as_operand(out, "out")
    m_d = None
    if x_out is not None:
        m_d = read_matrix(x_out, "out", "[M,N]")
        is_c = following.c is not None and _same_place(following.c, m_d)
        check_output(x_out, d_shape, d, inputs if is_c else everything)
    accumulates = "auto" if accumulate is None else accumulate
    check_name("accumulate", accumulates, ("auto", *ACCUMULATES))
    try:
        problem = Gemm(
            m, n, k, m_a.dtype, m_b.dtype, d, layout, scales.kind, accumulates,
            a_stride=m_a.stride, b_stride=m_b.stride, d_stride=m_d.stride if m_d else 0,
            a_alignment=m_a.alignment, b_alignment=m_b.alignment,
            d_alignment=m_d.alignment if m_d else MAX_ALIGNMENT,
            alpha=real_number("alpha", alpha) * scales.factor,
            scale_a_strides=scales.strides("a"), scale_b_strides=scales.strides("b"),
            scale_format=scales.format,
            epilogue=following.epilogue,
        )  # fmt: skip
    except ProblemError as error:
        raise ArgumentError(str(error)) from error
    target = device_at(place, device)
    if m_d is None:
        out = new_device_array(d_shape, d, target, handle)
        m_d = read_matrix(as_operand(out, "out"), "out", "[M,N]")
    if m and n:
        matrices = {"a": m_a, "b": m_b, "d": m_d} | ({"c": following.c} if following.c else {})
        wanted = Wanted(problem, config, batch_invariant, dependent_launch)
        _run(wanted, target, matrices, dense, following.outputs, handle)
    return out


@dataclass(frozen=True)
class Wanted:
    """What decides which kernel is launched, and how."""

    problem: Gemm
    config: Any = None
    batch_invariant: bool = False
    dependent_launch: bool = False


def _same_place(c: Matrix, d: Matrix) -> bool:
    """Whether C and D are the same elements, which each tile reads before it writes them."""
    same = c.operand.byte_range() == d.operand.byte_range() and c.dtype == d.dtype
    return same and c.operand.strides_bytes == d.operand.strides_bytes


def _run(
    wanted: Wanted,
    target: Device,
    matrices: dict[str, Matrix],
    dense: dict[str, Operand],
    outputs: dict[str, Operand],
    stream: int,
) -> None:
    """Bring host operands over, launch, bring D and other outputs back."""
    with Staging(target, stream) as staging:
        addresses = {name: staging.bring(x, copy=name != "d") for name, x in matrices.items()}
        addresses |= {name: staging.bring_dense(x) for name, x in (dense | outputs).items()}
        d = matrices["d"]
        operands = [x.operand for x in matrices.values()] + list((dense | outputs).values())
        call_on(target, wanted, lambda gpu: _emit(wanted, gpu), operands, addresses, stream)
        if d.operand.host is not None:
            staging.fetch(d, addresses["d"])
            for name, x in outputs.items():
                staging.fetch_padded(x, x.shape, addresses[name])


def _emit(wanted: Wanted, gpu: GpuDevice | None) -> tuple[Any, Any]:
    """(rendered text, launch) of the kernel that serves a problem on `gpu`, or on the emulator.

    Raises: ConfigError if no kernel does, or the config does not.
    """
    from ptxgen.emission import make_plan
    from ptxgen.renderer import render

    target = (gpu.properties.arch, gpu.properties.num_sms) if gpu else ()
    try:
        plan = make_plan(wanted.problem, _config(wanted, gpu), *target)
    except ConfigError as error:
        raise ConfigError(f"{gpu.name}: {error}" if gpu else str(error)) from error
    return render(plan), plan.launch


def _config(wanted: Wanted, gpu: GpuDevice | None) -> Any:
    """The config that was given; or that was measured or is predicted to be the fastest on `gpu`;
    or the default one, for the emulator and GPU models of which we know no rates.

    Raises: ConfigError if no kernel serves the problem.
    """
    from ptxgen.emission import default_config
    from ptxgen.operand_maps import with_rows
    from ptxgen.selection import BATCH_INVARIANT_M

    config, problem = wanted.config, wanted.problem
    if config is None and gpu is not None:
        config = _chosen_config(problem, gpu, wanted.batch_invariant)
    if config is None:
        if wanted.batch_invariant:
            problem = with_rows(problem, BATCH_INVARIANT_M)
        config = default_config(problem, gpu.properties.arch if gpu else None)
    if not wanted.dependent_launch:
        return config
    if not hasattr(config, "dependent_launch"):
        raise ConfigError(
            f"dependent_launch is what kernels for sm_90a have, and {config} does not; try without"
        )
    return replace(config, dependent_launch=True) if wanted.config else config.as_dependent()


def _chosen_config(problem: Gemm, gpu: GpuDevice, batch_invariant: bool) -> Any:
    """The config that was measured or is predicted to be the fastest on `gpu`; None for a GPU model
    of which we know no rates.

    Raises: ConfigError if no kernel serves the problem.
    """
    from ptxgen.selection import choose, known_model

    model = known_model(gpu.name, gpu.properties.num_sms, gpu.properties.arch)
    return None if model is None else choose(problem, model, batch_invariant=batch_invariant)
