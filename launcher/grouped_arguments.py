"""Checks of the arguments of `grouped_gemm`: what each array must be, said with its name."""

from dataclasses import dataclass

from ptxgen.errors import ArgumentError
from ptxgen.grouped_problem import MAX_COORDINATE, GroupedGemm
from ptxgen.launcher.arrays import Operand, overlaps
from ptxgen.launcher.gemm_arguments import MAX_ALIGNMENT, check_address
from ptxgen.launcher.scale_arguments import MAX_STRIDE_BYTES


@dataclass(frozen=True)
class Stack:
    """Matrices one after another, as a kernel reads them."""

    operand: Operand
    stride: int
    """Elements from one row to the next in device memory."""
    group_stride: int
    """Elements from one matrix to the next."""
    alignment: int


def sizes_hint(problem: GroupedGemm, got: int) -> str:
    """What makes `got` sizes into as many as the problem has."""
    if problem.sizes_length == problem.groups + 1 == got + 1:
        return "offsets: numpy.concatenate([[0], numpy.cumsum(sizes)])"
    if problem.sizes_length == problem.groups == got - 1:
        return "sizes[1:]" if problem.mode == "contiguous" else "counts: numpy.diff(sizes)"
    if problem.index == "rows" and got == problem.groups:
        return "numpy.repeat(numpy.arange(groups), sizes), the group of each row"
    return "one for each group" + " and the end" * (problem.sizes_length > problem.groups)


def check_sizes(sizes: Operand | None, mode: str) -> int:
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
    check_address(sizes, "sizes")
    if sizes.size > 1 and sizes.strides_bytes[0] != sizes.itemsize:
        raise ArgumentError("sizes: must be contiguous; try a copy")
    if sizes.host is not None:
        wrong = [int(x) for x in (sizes.host.min(initial=0), sizes.host.max(initial=0))
                 if not -MAX_COORDINATE <= x < MAX_COORDINATE]  # fmt: skip
        if wrong:
            raise ArgumentError(
                f"sizes: must be from -2^31 to 2^31 - 1, of which kernels read 32 bits, got "
                f"{wrong[0]}; try numpy.clip(sizes, -1, 2**31 - 1)"
            )
    return 8 * sizes.itemsize


def read_stack(x: Operand, name: str) -> Stack:
    """Strides of a matrix or a stack of them.

    Raises: ArgumentError if elements of a row are not side by side, or strides are not usable.
    """
    check_address(x, name)
    rank = len(x.shape)
    strides = [s // x.itemsize for s in x.strides_bytes]
    if x.host is not None:
        dense = x.shape[-1] + -x.shape[-1] % (16 // x.itemsize)
        return Stack(x, max(dense, 1), max(dense * x.shape[-2], 1), MAX_ALIGNMENT)
    whole = not any(s % x.itemsize for s in x.strides_bytes)
    if x.size and (not whole or strides[-1] != 1 or any(s < 1 for s in strides)):
        raise ArgumentError(
            f"{name}: the last axis must be contiguous and strides positive, whole elements of "
            f"{x.itemsize} bytes, got {x.strides_bytes} bytes for shape {x.shape}; try a copy"
        )
    row = strides[-2] if x.shape[-2] > 1 else max(x.shape[-1], 1)
    row += -row % (16 // x.itemsize) if x.shape[-2] == 1 else 0
    group = strides[0] if rank == 3 and x.shape[0] > 1 else row * max(x.shape[-2], 1)
    return Stack(x, row, group, min(MAX_ALIGNMENT, x.pointer & -x.pointer or MAX_ALIGNMENT))


def scale_kind(operands: dict[str, Operand]) -> str:
    """What the shapes of the scales say."""
    if "scale_a" not in operands or "scale_b" not in operands:
        return "none"
    a, b = operands["scale_a"], operands["scale_b"]
    if a.size == 1 and len(b.shape) <= 1:
        return "tensor"
    x, w = operands["a"], operands["b"]
    if len(a.shape) < len(x.shape):
        return "rowcol"
    return "group" if b.shape[-2:-1] == w.shape[-2:-1] else "block"


def scale_strides(operands: dict[str, Operand], name: str, kind: str) -> tuple[int, int, int]:
    """Elements from one matrix, row and block of K of a scale to the next; zeros = dense.

    Raises: ArgumentError if the kernels cannot step by them.
    """
    x = operands.get(name)
    if x is None or x.host is not None:
        return (0, 0, 0)
    strides = [s // x.itemsize for s in x.strides_bytes]
    for axis, (extent, stride) in enumerate(zip(x.shape, x.strides_bytes, strict=True)):
        if extent > 1 and (stride < 0 or stride % x.itemsize):
            raise ArgumentError(
                f"{name}: strides must not be negative, and whole elements of {x.itemsize} bytes, "
                f"got {stride} bytes of axis {axis}; try a copy"
            )
    steps = [s for n, s in zip(x.shape, strides, strict=True) if n != 1]
    if kind == "tensor":
        matrix, row, block = 0 if name == "scale_a" or not steps else steps[0], 0, 0
    elif kind == "rowcol":
        matrix, row, block = strides[0] if len(strides) == 2 else 0, 1, 0
    else:
        matrix, row, block = [0, 0, 0, *strides][-3:]
    if steps and not any((*steps, matrix, row, block)):
        raise ArgumentError(
            f"{name}: must not be one element for all of {x.shape} (a broadcast view); try a copy"
        )
    if max(row, block) * x.itemsize > MAX_STRIDE_BYTES:
        raise ArgumentError(
            f"{name}: strides of rows and blocks must be at most {MAX_STRIDE_BYTES} bytes, got "
            f"{max(row, block) * x.itemsize}; try a copy"
        )
    return matrix, row, block


def check_scales(operands: dict[str, Operand], problem: GroupedGemm) -> None:
    """Raises: ArgumentError if a scale has another dtype or shape than the problem's."""
    for name in ("scale_a", "scale_b"):
        x = operands.get(name)
        if x is None:
            continue
        if x.dtype != "f32":
            raise ArgumentError(
                f"{name}: dtype must be f32, got {x.dtype}; try {name}.astype('float32')"
            )
        check_address(x, name)
        expected = problem.scale_shape(name)
        allowed = {expected, expected[1:]} if expected[0] == 1 else {expected}
        is_vector = sum(extent != 1 for extent in x.shape) <= 1
        fits = problem.scale == "tensor" and is_vector and x.size == expected[0]
        if x.shape not in allowed and not fits:
            hint = "alignment=128" if problem.has_block_gaps else "another scale, or reshape"
            raise ArgumentError(
                f"{name}: must have shape {expected} for scale={problem.scale}, got {x.shape}; "
                f"try {hint}"
            )
        rowcol = problem.scale == "rowcol"
        if rowcol and x.size and x.host is None and x.strides_bytes[-1] != x.itemsize:
            raise ArgumentError(f"{name}: rows must be contiguous; try a copy")


def check_out(out: Operand, d: str, inputs: dict[str, Operand]) -> None:
    """Raises: ArgumentError if D cannot be written to `out`, whose shape is right."""
    if out.dtype != d:
        raise ArgumentError(f"out: dtype must be {d}, got {out.dtype}; try d_dtype={out.dtype!r}")
    if out.readonly:
        raise ArgumentError("out: must be writable, got a read-only array; try a copy")
    if out.host is not None and _overlaps_itself(out):
        raise ArgumentError(
            f"out: must not overlap itself, got strides of {out.strides_bytes} bytes for shape "
            f"{out.shape}; try a copy"
        )
    for name, x in inputs.items():
        if overlaps(out, x):
            raise ArgumentError(f"out overlaps {name}; try a separate output")


def _overlaps_itself(x: Operand) -> bool:
    """Whether a step along an axis does not pass all that shorter steps reach. No view of a numpy
    array made by slices and transposition is so."""
    reached = x.itemsize
    axes = zip(x.strides_bytes, x.shape, strict=True)
    for stride, extent in sorted((abs(s), n) for s, n in axes if n > 1):
        if stride < reached:
            return bool(x.size)
        reached += (extent - 1) * stride
    return False
