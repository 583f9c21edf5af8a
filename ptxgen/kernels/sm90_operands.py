"""Which operands wgmma and TMA can take, and whether a config of gemm_sm90 serves a problem."""

from ptxgen.dtypes import dtype
from ptxgen.errors import ConfigError
from ptxgen.kernels.agreement import check_agrees
from ptxgen.kernels.sm90_config import NAME, Config
from ptxgen.kernels.wgmma_config import TARGET
from ptxgen.operand_maps import check_d_fits_tma, check_operands_fit
from ptxgen.problem import BLOCK_SCALES, FP8, MICRO_SCALES, Gemm


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


def check_operands(problem: Gemm) -> None:
    """Refuse operands that wgmma or TMA cannot take, whatever the config.

    Raises: ConfigError.
    """
    check_formats(problem)
    check_operands_fit(problem)


def check_serves(problem: Gemm, config: Config) -> None:
    """Refuse a config that does not compute the problem.

    Raises: ConfigError.
    """
    check_operands(problem)
    check_agrees(problem, config)
    _check_c(problem)
    check_d_fits_tma(problem, config.store)
    if config.a_rows and problem.m > config.a_rows:
        raise ConfigError(
            f"a_rows={config.a_rows} is for problems with no more rows, got m={problem.m}; "
            "try a_rows=0"
        )


def _check_c(problem: Gemm) -> None:
    """Refuse a C whose elements cannot be read two at a time.

    Raises: ConfigError.
    """
    if problem.c == "none":
        return
    pair_bytes, stride = 2 * dtype(problem.c).bytes, problem.stride("c")
    if (problem.epilogue.c_alignment % pair_bytes or stride % 2) and problem.m and problem.n:
        raise ConfigError(
            f"C is read two elements at a time: its address must be a multiple of {pair_bytes} "
            f"bytes and its row stride even, got an alignment of {problem.epilogue.c_alignment} "
            f"and a stride of {stride}; try a padded copy of C"
        )
