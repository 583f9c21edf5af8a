"""Run time of tensor copies: issue, poison, completion."""

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxgen.emulator import tma
from ptxgen.emulator.box import (
    Box,
    Selection,
    box_shape,
    check_coordinates,
    check_store,
    four_rows,
    select,
    smem_footprint,
    smem_index,
)
from ptxgen.emulator.bulk import groups, receivers
from ptxgen.emulator.memory import POISON
from ptxgen.emulator.observer import Access, AccessKind, AsyncOperation, Origin, Proxy, Space
from ptxgen.emulator.pending import Pending
from ptxgen.emulator.runtime import runtime
from ptxgen.emulator.tensor_map import TENSOR_MAP_BYTES, DecodedMap, decode
from ptxgen.emulator.tma_im2col import (
    check_im2col_store,
    im2col_bytes,
    im2col_of,
    im2col_selection,
    read_im2col,
)
from ptxgen.errors import EmulationError

if TYPE_CHECKING:
    from ptxgen.emulator.cta import Cta
    from ptxgen.emulator.fragment import Fragment
    from ptxgen.emulator.op_bulk import Copy


@lru_cache(maxsize=256)
def _decoded(data: bytes) -> DecodedMap:
    return decode(data)


def read_map(F: "Fragment", address: int, line: int) -> DecodedMap:
    """The tensor map at a generic address.

    Raises: OutOfBoundsError, EmulationError for bytes that are not a map.
    """
    data = F.machine.memory.read(address, TENSOR_MAP_BYTES)
    if F.observer is not None:
        F.observer.on_access(
            Access(
                AccessKind.READ, Proxy.TENSORMAP, Space.GLOBAL, -1, np.array([address]),
                TENSOR_MAP_BYTES, F.origin(line),
            )
        )  # fmt: skip
    return _decoded(data.tobytes())


def trimmed(
    tensor_map: DecodedMap, copied: "Copy", coordinates: tuple[int, ...]
) -> tuple[int, ...]:
    """Coordinates without trailing zeros past the map's rank: public kernels pass them (fast.cu
    copies from rank-3 maps by the .5d form), so the hardware does not mind."""
    rank = tensor_map.rank
    if copied.mode == "tile" and len(coordinates) > rank and not any(coordinates[rank:]):
        return coordinates[:rank]
    return coordinates


@runtime
def load_tensor(
    F: "Fragment", lane: int, copied: "Copy", destination: int, source: int,
    coordinates: tuple[int, ...], barrier: int = 0, ctas: int = 0, offsets: tuple[int, ...] = (),
) -> None:  # fmt: skip
    """cp.async.bulk.tensor from global to shared memory."""
    machine = F.machine
    tensor_map = read_map(F, source, copied.line)
    coordinates = trimmed(tensor_map, copied, coordinates)
    targets = receivers(F, destination, barrier, copied, ctas)
    read, rows, row_bytes, tx_bytes = _reader(machine, copied, tensor_map, coordinates, offsets)
    for cta, offset, signalled, signal in targets:
        signalled.mbarriers.at(signal)
        poison_box(cta, tensor_map, rows, row_bytes, offset)

    def finish() -> None:
        box = read()
        for cta, offset, signalled, signal in targets:
            tma.place_box(tensor_map, box, cta.smem, offset)
            if signalled.mbarriers.complete_tx(signal, tx_bytes, None, operation):
                signalled.phase_completed(signal)

    operation = None
    origin = F.origin(copied.line, 1 << lane)
    if F.observer is not None:
        operation = AsyncOperation(
            "tma_load", origin,
            reads=_global_box(
                AccessKind.READ, _selection(copied, tensor_map, coordinates, offsets), origin
            ),
            writes=tuple(
                _shared_box(AccessKind.WRITE, cta, tensor_map, rows, row_bytes, offset, origin)
                for cta, offset, _, _ in targets
            ),
            barriers=tuple((c.index, o) for _, _, c, o in targets), tx_bytes=tx_bytes,
        )  # fmt: skip
    machine.issue(
        Pending("tma_load", origin, F.warp, [finish], [(c, o) for _, _, c, o in targets], operation)
    )


def _reader(
    machine: Any, copied: "Copy", tensor_map: DecodedMap, coordinates: tuple[int, ...],
    offsets: tuple[int, ...],
) -> tuple[Any, int, int, int]:  # fmt: skip
    """(function that reads the box, rows, bytes of a row in shared memory, transaction bytes)."""
    memory = machine.memory
    if copied.mode == "tile":
        shape = box_shape(tensor_map)
        check_coordinates(tensor_map, coordinates)
        return (
            lambda: tma.read_box(tensor_map, coordinates, memory),
            shape.rows, shape.smem_row_bytes, shape.tx_bytes,
        )  # fmt: skip
    if copied.mode == "tile::gather4":
        shape = box_shape(tensor_map)
        return (
            lambda: tma.gather_rows(tensor_map, coordinates, memory),
            4, shape.smem_row_bytes, 4 * shape.tx_bytes,
        )  # fmt: skip
    if copied.mode == "im2col":
        tx_bytes = im2col_bytes(tensor_map)
        rows = im2col_of(tensor_map).pixels
        im2col_selection(tensor_map, coordinates, offsets)
        return (
            lambda: read_im2col(tensor_map, coordinates, offsets, memory),
            rows, tx_bytes // rows, tx_bytes,
        )  # fmt: skip
    raise EmulationError(f"cp.async.bulk.tensor mode .{copied.mode} is not emulated")


def poison_box(cta: "Cta", tensor_map: DecodedMap, rows: int, row_bytes: int, offset: int) -> None:
    """Overwrite the destination of a copy in flight, so that reading it early shows.

    Raises: MisalignedError, OutOfBoundsError.
    """
    index = smem_index(tensor_map, rows, row_bytes, cta.smem, offset)
    pieces, size = smem_footprint(tensor_map, rows, row_bytes, offset)
    if len(pieces) == 1:
        start = int(pieces[0])
        cta.smem.u8[start : start + size] = POISON
    elif tensor_map.swizzle == "128B_ATOM_32B_FLIP_8B":
        cta.smem.views[8][index] = 0xFFFFFFFFFFFFFFFF
    else:
        cta.smem.views[8].reshape(-1, 2)[index] = 0xFFFFFFFFFFFFFFFF


def _shared_box(
    kind: AccessKind, cta: "Cta", tensor_map: DecodedMap, rows: int, row_bytes: int, offset: int,
    origin: Origin,
) -> Access:  # fmt: skip
    pieces, size = smem_footprint(tensor_map, rows, row_bytes, offset)
    return Access(kind, Proxy.ASYNC, Space.SHARED, cta.index, pieces, size, origin)


def _selection(
    copied: "Copy", tensor_map: DecodedMap, coordinates: tuple[int, ...], offsets: tuple[int, ...]
) -> Selection:
    """Which bytes of global memory a copy reads or writes.

    Raises: EmulationError for coordinates or a mode that cannot be.
    """
    if copied.mode in ("tile::gather4", "tile::scatter4"):
        shape, steps = four_rows(tensor_map, coordinates)
        return select(tensor_map, shape, (coordinates[0], 0), steps)
    if copied.mode in ("im2col", "im2col_no_offs"):
        return im2col_selection(tensor_map, coordinates, offsets or (0,) * (tensor_map.rank - 2))
    shape = box_shape(tensor_map)
    return select(tensor_map, shape, coordinates, shape.row_steps)


def _global_box(kind: AccessKind, found: Selection, origin: Origin) -> tuple[Access, ...]:
    pieces, size = found.footprint
    if not size or not len(pieces):
        return ()
    return (Access(kind, Proxy.ASYNC, Space.GLOBAL, -1, pieces, size, origin),)


@runtime
def store_tensor(
    F: "Fragment", lane: int, copied: "Copy", destination: int, source: int,
    coordinates: tuple[int, ...], offsets: tuple[int, ...] = (),
) -> None:  # fmt: skip
    """cp.async.bulk.tensor and cp.reduce.async.bulk.tensor from shared to global memory."""
    machine = F.machine
    memory = machine.memory
    tensor_map = read_map(F, destination, copied.line)
    coordinates = trimmed(tensor_map, copied, coordinates)
    cta = F.cta
    offset = cta.own(source)
    boxes: list[Box] = []
    take, rows, row_bytes = _taker(cta, copied, tensor_map, coordinates, offset)
    found = _selection(copied, tensor_map, coordinates, ())

    def write() -> None:
        if copied.reduction:
            tma.reduce_rows(tensor_map, found, memory, boxes[0], copied.reduction)
        elif copied.mode == "tile":
            tma.write_box(tensor_map, coordinates, memory, boxes[0])
        else:
            tma.store_rows(found, memory, boxes[0])

    operation = None
    origin = F.origin(copied.line, 1 << lane)
    if F.observer is not None:
        kind = AccessKind.ATOMIC if copied.reduction else AccessKind.WRITE
        reads = (_shared_box(AccessKind.READ, cta, tensor_map, rows, row_bytes, offset, origin),)
        writes = _global_box(kind, found.in_units(), origin)
        operation = AsyncOperation(
            "tma_reduce" if copied.reduction else "tma_store", origin, reads, writes, group="bulk"
        )
    pending = Pending(
        "tma_store", origin, F.warp, [lambda: boxes.append(take()), write], [], operation
    )  # fmt: skip
    groups(F, "bulk").add(1 << lane, pending)
    machine.issue(pending)


def _taker(
    cta: "Cta", copied: "Copy", tensor_map: DecodedMap, coordinates: tuple[int, ...], offset: int
) -> tuple[Callable[[], Box], int, int]:
    """(function that takes the box of a store from shared memory, its rows, bytes of a row).

    Raises: EmulationError for coordinates or a mode that a store cannot have.
    """
    m = tensor_map
    if copied.mode == "im2col_no_offs":
        check_im2col_store(m, coordinates)
        rows = im2col_of(m).pixels
        row_bytes = im2col_bytes(m) // rows

        def take() -> Box:
            index = smem_index(m, rows, row_bytes, cta.smem, offset)
            return cta.smem.u128[index].view(np.uint8).reshape(rows, row_bytes)

        return take, rows, row_bytes
    if copied.mode not in ("tile", "tile::scatter4"):
        raise EmulationError(f"a tensor store of mode .{copied.mode} is not emulated")
    shape = box_shape(m)
    check_store(m, coordinates, scatter=copied.mode == "tile::scatter4")
    if copied.mode == "tile":
        return lambda: tma.take_box(m, cta.smem, offset), shape.rows, shape.smem_row_bytes
    return lambda: tma.take_rows(m, cta.smem, offset), 4, shape.smem_row_bytes


@runtime
def prefetch_tensor(
    F: "Fragment", lane: int, copied: "Copy", _: int, source: int, coordinates: tuple[int, ...],
    offsets: tuple[int, ...] = (),
) -> None:  # fmt: skip
    """cp.async.bulk.prefetch.tensor: the map and the coordinates are checked, nothing moves."""
    tensor_map = read_map(F, source, copied.line)
    if copied.mode == "tile":
        check_coordinates(tensor_map, coordinates)
