"""Operands of tcgen05.mma: A and B as values, and block scales, from shared and tensor memory.

Source: PTX ISA 9.0, "tcgen05.mma"; CUTLASS 4.7, cute/atom/mma_traits_sm100.hpp (what each CTA of a
pair holds) and cutlass/detail/sm100_blockscaled_layout.hpp (scales).
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.formats import decode, decode_table, unpack_codes
from ptxgen.emulator.instruction_descriptor import InstructionDescriptor
from ptxgen.emulator.matrix_descriptor import MatrixDescriptor, gather_operand
from ptxgen.emulator.memory import SharedMemory
from ptxgen.emulator.tmem import TensorMemory, lane_of
from ptxgen.errors import EmulationError

Values = NDArray[Any]

_CONTAINER_BYTES = {"f16": 2, "bf16": 2, "tf32": 4}
"""Bytes of one element in shared and tensor memory; every other type: see `_codes_to_values`."""


class Cta(Protocol):
    """What an instruction needs of each CTA of its group."""

    @property
    def smem(self) -> SharedMemory: ...
    @property
    def tmem(self) -> TensorMemory: ...


def operand_from_smem(
    d: InstructionDescriptor, matrix: MatrixDescriptor, ctas: Sequence[Cta], of_a: bool
) -> Values:
    """A (m, k) or B (n, k) as values: every CTA holds its share of the rows at one address.

    Raises: OutOfBoundsError, EmulationError (layout that the majorness forbids).
    """
    name = d.a_type if of_a else d.b_type
    mn_major = d.mn_major_a if of_a else d.mn_major_b
    if mn_major and (matrix.swizzle == "128B_ATOM_32B") != (name == "tf32"):
        raise EmulationError(
            f"MN-major {name} operands {'need' if name == 'tf32' else 'cannot have'} the layout "
            f"128B with 32-byte atoms, got {matrix.swizzle}"
        )
    if matrix.leading_is_absolute:
        raise EmulationError("absolute leading dimension addresses (K = 96) are not emulated")
    size = _CONTAINER_BYTES.get(name, 1)
    rows = (d.m if of_a else d.n) // len(ctas)
    parts = [
        gather_operand(matrix, cta.smem, rows, 32 // size, size, mn_major=mn_major) for cta in ctas
    ]
    raw = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return _codes_to_values(d, name, raw, in_smem=True)


def operand_from_tmem(
    d: InstructionDescriptor, address: int, ctas: Sequence[Cta], lanes: NDArray[np.intp]
) -> Values:
    """A (m, k) from tensor memory; `lanes` of the rows in each CTA, relative to the address.

    Raises: OutOfBoundsError.
    """
    column = address & 0xFFFF
    parts = []
    for cta in ctas:
        cta.tmem.require(column, column + 8, "the A operand of tcgen05.mma")
        words = cta.tmem.cells[lanes + lane_of(address), column : column + 8]
        parts.append(np.ascontiguousarray(words))
    raw = np.concatenate(parts)
    size = _CONTAINER_BYTES.get(d.a_type, 1)
    dtype: Any = {1: np.uint8, 2: np.uint16, 4: np.uint32}[size]
    return _codes_to_values(d, d.a_type, raw.view(dtype), in_smem=False)


def scale_values(
    tmem: TensorMemory, address: int, rows: int, byte_id: int, blocks: int, scale_type: str
) -> Values:
    """Scales as each lane quarter sees them, shape (4, rows, blocks).

    Row r lies in lane r % 32 of every quarter, word column r // 32, one byte per block.
    Raises: OutOfBoundsError.
    """
    if byte_id + blocks > 4:
        raise EmulationError(
            f"scale selector {byte_id} with {blocks} scales per row leaves its word; it must be 0 "
            "or 2 for 2 scales and 0 for 4"
        )
    column, count = address & 0xFFFF, -(-rows // 32)
    tmem.require(column, column + count, "the scales of tcgen05.mma")
    words = np.ascontiguousarray(tmem.cells[:, column : column + count]).view(np.uint8)
    # axes: quarter, lane in it, row group, byte
    found = words.reshape(4, 32, count, 4).transpose(0, 2, 1, 3).reshape(4, -1, 4)[:, :rows]
    return decode_table(scale_type).take(found[:, :, byte_id : byte_id + blocks])


def _codes_to_values(d: InstructionDescriptor, name: str, raw: Values, in_smem: bool) -> Values:
    """Values of containers: (rows, 32 bytes' worth) -> (rows, k)."""
    if d.kind in ("mxf4", "mxf4nvf4"):
        return decode_table("e2m1").take(unpack_codes(raw, 4))
    if name in ("u8", "s8"):
        return (raw.view(np.int8) if name == "s8" else raw).astype(np.float32)
    if name in ("e2m3", "e3m2", "e2m1"):
        if in_smem:
            bits = 4 if name == "e2m1" else 6
            # 16 elements occupy a 16-byte slot, packed at its start
            slots = raw.reshape(len(raw), 2, 16)[:, :, : 2 * bits]
            codes = unpack_codes(np.ascontiguousarray(slots), bits).reshape(len(raw), 32)
        else:
            codes = np.asarray(raw >> 2 & 15 if name == "e2m1" else raw & 63, np.uint8)
        return decode_table(name).take(codes)
    return decode(name, raw)
