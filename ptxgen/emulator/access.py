"""The one place through which generated code reaches memory.

Every generic-proxy access passes here with its space, addresses, lanes and line; an observer, if
there is one, is told after the access has been made.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from ptxgen.emulator.addresses import locate, locate_lanes
from ptxgen.emulator.lanes import FULL, UNSIGNED, lane_indices
from ptxgen.emulator.observer import Access, AccessKind, Proxy, Space
from ptxgen.emulator.runtime import runtime

if TYPE_CHECKING:
    from ptxgen.emulator.cta import Cta
    from ptxgen.emulator.fragment import Fragment

Target = Any
"""MemoryBlock or GlobalMemory: what has load, store, load_int, store_int."""


def report(
    F: "Fragment",
    kind: AccessKind,
    space: Space,
    owner: int,
    addresses: Any,
    size: int,
    line: int,
    semantics: str,
    mask: int = -1,
    proxy: Proxy = Proxy.GENERIC,
) -> None:
    """Tell the observer of an access. `semantics`: weak, or relaxed.gpu, volatile ..."""
    assert F.observer is not None
    order, _, scope = semantics.partition(".")
    F.observer.on_access(
        Access(
            kind, proxy, space, owner, np.atleast_1d(np.asarray(addresses, np.int64)), size,
            F.origin(line, mask), order != "weak", "relaxed" if order in ("volatile", "mmio")
            else order, scope or ("sys" if order == "volatile" else "cta"),
        )
    )  # fmt: skip


def uniform_target(F: "Fragment", space: str, address: int) -> tuple[Target, Space, int, int]:
    """(memory, space, owner, address in it) of a uniform address."""
    cta = F.cta
    if space == "global":
        return F.machine.memory, Space.GLOBAL, -1, address
    if space == "shared":
        return cta.smem, Space.SHARED, cta.index, cta.own(address)
    if space == "shared::cluster":
        peer, offset = cta.peer(address)
        return peer.smem, Space.SHARED, peer.index, offset
    if space == "generic":
        where, inner = locate(address)
        if where is Space.SHARED:
            peer, offset = cta.peer(inner)
            return peer.smem, where, peer.index, offset
        if where is Space.GLOBAL:
            return F.machine.memory, where, -1, inner
        address = inner
    local = F.warp.local_memory()
    lane = np.array([F.lane])
    place = local.addresses(lane, np.array([address]), 1)
    return local, Space.LOCAL, cta.index, int(place[0])


@runtime
def load_uniform(
    F: "Fragment", space: str, address: int, size: int, line: int, semantics: str
) -> int:
    """One element at an address that all active lanes share."""
    target, where, owner, offset = uniform_target(F, space, address)
    value: int = target.load_int(offset, size)
    if F.observer is not None:
        lanes = (F.mask & FULL).bit_count()
        report(F, AccessKind.READ, where, owner, [offset] * lanes, size, line, semantics)
    return value


@runtime
def load_uniform_vector(
    F: "Fragment", space: str, address: int, size: int, count: int, line: int, semantics: str
) -> list[int]:
    """`count` consecutive elements at an address that all active lanes share."""
    target, where, owner, offset = uniform_target(F, space, address)
    check_vector(address, size * count)
    values = [target.load_int(offset + i * size, size) for i in range(count)]
    if F.observer is not None:
        lanes = (F.mask & FULL).bit_count()
        report(F, AccessKind.READ, where, owner, [offset] * lanes, size * count, line, semantics)
    return values


@runtime
def store_uniform(
    F: "Fragment", space: str, address: int, values: tuple[int, ...], size: int, line: int,
    semantics: str,
) -> None:  # fmt: skip
    """Store the same elements at the same address from all active lanes."""
    target, where, owner, offset = uniform_target(F, space, address)
    check_vector(address, size * len(values))
    F.machine.epoch += 1
    for index, value in enumerate(values):
        target.store_int(offset + index * size, value, size)
    if F.observer is not None:
        lanes = (F.mask & FULL).bit_count()
        report(
            F, AccessKind.WRITE, where, owner, [offset] * lanes, size * len(values), line, semantics
        )


def check_vector(address: int, nbytes: int) -> None:
    """Vectors are aligned as a whole.

    Raises: MisalignedError.
    """
    if address & (nbytes - 1):
        from ptxgen.errors import MisalignedError

        raise MisalignedError(
            f"a {nbytes}-byte vector access needs an address that is a multiple of {nbytes}, "
            f"got {address:#x}"
        )


def parts_of(
    F: "Fragment", space: str, addresses: Any, lanes: Any, nbytes: int
) -> list[tuple[Target, Space, int, Any, Any]]:
    """Split lanes by memory: (memory, space, owner, addresses in it, positions)."""
    everything = slice(None)
    if space == "global":
        return [(F.machine.memory, Space.GLOBAL, -1, addresses, everything)]
    if space == "shared":
        return [(F.cta.smem, Space.SHARED, F.cta.index, _own(F.cta, addresses), everything)]
    if space == "shared::cluster":
        return _cluster_parts(F.cta, addresses, None)
    if space == "local":
        local = F.warp.local_memory()
        place = local.addresses(lanes, addresses, nbytes)
        return [(local, Space.LOCAL, F.cta.index, place, everything)]
    found: list[tuple[Target, Space, int, Any, Any]] = []
    for where, inner, positions in locate_lanes(addresses):
        if where is Space.SHARED:
            found.extend(_cluster_parts(F.cta, inner, positions))
        elif where is Space.LOCAL:
            local = F.warp.local_memory()
            place = local.addresses(lanes[positions], inner, nbytes)
            found.append((local, where, F.cta.index, place, positions))
        else:
            found.append((F.machine.memory, where, -1, inner, positions))
    return found


def _own(cta: "Cta", addresses: Any) -> Any:
    base = cta.smem_base
    if not base:
        return addresses
    offsets = addresses - base
    return addresses if int(offsets.min()) < 0 else offsets


def _cluster_parts(
    cta: "Cta", addresses: Any, positions: Any
) -> list[tuple[Target, Space, int, Any, Any]]:
    ranks = addresses >> 24
    first = int(ranks[0])
    if (ranks == first).all():
        peer, _ = cta.peer(int(addresses[0]))
        where = slice(None) if positions is None else positions
        return [(peer.smem, Space.SHARED, peer.index, addresses & 0xFFFFFF, where)]
    found: list[tuple[Target, Space, int, Any, Any]] = []
    for rank in np.unique(ranks):
        chosen = np.flatnonzero(ranks == rank)
        peer, _ = cta.peer(int(addresses[chosen[0]]))
        where = chosen if positions is None else positions[chosen]
        found.append((peer.smem, Space.SHARED, peer.index, addresses[chosen] & 0xFFFFFF, where))
    return found


@runtime
def load_lanes(
    F: "Fragment", space: str, addresses: Any, size: int, mask: int, line: int, semantics: str
) -> Any:
    """One element per active lane: unsigned, shape (32,), 0 in inactive lanes."""
    return _load(F, space, addresses, size, 1, mask, line, semantics)[0]


@runtime
def load_lanes_vector(
    F: "Fragment", space: str, addresses: Any, size: int, count: int, mask: int, line: int,
    semantics: str,
) -> Any:  # fmt: skip
    """`count` consecutive elements per active lane, shape (count, 32)."""
    return _load(F, space, addresses, size, count, mask, line, semantics)


def _load(
    F: "Fragment", space: str, addresses: Any, size: int, count: int, mask: int, line: int,
    semantics: str,
) -> Any:  # fmt: skip
    mask &= F.mask
    lanes = lane_indices(mask)
    found = np.zeros((count, 32), UNSIGNED[8 * size]) if mask != FULL else None
    if not mask:
        return found
    wide = addresses.astype(np.int64) if mask == FULL else addresses[lanes].astype(np.int64)
    parts = parts_of(F, space, wide, lanes, size * count)
    values: Any = None
    for target, where, owner, inner, positions in parts:
        if count == 1:
            some = target.load(inner, size)[None]
        else:
            check_lanes(inner, size * count)
            some = target.load_vector(inner, size, count)
        if len(parts) == 1:
            values = some
        else:
            if values is None:
                values = np.empty((count, len(lanes)), UNSIGNED[8 * size])
            values[:, positions] = some
        if F.observer is not None:
            chosen = lanes[positions]
            part_mask = mask if len(chosen) == len(lanes) else sum(1 << int(i) for i in chosen)
            report(
                F, AccessKind.READ, where, owner, inner, size * count, line, semantics, part_mask
            )
    if found is None:
        return values
    found[:, lanes] = values
    return found


def check_lanes(addresses: Any, nbytes: int) -> None:
    """Vectors are aligned as a whole, in every lane.

    Raises: MisalignedError.
    """
    if int(np.bitwise_or.reduce(addresses)) & (nbytes - 1):
        check_vector(int(addresses[(addresses & (nbytes - 1)) != 0][0]), nbytes)


@runtime
def store_lanes(
    F: "Fragment", space: str, addresses: Any, values: Any, size: int, mask: int, line: int,
    semantics: str,
) -> None:  # fmt: skip
    """Store one or more elements per active lane; `values` broadcasts to (count, 32)."""
    mask &= F.mask
    if not mask:
        return
    F.machine.epoch += 1
    lanes = lane_indices(mask)
    if values.ndim == 1:
        values = values[None]
    if values.shape[1] != 32:
        values = np.broadcast_to(values, (len(values), 32))
    count = len(values)
    if mask == FULL:
        wide = addresses.astype(np.int64)
    else:
        wide = addresses[lanes].astype(np.int64)
        values = values[:, lanes]
    if values.dtype.itemsize != size:
        values = values.astype(UNSIGNED[8 * size])
    for target, where, owner, inner, positions in parts_of(F, space, wide, lanes, size * count):
        some = values[:, positions]
        if count == 1:
            target.store(inner, some[0], size)
        else:
            check_lanes(inner, size * count)
            target.store_vector(inner, some, size)
        if F.observer is not None:
            chosen = lanes[positions]
            part_mask = mask if len(chosen) == len(lanes) else sum(1 << int(i) for i in chosen)
            report(
                F, AccessKind.WRITE, where, owner, inner, size * count, line, semantics, part_mask
            )
