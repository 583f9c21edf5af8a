"""gemm: arrays or pointers in, D out, on a GPU or on the emulator."""

import threading
from collections import OrderedDict
from typing import Any

import numpy as np

from ptxgen.dtypes import dtype
from ptxgen.errors import ArgumentError, ConfigError, ProblemError
from ptxgen.launch import Device
from ptxgen.launcher.arrays import Operand, as_operand
from ptxgen.launcher.device import GpuDevice
from ptxgen.launcher.device_array import DeviceArray
from ptxgen.launcher.gemm_arguments import (
    MAX_ALIGNMENT,
    Matrix,
    check_output,
    output_dtype,
    read_matrix,
)
from ptxgen.launcher.launching import PreparedCall
from ptxgen.launcher.scale_arguments import read_scales
from ptxgen.launcher.staging import Staging
from ptxgen.launcher.streams import stream_handle
from ptxgen.problem import BLOCK_SCALES, LAYOUTS, Gemm

EMULATOR = "emulator"
HOST = "host memory"
PREPARED_LIMIT = 256
"""Prepared calls that are kept, over all devices."""


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
    out: Any = None,
    stream: Any = None,
    device: Any = None,
    config: Any = None,
) -> Any:
    """D[M,N] = alpha * scale_a * scale_b * A @ B.

    a: [M,K] (layout n) or [K,M] (t); b: [N,K] (layout t) or [K,N] (n); the last axis contiguous.
    Each may be a numpy array (with ml_dtypes), a DLPack object, a `__cuda_array_interface__`
    object, a RawArray, or `view(x, dtype)` of one; all in the same memory.
    d_dtype: bf16, f16, f32 (s32 for integers); None = that of `out`, else bf16.
    scale_a, scale_b: None, numbers, or float32 arrays: one element each (tensor), vectors of M and
    N (rowcol), [M, ceil(K/128)] and [ceil(N/128), ceil(K/128)] (block), or [M, ceil(K/128)] and
    [N, ceil(K/128)] (group). Matrices may have any two strides.
    scale: none, tensor, rowcol, block or group; None = what the shapes of the scales say.
    accumulate: fast or promoted, see Gemm; None = promoted for block and group, else fast.
    out: [M,N], rows contiguous; None = a new array: numpy for numpy, else a DeviceArray.
    stream: see `stream_handle`; work is ordered after what the streams that the arrays export hold
    now, and before what they are given later. Host arrays are complete on return, device arrays
    when the stream gets there.
    device: for numpy arrays, where to run: "emulator", a GPU index (default: the current one), or
    a Device. Device arrays run where they are.
    config: a kernel's Config; None = chosen for the problem and the GPU.

    Returns: `out`, or the new array.

    Raises: ArgumentError, ConfigError, ToolMissingError, DriverError, EmulationError.
    """
    handle = stream_handle(stream)
    if layout not in LAYOUTS:
        raise ArgumentError(f"layout: must be one of {', '.join(LAYOUTS)}, got {layout!r}")
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
            f" K={k_of_b}, with layout={layout}"
        )
    scales = read_scales(scale_a, scale_b, (m, n, k), handle, scale)
    inputs = {"a": x_a, "b": x_b}
    if scales.a is not None and scales.b is not None:
        inputs |= {"scale_a": scales.a, "scale_b": scales.b}
    x_out = None if out is None else as_operand(out, "out", handle)
    d = output_dtype(d_dtype, x_out)
    place = _place(inputs if x_out is None else {**inputs, "out": x_out})
    if x_out is None and place == HOST:
        out = np.empty((m, n), _numpy_dtype(d))
        x_out = as_operand(out, "out")
    m_d = None
    if x_out is not None:
        check_output(x_out, (m, n), d, inputs)
        m_d = read_matrix(x_out, "out", "[M,N]")
    if accumulate is None:
        accumulate = "promoted" if scales.kind in BLOCK_SCALES else "fast"
    try:
        problem = Gemm(
            m, n, k, m_a.dtype, m_b.dtype, d, layout, scales.kind, accumulate,
            a_stride=m_a.stride, b_stride=m_b.stride, d_stride=m_d.stride if m_d else 0,
            a_alignment=m_a.alignment, b_alignment=m_b.alignment,
            d_alignment=m_d.alignment if m_d else MAX_ALIGNMENT,
            alpha=_number(alpha) * scales.factor,
            scale_a_strides=scales.strides("a"), scale_b_strides=scales.strides("b"),
        )  # fmt: skip
    except ProblemError as error:
        raise ArgumentError(str(error)) from error
    target = _device_at(place, device)
    if m_d is None:
        out = _new_device_array((m, n), d, target, handle)
        m_d = read_matrix(as_operand(out, "out"), "out", "[M,N]")
    if m and n:
        matrices = {"a": m_a, "b": m_b, "d": m_d}
        scale_operands = {name: x for name, x in inputs.items() if name not in matrices}
        _run(problem, config, target, matrices, scale_operands, handle)
    return out


def _number(alpha: Any) -> float:
    try:
        return float(alpha)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"alpha: must be a real number, got {alpha!r}") from error


def _place(operands: dict[str, Operand]) -> Any:
    """Where all operands are: HOST, a GPU index, or a Device.

    Raises: ArgumentError if they are in different memories.
    """
    places: dict[str, Any] = {}
    for name, x in operands.items():
        if x.host is not None:
            places[name] = HOST
        elif x.device is not None:
            places[name] = x.device
        elif x.device_index is not None:
            places[name] = x.device_index  # not known of an empty array, which may be anywhere
    first = next(iter(places), None)
    if first is None:
        return 0
    for name, place in places.items():
        if place != places[first]:
            raise ArgumentError(
                f"{first} is in {_place_name(places[first])} and {name} in {_place_name(place)};"
                " all arrays must be in the same memory; try copying one"
            )
    return places[first]


def _place_name(place: Any) -> str:
    if isinstance(place, int):
        return f"the memory of GPU {place}"
    return place if isinstance(place, str) else f"the memory of {place.name}"


def _device_at(place: Any, device: Any) -> Device:
    """The device whose memory `place` is; for host arrays the one that the caller chose.

    Raises: ArgumentError if `device` is another one; ToolMissingError, DriverError.
    """
    if place == HOST:
        return _chosen_device(device)
    if isinstance(place, int) and device in (None, place) and not isinstance(device, bool):
        return GpuDevice.get(place)
    if isinstance(place, int) and isinstance(device, GpuDevice) and device.index == place:
        return device
    if not isinstance(place, int) and device in (None, place):
        on_device: Device = place
        return on_device
    raise ArgumentError(
        f"the arrays are in {_place_name(place)}, but device={device!r}; must agree; try numpy"
        " arrays, or leave device out"
    )


def _chosen_device(device: Any) -> Device:
    if device is None or (isinstance(device, int) and not isinstance(device, bool)):
        return GpuDevice.get(device)
    if device == EMULATOR:
        from ptxgen.emulator import EmulatorDevice

        emulator: Device = EmulatorDevice()
        return emulator
    if all(hasattr(device, method) for method in ("alloc", "write", "read", "launch")):
        given: Device = device
        return given
    raise ArgumentError(
        f"device: must be 'emulator', a GPU index, a Device or None, got {device!r}"
    )


def _new_device_array(shape: tuple[int, int], d: str, target: Device, stream: int) -> DeviceArray:
    if isinstance(target, GpuDevice):
        return DeviceArray(target, shape, d, stream)
    raise ArgumentError(f"out: must be given for arrays in the memory of {target.name}")


def _numpy_dtype(name: str) -> Any:
    import ml_dtypes

    numpy_name = dtype(name).numpy_name
    return getattr(ml_dtypes, numpy_name, numpy_name)


def _run(
    problem: Gemm,
    config: Any,
    target: Device,
    matrices: dict[str, Matrix],
    scales: dict[str, Operand],
    stream: int,
) -> None:
    """Bring host operands over, launch, bring D back."""
    with Staging(target, stream) as staging:
        addresses = {name: staging.bring(x, copy=name != "d") for name, x in matrices.items()}
        addresses |= {name: staging.bring_dense(x) for name, x in scales.items()}
        d = matrices["d"]
        if isinstance(target, GpuDevice):
            operands = [x.operand for x in matrices.values()] + list(scales.values())
            producers = {x.stream for x in operands if x.stream is not None}
            for producer in producers:
                target.order_after(stream, producer)
            _prepared(target, problem, config)(addresses, stream)
            # Also after inputs: a pool may hand their memory out again on the producer's stream.
            for producer in producers:
                target.order_after(producer, stream)
        else:
            rendered, launch = _emit(problem, config, None)
            target.launch(launch, rendered.text, addresses)
        if d.operand.host is not None:
            staging.fetch(d, addresses["d"])


_calls: OrderedDict[Any, PreparedCall] = OrderedDict()
_calls_lock = threading.Lock()


def _prepared(gpu: GpuDevice, problem: Gemm, config: Any) -> PreparedCall:
    """The prepared call for a problem on a GPU, made on first use."""
    key = (id(gpu), problem, config)
    with _calls_lock:
        call = _calls.get(key)
        if call is not None:
            _calls.move_to_end(key)
            return call
    rendered, launch = _emit(problem, config, gpu)
    call = PreparedCall(gpu, launch, rendered.text, template_lines=rendered.template_lines)
    with _calls_lock:
        _calls[key] = call
        while len(_calls) > PREPARED_LIMIT:
            _calls.popitem(last=False)
    return call


def _emit(problem: Gemm, config: Any, gpu: GpuDevice | None) -> tuple[Any, Any]:
    """(rendered text, launch) of the kernel that serves `problem` on `gpu`, or on the emulator.

    Raises: ConfigError if no kernel does, or `config` does not.
    """
    from ptxgen.emission import make_plan
    from ptxgen.renderer import render

    if gpu is None:
        plan = make_plan(problem, config)
    else:
        arch, num_sms = gpu.properties.arch, gpu.properties.num_sms
        try:
            plan = make_plan(problem, config or _chosen_config(problem, gpu), arch, num_sms)
        except ConfigError as error:
            raise ConfigError(f"{gpu.name}: {error}") from error
    return render(plan), plan.launch


def _chosen_config(problem: Gemm, gpu: GpuDevice) -> Any:
    """The config that was measured or is predicted to be the fastest on `gpu`; None for a GPU model
    of which we know no rates.

    Raises: ConfigError if no kernel serves the problem.
    """
    from ptxgen.selection import choose, model_of

    try:
        model = model_of(gpu.name, gpu.properties.num_sms)
    except ConfigError:
        return None
    return choose(problem, model) if model.arch == gpu.properties.arch else None
