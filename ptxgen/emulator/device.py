"""EmulatorDevice: the emulator behind the protocol that GPUs have too; `run` for one launch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.buffers import check_sizes, initial_bytes
from ptxgen.emulator.global_memory import GlobalMemory
from ptxgen.emulator.image import Image, load_image
from ptxgen.emulator.machine import Machine
from ptxgen.emulator.observer import Observer
from ptxgen.emulator.options import Options
from ptxgen.emulator.parameters import pack_parameters
from ptxgen.errors import LaunchError, not_one_of
from ptxgen.launch import Launch


@dataclass(frozen=True)
class Run:
    """What one launch did."""

    buffers: Mapping[str, bytes]
    """Contents of every buffer afterwards."""
    num_instructions: int
    """Warp instructions executed."""
    printed: str
    """What device code printed."""


class EmulatorDevice:
    """A device that executes PTX text on the CPU. Allocations live until they are freed."""

    name = "emulator"

    def __init__(self, options: Options | None = None, observer: Observer | None = None) -> None:
        self.options = options or Options()
        self.observer = observer
        self.progress: Callable[[int, int], None] | None = None
        """Told how many clusters of how many are done."""
        self.memory = GlobalMemory(track=observer is not None)
        self.num_instructions = 0
        """Warp instructions of all launches so far."""
        self.printed = ""
        """What device code has printed."""
        self._symbols: dict[int, dict[str, int]] = {}

    def alloc(self, nbytes: int) -> int:
        """Address of a new allocation of at least `nbytes` bytes, 256-byte aligned."""
        return self.memory.allocate(max(nbytes, 1))

    def free(self, address: int) -> None:
        """Give an allocation back."""
        self.memory.free(address)

    def write(self, address: int, data: bytes | memoryview) -> None:
        """Copy host bytes to `address`."""
        self.memory.write(address, data)

    def read(self, address: int, nbytes: int) -> bytes:
        """Copy `nbytes` bytes at `address` to the host."""
        return self.memory.read(address, nbytes).tobytes()

    def launch(self, launch: Launch, ptx: str, addresses: Mapping[str, int]) -> None:
        """Run `launch` of the entry in `ptx`; `addresses` holds one address per buffer name.
        Workspaces may be left out: the launch then has its own.

        Raises: LaunchError, PtxError, EmulationError.
        """
        observer = self.observer
        image = load_image(ptx, launch, observer)
        workspaces = {
            b.name: self._zeroed(b.nbytes) for b in launch.workspaces if b.name not in addresses
        }
        addresses = {**addresses, **workspaces}
        for name, address in addresses.items():
            if name:
                self.memory.rename(address, name)
        symbols = self._place_variables(image)
        base = self.memory.allocate(max(image.param_bytes, 1), "parameters")
        try:
            self.memory.write(base, pack_parameters(image, launch, addresses))
            machine = Machine(image, launch, self.memory, symbols, base, self.options, observer)
            machine.progress = self.progress
            try:
                machine.run()
            finally:
                self.num_instructions += machine.num_instructions
                self.printed += "".join(machine.printed)
        finally:
            for address in (base, *workspaces.values()):
                self.memory.free(address)

    def _zeroed(self, nbytes: int) -> int:
        """Address of a new allocation that holds zeros."""
        address = self.alloc(nbytes)
        self.write(address, bytes(nbytes))
        return address

    def _place_variables(self, image: Image) -> dict[str, int]:
        """Addresses of the module's global and constant variables, placed at its first launch."""
        found = self._symbols.get(id(image.module))
        if found is not None:
            return found
        found = {}
        module = image.module
        scopes = [(v.name, v) for v in module.variables.values()]
        for function in module.functions.values():
            scopes += [(f"{function.name}::{v.name}", v) for v in function.variables.values()]
        variables = [(k, v) for k, v in scopes if v.space in ("global", "const")]
        for key, variable in variables:
            found[key] = self.memory.allocate(max(variable.nbytes, 1), key)
        for key, variable in variables:
            data = bytearray(variable.initial or bytes(variable.nbytes))
            for relocation in variable.relocations:
                known = found.get(relocation.symbol, image.function_ids.get(relocation.symbol, 0))
                target = known + relocation.addend >> relocation.shift_bits
                end = relocation.offset + relocation.nbytes
                data[relocation.offset : end] = target.to_bytes(8, "little")[: relocation.nbytes]
            if data:
                self.memory.write(found[key], bytes(data))
        self._symbols[id(image.module)] = found
        return found


Data = Mapping[str, "bytes | NDArray[Any]"]


def run(
    ptx: str,
    launch: Launch,
    data: Data | None = None,
    options: Options | None = None,
    observer: Observer | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Run:
    """Execute one launch of PTX text on fresh memory.

    `data` holds bytes or arrays by buffer name; other buffers start as their `init` says.
    `progress` is told how many clusters of how many are done.
    Raises: LaunchError, PtxError, EmulationError.
    """
    device = EmulatorDevice(options, observer)
    device.progress = progress
    given = data or {}
    unknown = sorted(set(given) - {b.name for b in launch.buffers})
    if unknown:
        raise LaunchError(
            not_one_of("each name of data", unknown[0], [b.name for b in launch.buffers])
        )
    check_sizes(launch.buffers)
    addresses: dict[str, int] = {}
    for buffer in launch.buffers:
        found = given.get(buffer.name)
        raw = initial_bytes(buffer) if found is None else _bytes(found)
        address = device.alloc(buffer.nbytes)
        addresses[buffer.name] = address
        if len(raw) > buffer.nbytes:
            raise LaunchError(
                f"buffer {buffer.name!r} has {buffer.nbytes} B, but {len(raw)} B were given; try "
                "as many"
            )
        if len(raw):
            device.write(address, raw)
    device.launch(launch, ptx, addresses)
    return Run(
        {b.name: device.read(addresses[b.name], b.nbytes) for b in launch.buffers},
        device.num_instructions, device.printed,
    )  # fmt: skip


def _bytes(data: "bytes | NDArray[Any]") -> bytes:
    return data if isinstance(data, bytes) else np.ascontiguousarray(data).tobytes()
