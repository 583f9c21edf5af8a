"""Which operands wgmma and TMA can take, and whether a config of gemm_sm90 serves a problem."""

from ptxgen.dtypes import dtype
from ptxgen.errors import ConfigError
from ptxgen.kernels.sm90_config import NAME, TARGET, Config
from ptxgen.layout import align_up
from ptxgen.problem import BLOCK_SCALES, FP8, MICRO_SCALES, Gemm


def static_fields(problem: Gemm) -> dict[str, str]:
    """The fields of a Config that the problem decides."""
    return {
        "a": problem.a,
        "b": problem.b,
        "d": problem.d,
        "layout": problem.layout,
        "scale": problem.scale,
        "accumulate": problem.accumulate,
    }


def check_formats(problem: Gemm) -> None:
    """Refuse the formats and layouts that wgmma does not have, and scales that do not fit them.

    Raises: ConfigError.
    """
    if problem.a not in ("bf16", "f16", *FP8) or problem.b not in ("bf16", "f16", *FP8):
        raise ConfigError(
            f"wgmma of {NAME} multiplies bf16, f16, e4m3 and e5m2, got a={problem.a} and "
            f"b={problem.b}; try arch=sm_100a"
        )
    if problem.a in FP8 and problem.layout != "nt":
        raise ConfigError(
            f"layout={problem.layout} with {problem.a} x {problem.b}: FP8 operands must be "
            "K-major, since wgmma transposes only 16-bit types; try layout=nt with A stored [M,K] "
            "and B stored [N,K]"
        )
    if problem.scale in MICRO_SCALES:
        raise ConfigError(
            f"scale={problem.scale} is applied by tcgen05, which {TARGET} lacks; must be none, "
            "tensor, rowcol, block or group; try arch=sm_100a"
        )
    if problem.scale in BLOCK_SCALES and problem.a not in FP8:
        raise ConfigError(
            f"scale={problem.scale} needs FP8 operands, got a={problem.a}; try scale=rowcol"
        )
    if problem.scale in BLOCK_SCALES and problem.accumulate != "promoted":
        raise ConfigError(
            f"scale={problem.scale} multiplies 128-K partial sums, so accumulate must be promoted, "
            f"got {problem.accumulate}; try accumulate=promoted"
        )


def d_fits_tma(problem: Gemm) -> bool:
    """Whether TMA can store D: base, row stride and row length are multiples of 16 bytes.

    The row length, because a TMA store clips at whole 16 bytes: with N = 63 bf16 it wrote two bytes
    of the gap behind each row. Measured on an H200 (tests/test_gemm_sm90.py has the case).
    """
    element_bytes = dtype(problem.d).bytes
    in_bytes = (problem.stride("d") * element_bytes, problem.n * element_bytes)
    return problem.d_alignment % 16 == 0 and not any(x % 16 for x in in_bytes)


def check_operands(problem: Gemm) -> None:
    """Refuse operands that wgmma or TMA cannot take, whatever the config.

    Raises: ConfigError.
    """
    check_formats(problem)
    for name in ("a", "b"):
        stride_bytes = problem.stride(name) * dtype(getattr(problem, name)).bytes
        alignment = getattr(problem, f"{name}_alignment")
        if not problem.k or not problem.extent_bytes(name):
            continue
        if alignment % 16:
            raise ConfigError(
                f"{name.upper()} starts at an address that is a multiple of {alignment} bytes "
                f"only; TMA needs a multiple of 16; try a copy of {name.upper()}"
            )
        if stride_bytes % 16:
            step = 16 // dtype(getattr(problem, name)).bytes
            raise ConfigError(
                f"{name.upper()} has a row stride of {problem.stride(name)} elements = "
                f"{stride_bytes} bytes; TMA needs a multiple of 16 bytes; try a padded copy with a "
                f"row stride of {align_up(problem.stride(name), step)} elements"
            )
        if stride_bytes >= 1 << 40:
            raise ConfigError(
                f"{name.upper()} has a row stride of {stride_bytes} bytes; TMA needs less than 2^40"
            )


def check_serves(problem: Gemm, config: Config) -> None:
    """Refuse a config that does not compute the problem.

    Raises: ConfigError.
    """
    check_operands(problem)
    for name, value in static_fields(problem).items():
        if getattr(config, name) != value:
            raise ConfigError(
                f"config has {name}={getattr(config, name)}, the problem has {name}={value}; "
                "they must agree"
            )
    if config.store != "global" and problem.m and problem.n and not d_fits_tma(problem):
        raise ConfigError(
            f"store={config.store} needs D at a multiple of 16 bytes, with a row stride and a row "
            "length of multiples of 16 bytes (a TMA store clips at whole 16 bytes), got an "
            f"alignment of {problem.d_alignment}, a stride of "
            f"{problem.stride('d') * dtype(problem.d).bytes} and a row of "
            f"{problem.n * dtype(problem.d).bytes} bytes; try store=global"
        )
