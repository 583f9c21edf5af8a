"""placement: which memory the operands of a call are in, and which device works on them."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ptxgen.dtypes import dtype
from ptxgen.errors import ArgumentError
from ptxgen.launch import Device
from ptxgen.launcher.arrays import Operand
from ptxgen.launcher.device import GpuDevice
from ptxgen.launcher.device_array import DeviceArray
from ptxgen.launcher.prepared_calls import prepared_call

EMULATOR = "emulator"
HOST = "host memory"


def place_of(operands: dict[str, Operand]) -> Any:
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
            one, other = _place_name(places[first]), _place_name(place)
            if one == other:
                other = f"that of another {place.name} device"
            raise ArgumentError(
                f"{first} is in {one} and {name} in {other};"
                " all arrays must be in the same memory; try copying one"
            )
    return places[first]


def _place_name(place: Any) -> str:
    if isinstance(place, int):
        return f"the memory of GPU {place}"
    return place if isinstance(place, str) else f"the memory of {place.name}"


def device_at(place: Any, device: Any) -> Device:
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
    if isinstance(device, str) and device == EMULATOR:
        from ptxgen.emulator import EmulatorDevice

        emulator: Device = EmulatorDevice()
        return emulator
    if all(hasattr(device, method) for method in ("alloc", "write", "read", "launch")):
        given: Device = device
        return given
    raise ArgumentError(
        f"device: must be 'emulator', a GPU index, a Device or None, got {device!r}; try 0"
    )


def new_device_array(shape: tuple[int, ...], d: str, target: Device, stream: int) -> DeviceArray:
    """A new array for an output in the memory of `target`.

    Raises: ArgumentError if we cannot allocate one there; DriverError.
    """
    if isinstance(target, GpuDevice):
        return DeviceArray(target, shape, d, stream)
    raise ArgumentError(
        f"out: must be given for arrays in the memory of {target.name}; try a RawArray"
    )


def numpy_dtype(name: str) -> Any:
    """The numpy type of our dtype `name`."""
    import ml_dtypes

    numpy_name = dtype(name).numpy_name
    return getattr(ml_dtypes, numpy_name, numpy_name)


@contextmanager
def producers_of(operands: Iterable[Operand], gpu: GpuDevice, stream: int) -> Iterator[None]:
    """Order what the `with` block issues on `stream` after the streams that the operands export,
    and those after it."""
    producers = {x.stream for x in operands if x.stream is not None}
    for producer in producers:
        gpu.order_after(stream, producer)
    yield
    # Also after inputs: a pool may hand their memory out again on the producer's stream.
    for producer in producers:
        gpu.order_after(producer, stream)


def call_on(
    target: Device,
    key: Hashable,
    emit: Callable[[GpuDevice | None], tuple[Any, Any]],
    operands: Iterable[Operand],
    addresses: Mapping[str, int],
    stream: int,
) -> None:
    """Compute on a GPU, by the prepared call for `key`, or on the emulator.

    emit: makes (rendered text, launch) for a GPU, or for the emulator. operands: whose streams the
    call waits for. addresses: of buffers, by name.

    Raises: as `emit`, PreparedCall and `Device.launch`.
    """
    if isinstance(target, GpuDevice):
        with producers_of(operands, target, stream):
            prepared_call(target, key, lambda: emit(target))(addresses, stream)
    else:
        rendered, launch = emit(None)
        target.launch(launch, rendered.text, addresses)
