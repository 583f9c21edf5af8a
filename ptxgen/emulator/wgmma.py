"""wgmma.mma_async for one warpgroup: which instruction, its fragments, its result.

Registers of a warpgroup are arrays of shape (registers, 128) of uint32, thread t of the warpgroup
in column t. Source: PTX ISA 9.0, "Asynchronous Warpgroup Level Matrix Instructions".
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.formats import decode, f32_to_f16
from ptxgen.emulator.matrix_descriptor import decode_sm90, gather_operand, operand_chunks
from ptxgen.emulator.memory import SharedMemory
from ptxgen.emulator.numerics import fused_dot, fused_model
from ptxgen.emulator.products import product
from ptxgen.emulator.wgmma_sparse import Places, dense_rows, places_of, sparse_dot
from ptxgen.errors import UnknownInstructionError

Registers = NDArray[np.uint32]
"""Shape (registers, 128)."""

ELEMENT_BYTES = {
    "f16": 2, "bf16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1, "b1": 1,
}  # fmt: skip
"""Bytes of one element; 1 for b1, whose bits travel eight to a byte."""
_FP8 = ("e4m3", "e5m2")
_INT8 = ("s8", "u8")


@dataclass(frozen=True)
class Wgmma:
    """One wgmma.mma_async instruction, without its run-time operands. M is 64."""

    n: int
    k: int
    """Elements, 32 bytes of them; 64 of a sparse one."""
    d_type: str
    a_type: str
    b_type: str
    a_in_registers: bool
    negate_a: bool = False
    negate_b: bool = False
    mn_major_a: bool = False
    mn_major_b: bool = False
    saturate: bool = False
    """.satfinite: clamp the s32 sum instead of wrapping."""
    sparse: bool = False
    """.sp: A has half of its elements, and metadata; k is still that of B."""
    selector: int = 0
    """sp-sel: which pair of threads of each quad supplies the metadata."""

    @property
    def accumulator_registers(self) -> int:
        """32-bit registers of D per thread."""
        return self.n // 4 if self.d_type == "f16" else self.n // 2


def parse_wgmma(
    qualifiers: Sequence[str], immediates: Sequence[int], a_in_registers: bool, selector: int = 0
) -> Wgmma:
    """The instruction with these dot-separated `qualifiers` (those after mma_async suffice) and the
    immediates after scale-d: imm-scale-a, imm-scale-b, imm-trans-a, imm-trans-b as far as it has
    them. `selector` is sp-sel.

    Raises: UnknownInstructionError for forms that do not exist.
    """
    text = ".".join(qualifiers)
    sparse = "sp" in qualifiers
    found = re.search(r"m64n(\d+)k(\d+)\.(?:satfinite\.)?(\w+)\.(\w+)\.(\w+)", text)
    if found is None:
        raise UnknownInstructionError(f"wgmma.{text} has no shape m64nNkK.D.A.B")
    n, k, (d, a, b) = int(found[1]), int(found[2]), found.groups()[2:]
    _check_types(text, n, k // 2 if sparse else k, d, a, b)
    if sparse and (a == "b1" or selector not in ((0, 1) if ELEMENT_BYTES[a] > 1 else (0,))):
        raise UnknownInstructionError(f"wgmma.{text} does not exist with sp-sel {selector}")
    scales = list(immediates[:2])
    majors = list(immediates[2:])
    wanted = _wanted_immediates(a, a_in_registers)
    if len(immediates) != wanted or any(s not in (1, -1) for s in scales):
        raise UnknownInstructionError(
            f"wgmma.{text} takes {wanted} immediates after scale-d (scales 1 or -1), "
            f"got {list(immediates)}"
        )
    if a_in_registers and majors:
        majors = [0, *majors]
    scales += [1] * (2 - len(scales))
    majors += [0] * (2 - len(majors))
    return Wgmma(
        n, k, d, a, b, a_in_registers, scales[0] < 0, scales[1] < 0, bool(majors[0]),
        bool(majors[1]), "satfinite" in qualifiers, sparse, selector,
    )  # fmt: skip


def execute_wgmma(
    instruction: Wgmma,
    accumulators: Registers,
    a: int | Registers,
    b: int,
    smem: SharedMemory,
    *,
    accumulate: bool,
    exact: bool = False,
    metadata: NDArray[np.uint32] | None = None,
) -> Registers:
    """The accumulator registers after the instruction, shape as `accumulators`.

    `a` is a matrix descriptor, or the four A registers (4, 128); `b` a descriptor; `accumulate` is
    scale-d. `exact` follows the tensor core bit for bit, else float32 sums in BLAS order.
    `metadata` (128,) is that of a sparse instruction.
    Raises: OutOfBoundsError, EmulationError (descriptor bits).
    """
    op = instruction
    a_bits = _read_a(op, a, smem)
    b_bits = gather_operand(
        decode_sm90(b), smem, op.n, _units_of_b(op), ELEMENT_BYTES[op.b_type],
        mn_major=op.mn_major_b,
    )  # fmt: skip
    places = None
    if metadata is not None:
        places = places_of(metadata, op.selector, ELEMENT_BYTES[op.a_type])
    if op.d_type == "s32":
        return _integer(op, accumulators, a_bits, b_bits, accumulate, places)
    a_values, b_values = decode(op.a_type, a_bits), decode(op.b_type, b_bits)
    if op.negate_a:
        a_values = -a_values
    if op.negate_b:
        b_values = -b_values
    if exact or places is not None:
        c = _values(op, accumulators) if accumulate else np.zeros((64, op.n), np.float32)
        model = fused_model("wgmma", op.a_type, op.d_type)
        if places is not None:
            types = op.a_type, op.b_type
            d = sparse_dot(a_values, b_values, c, places, model if exact else None, types)
            return _registers(op, d)
        d = fused_dot(a_values, b_values, c, model, op.a_type, op.b_type)
        return _registers(op, d)
    with np.errstate(over="ignore", invalid="ignore"):
        d = product(a_values, b_values)
        if not accumulate:
            return _registers(op, d)
        if op.d_type == "f16":
            return _registers(op, d + _values(op, accumulators))
        # adding in register order saves one transposition
        total = matrix_to_registers(d.view(np.uint32)).view(np.float32)
        total += np.ascontiguousarray(accumulators).view(np.float32)
    return total.view(np.uint32)


def accumulator_values(instruction: Wgmma, registers: Registers) -> NDArray[Any]:
    """Accumulator registers (n, 128) as the numbers of D, shape (64, N)."""
    if instruction.d_type == "s32":
        return np.ascontiguousarray(registers_to_matrix(registers)).view(np.int32)
    return _values(instruction, registers)


def wgmma_reads(instruction: Wgmma, a: int | None, b: int, smem: SharedMemory) -> NDArray[np.int64]:
    """Offsets of the 16-byte pieces of shared memory that the instruction reads.

    `a` is its descriptor, None when A comes from registers. Raises: OutOfBoundsError.
    """
    op = instruction
    pieces = operand_chunks(
        decode_sm90(b), smem, op.n, _units_of_b(op), ELEMENT_BYTES[op.b_type],
        mn_major=op.mn_major_b,
    )  # fmt: skip
    if a is not None:
        of_a = operand_chunks(
            decode_sm90(a), smem, 64, _units(op, op.a_type), ELEMENT_BYTES[op.a_type],
            mn_major=op.mn_major_a,
        )  # fmt: skip
        pieces = np.concatenate([of_a, pieces])
    return pieces * 16


# Thread t = 32 w + 4 g + q of the warpgroup; a 32-bit register of D holds element
# (16 w + g + 8 h, 8 j + 2 q + b), register index 4 j + 2 h + b. Fragments are therefore
# transpositions of the axes (j, h, b, w, g, q).


def registers_to_matrix(registers: Registers) -> Registers:
    """D as 32-bit elements, (N / 2, 128) -> (64, N)."""
    parts = registers.reshape(-1, 2, 2, 4, 8, 4)
    return parts.transpose(3, 1, 4, 0, 5, 2).reshape(64, -1)


def matrix_to_registers(matrix: Registers) -> Registers:
    """The inverse of registers_to_matrix."""
    parts = matrix.reshape(4, 2, 8, -1, 4, 2)
    return parts.transpose(3, 1, 5, 0, 2, 4).reshape(-1, 128)


def halves_to_matrix(registers: Registers) -> NDArray[np.uint16]:
    """D as 16-bit elements, (N / 4, 128) -> (64, N); the low half is the even column."""
    parts = np.ascontiguousarray(registers).view(np.uint16).reshape(-1, 2, 4, 8, 4, 2)
    return parts.transpose(2, 1, 3, 0, 4, 5).reshape(64, -1)


def matrix_to_halves(matrix: NDArray[np.uint16]) -> Registers:
    """The inverse of halves_to_matrix."""
    parts = matrix.reshape(4, 2, 8, -1, 4, 2).transpose(3, 1, 0, 2, 4, 5)
    return np.ascontiguousarray(parts).view(np.uint32).reshape(-1, 128)


def a_registers_to_bytes(registers: Registers) -> NDArray[np.uint8]:
    """A from registers, (4, 128) -> 32 bytes of each of 64 rows, whatever the type.

    Register 2 c + h of a thread holds bytes 16 c + 4 q .. + 3 of row 16 w + g + 8 h.
    """
    parts = np.ascontiguousarray(registers).view(np.uint8).reshape(2, 2, 4, 8, 4, 4)
    return parts.transpose(2, 1, 3, 0, 4, 5).reshape(64, 32)


def bytes_to_a_registers(matrix: NDArray[np.uint8]) -> Registers:
    """The inverse of a_registers_to_bytes."""
    parts = matrix.reshape(4, 2, 8, 2, 4, 4).transpose(3, 1, 0, 2, 4, 5)
    return np.ascontiguousarray(parts).view(np.uint32).reshape(4, 128)


def _read_a(op: Wgmma, a: int | Registers, smem: SharedMemory) -> NDArray[Any]:
    size = ELEMENT_BYTES[op.a_type]
    if isinstance(a, np.ndarray):
        dtype: Any = {1: np.uint8, 2: np.uint16, 4: np.uint32}[size]
        return a_registers_to_bytes(a).view(dtype)
    return gather_operand(
        decode_sm90(int(a)), smem, 64, _units(op, op.a_type), size, mn_major=op.mn_major_a
    )


def _units(op: Wgmma, type_name: str) -> int:
    return 32 // ELEMENT_BYTES[type_name]


def _units_of_b(op: Wgmma) -> int:
    return _units(op, op.b_type) * (2 if op.sparse else 1)


def _values(op: Wgmma, accumulators: Registers) -> NDArray[np.float32]:
    if op.d_type == "f16":
        return halves_to_matrix(accumulators).view(np.float16).astype(np.float32)
    return np.ascontiguousarray(registers_to_matrix(accumulators)).view(np.float32)


def _registers(op: Wgmma, d: NDArray[np.float32]) -> Registers:
    if op.d_type == "f16":
        return matrix_to_halves(f32_to_f16(d))
    return matrix_to_registers(d.view(np.uint32))


def _integer(
    op: Wgmma, accumulators: Registers, a: NDArray[Any], b: NDArray[Any], accumulate: bool,
    places: Places | None,
) -> Registers:  # fmt: skip
    # |sum| <= 32 * 255 * 255 < 2^24, so float32 products and sums are exact
    if op.a_type == "b1":
        left, right = (np.unpackbits(x, axis=1).astype(np.float32) for x in (a, b))
    else:
        left, right = (
            (x.view(np.int8) if t == "s8" else x).astype(np.float32)
            for x, t in ((a, op.a_type), (b, op.b_type))
        )
    if places is not None:
        left = dense_rows(left, places, right.shape[1])
    total = product(left, right).astype(np.int64)
    if accumulate:
        total += np.ascontiguousarray(registers_to_matrix(accumulators)).view(np.int32)
    if op.saturate:
        np.clip(total, -(2**31), 2**31 - 1, out=total)
    return matrix_to_registers(total.astype(np.uint32))


def _wanted_immediates(a_type: str, a_in_registers: bool) -> int:
    if a_type in ("f16", "bf16"):
        return 3 if a_in_registers else 4
    return 2 if a_type in ("tf32", *_FP8) else 0


def _check_types(text: str, n: int, k: int, d: str, a: str, b: str) -> None:
    legal_d = {
        "f16": ("f16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "e4m3": ("f16", "f32"),
        "e5m2": ("f16", "f32"), "s8": ("s32",), "u8": ("s32",), "b1": ("s32",),
    }  # fmt: skip
    same_family = a == b or {a, b} <= set(_FP8) or {a, b} <= set(_INT8)
    legal_k = {"f16": 16, "bf16": 16, "tf32": 8, "b1": 256}.get(a, 32)
    legal_n = n % 8 == 0 and 8 <= n <= 256
    if d == "s32":
        legal_n = n in (8, 16, 24, 32) or (n % 16 == 0 and 48 <= n <= 256)
    if a not in legal_d or d not in legal_d[a] or not same_family or k != legal_k or not legal_n:
        raise UnknownInstructionError(
            f"wgmma.{text} does not exist: types {d}.{a}.{b}, k must be {legal_k}, n a legal "
            "multiple of 8 up to 256"
        )
