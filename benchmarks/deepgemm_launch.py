"""How DeepGEMM instantiates and launches its Hopper kernels, as text and as a Launch.

Source: DeepGEMM 54e2261, csrc/jit_kernels/impls/sm90_fp8_gemm_1d2d.hpp, sm90_fp8_gemm_1d1d.hpp,
sm90_bf16_gemm.hpp and runtime_utils.hpp. Buffers are called as ours: a, b, d, scale_a, scale_b;
`sizes` holds rows per group (kgrouped: K), or the group of every row (contiguous).
"""

from benchmarks.deepgemm_config import (
    FAMILIES,
    NUM_SMS,
    TENSOR_MAP_BYTES,
    WGMMA_M,
    Config,
    Problem,
    swizzle_bytes,
)
from ptxgen.benchmark.deepgemm import SCALE_ALIGNMENT
from ptxgen.launch import Buffer, Launch, Param, TensorMap
from ptxgen.layout import align_up
from ptxgen.problem import SCALE_BLOCK

LOAD_THREADS = 128
SWIZZLES = {16: "none", 32: "32B", 64: "64B", 128: "128B"}
MAPS_PER_CTA = 4
"""Tensor maps that a CTA of the kgrouped kernel has room for in global memory."""


def instantiation(problem: Problem, config: Config) -> str:
    """CUDA C++ that instantiates the kernel of a config."""
    family = FAMILIES[problem.family]
    sizes = [getattr(problem, x) if x in family.compiled_dims else 0 for x in "mnk"]
    tile = [problem.groups, config.block_m, config.block_n, family.block_k, 128, 128]
    d_swizzle = swizzle_bytes(config.block_n * family.d_bytes)
    threads = [config.stages, LOAD_THREADS, config.math_threads, config.cluster]
    on_a = "true" if config.cluster_n > 1 else "false"
    tail = [on_a, NUM_SMS, f"GemmType::{family.gemm_type}"]
    k_major = "cute::UMMA::Major::K"
    kernel, arguments = {
        "1d2d": ("fp8_gemm_1d2d", [
            k_major, *sizes, *tile, d_swizzle, *threads, *tail, "cutlass::bfloat16_t",
            "epilogue::transform::EpilogueIdentity"]),
        "1d1d": ("fp8_gemm_1d1d", [*sizes, *tile, *threads, *tail, "float"]),
        "bf16": ("bf16_gemm", [
            k_major, k_major, *sizes, *tile, d_swizzle, *threads, *tail, "false",
            "cutlass::bfloat16_t"]),
    }[family.kernel]  # fmt: skip
    listed = ", ".join(str(x) for x in arguments)
    return (
        f"#include <deep_gemm/impls/sm90_{kernel}.cuh>\n"
        "using namespace deep_gemm;\n"
        f"void* kernel = reinterpret_cast<void*>(&sm90_{kernel}_impl<{listed}>);\n"
    )


def describe(problem: Problem, config: Config, entry: str) -> Launch:
    """The launch of the kernel `entry` for a problem."""
    family = FAMILIES[problem.family]
    p, kgrouped = problem, problem.family == "kgrouped"
    rows = p.m * (p.groups if p.family == "masked" else 1)
    ab, block_k = family.ab_bytes, family.block_k
    operand = "bfloat16" if ab == 2 else "uint8"
    # The maps of kgrouped begin at the first group that is not empty; the kernel rewrites them.
    row = next((k for k in p.rows if k), 0) if kgrouped else p.k
    rows_b = p.n * (1 if kgrouped else p.groups)
    a = _matrix("a", operand, ab, (row, rows), (block_k, config.block_m), 128)
    b = _matrix("b", operand, ab, (row, rows_b), (block_k, config.block_n), 128)
    d_swizzle = swizzle_bytes(config.block_n * 2) if family.d_bytes == 2 else 0
    d_box = (config.block_n, WGMMA_M if family.kernel == "1d1d" else config.block_m)
    d_rows = p.m * p.groups if kgrouped else rows
    d = _matrix(
        "d", "bfloat16" if family.d_bytes == 2 else "float32", family.d_bytes, (p.n, d_rows),
        d_box, d_swizzle,
    )  # fmt: skip
    buffers = {
        "a": p.m * p.k * ab if kgrouped else rows * p.k * ab,
        "b": p.n * p.k * ab if kgrouped else rows_b * p.k * ab,
        "d": p.n * d_rows * family.d_bytes,
    }
    groups = p.groups if p.family == "masked" else 1
    blocks_k = sum(-(-k // SCALE_BLOCK) for k in p.rows) if kgrouped else -(-p.k // SCALE_BLOCK)
    if family.kernel != "bf16":
        buffers["scale_a"] = scale_extent(p.m) * blocks_k * groups * 4
        buffers["scale_b"] = (
            scale_extent(p.n) * blocks_k
            if kgrouped
            else -(-p.n // SCALE_BLOCK) * p.groups * blocks_k
        ) * 4
    if p.family != "fp8" and p.family != "bf16":
        buffers["sizes"] = 4 * (p.m if p.family == "contiguous" else p.groups)
    sizes = Param("grouped_layout", "pointer", "sizes" if "sizes" in buffers else None)
    shape = [Param(f"shape_{x}", "u32", getattr(p, x)) for x in "mnk"]
    scale_a = _scales("scale_a", p.m, blocks_k * groups, config.block_m)
    match family.kernel:
        case "1d2d":
            params = [Param("sfb", "pointer", "scale_b"), sizes, *shape, a, b, d, scale_a]
        case "bf16":
            params = [sizes, *shape, a, b, d]
        case _:
            buffers["maps"] = NUM_SMS * MAPS_PER_CTA * TENSOR_MAP_BYTES
            scale_b = _scales("scale_b", p.n, blocks_k, config.block_n)
            pointers = [Param("gmem_a", "pointer", "a"), Param("gmem_b", "pointer", "b"), sizes,
                        Param("tensor_map_buffer", "pointer", "maps")]  # fmt: skip
            params = [*pointers, *shape, a, b, scale_a, scale_b, d]
    written = {"d": "inout" if kgrouped else "out", "maps": "inout"}
    return Launch(
        entry,
        (NUM_SMS, 1, 1),
        (LOAD_THREADS + config.math_threads, 1, 1),
        (config.cluster, 1, 1),
        config.smem_bytes,
        tuple(params),
        tuple(Buffer(x, nbytes, written.get(x, "in")) for x, nbytes in buffers.items()),
    )


def scale_extent(rows: int) -> int:
    """Scales of one block of K, rows innermost."""
    return align_up(rows, SCALE_ALIGNMENT)


def _matrix(
    name: str, kind: str, element: int, dims: tuple[int, int], box: tuple[int, int], swizzle: int
) -> Param:
    """A map of a dense matrix; with a swizzle, a box is as wide as that."""
    width = swizzle // element if swizzle else box[0]
    described = TensorMap(
        name, 0, kind, dims, (dims[0] * element,), (width, box[1]), (),
        SWIZZLES[swizzle or 16], l2_promotion="256B",
    )  # fmt: skip
    return Param(f"tensor_map_{name}", "tensor_map", described)


def _scales(name: str, rows: int, blocks: int, block_rows: int) -> Param:
    return _matrix(name, "float32", 4, (scale_extent(rows), blocks), (block_rows, 1), 0)
