"""The buffers of a problem, dense or grouped, as a launch describes them."""

from ptxgen.dtypes import dtype
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.launch import Buffer
from ptxgen.problem import MICRO_SCALES, Gemm
from ptxgen.scale_tiles import packed_scale_bytes


def operand_buffers(problem: Gemm | GroupedGemm) -> tuple[Buffer, ...]:
    """A, B and D, the sizes of groups where the device counts them, and the scales if any."""
    adds = isinstance(problem, GroupedGemm) and problem.mode == "kgrouped"
    buffers = [
        Buffer("a", problem.extent_bytes("a"), "in", f"random:{problem.a}:0"),
        Buffer("b", problem.extent_bytes("b"), "in", f"random:{problem.b}:1"),
        Buffer("d", problem.extent_bytes("d"), *(("inout", "zeros") if adds else ("out",))),
    ]
    if isinstance(problem, GroupedGemm) and problem.mode != "batched":
        nbytes = problem.sizes_length * problem.index_bits // 8
        buffers.append(Buffer("sizes", nbytes, "in", "zeros"))
    if problem.scale != "none":
        fills = (
            ("zeros", "zeros")
            if problem.scale in MICRO_SCALES or getattr(problem, "scale_format", "f32") != "f32"
            else ("random:f32:2", "random:f32:3")
        )
        for name, fill in zip(("scale_a", "scale_b"), fills, strict=True):
            buffers.append(Buffer(name, _scale_bytes(problem, name), "in", fill))
    if isinstance(problem, Gemm):
        buffers += _epilogue_buffers(problem)
    return tuple(buffers)


def _epilogue_buffers(problem: Gemm) -> list[Buffer]:
    """What the epilogue of a dense problem reads and writes beside D."""
    epilogue, buffers = problem.epilogue, []
    if epilogue.c != "none":
        buffers.append(Buffer("c", problem.extent_bytes("c"), "in", f"random:{epilogue.c}:4"))
    if epilogue.bias != "none":
        nbytes = problem.bias_length * dtype(epilogue.bias_dtype).bytes
        buffers.append(Buffer("bias", nbytes, "in", f"random:{epilogue.bias_dtype}:5"))
    if epilogue.amax:
        buffers.append(Buffer("amax", 4, "inout", "zeros"))
    if epilogue.d_scale != "none":
        role = "out" if epilogue.d_scale == "group" else "in"
        fill = "poison" if role == "out" else "random:f32:6"
        buffers.append(Buffer("d_scale", 4 * problem.d_scale_length, role, fill))
    return buffers


def _scale_bytes(problem: Gemm | GroupedGemm, name: str) -> int:
    if isinstance(problem, GroupedGemm):
        return 4 * problem.scale_length(name)
    if problem.scale in MICRO_SCALES:
        return packed_scale_bytes(*getattr(problem, f"{name}_shape"))
    return problem.scale_bytes * int(getattr(problem, f"{name}_length"))
