"""Facts about GPU models, as data. Rates are published unless `source` says measured."""

from dataclasses import dataclass

from ptxgen.errors import ConfigError, not_one_of


@dataclass(frozen=True)
class GpuModel:
    """One GPU model."""

    name: str
    arch: str
    num_sms: int
    l2_bytes: int
    dram_gbytes_per_s: float
    """DRAM bandwidth in 10^9 bytes per second."""
    fp8_tflops: float
    """Dense FP8 Tensor Core rate in 10^12 operations per second."""
    bf16_tflops: float
    """Dense BF16 Tensor Core rate in 10^12 operations per second."""
    source: str
    tf32_tflops: float = 0.0
    """Dense TF32 Tensor Core rate in 10^12 operations per second."""
    fp4_tflops: float = 0.0
    """Dense rate of block-scaled FP4 in 10^12 operations per second; 0 = there is none."""


# Source: NVIDIA data sheets of H100 SXM, H200 SXM, H20, HGX B200, HGX B300 and RTX PRO 6000
# Blackwell Workstation Edition (4000 "AI TOPS" are sparse FP4), dense rates.
GPU_MODELS: dict[str, GpuModel] = {
    g.name: g
    for g in (
        GpuModel("H200", "sm_90a", 132, 60 << 20, 4800.0, 1979.0, 989.0, "published", 494.5),
        GpuModel("H100", "sm_90a", 132, 50 << 20, 3350.0, 1979.0, 989.0, "published", 494.5),
        GpuModel("H20", "sm_90a", 78, 60 << 20, 4000.0, 296.0, 148.0, "published", 74.0),
        GpuModel("B200", "sm_100a", 148, 126 << 20, 8000.0, 4500.0, 2250.0, "published",
                 1125.0, 9000.0),
        GpuModel("B300", "sm_103a", 148, 126 << 20, 8000.0, 4500.0, 2250.0, "published",
                 1125.0, 13125.0),
        GpuModel("RTX PRO 6000", "sm_120a", 188, 128 << 20, 1792.0, 1000.0, 500.0, "published",
                 250.0, 2000.0),
    )
}  # fmt: skip


def gpu_model(name: str) -> GpuModel:
    """The model called `name`, or whose name is part of it ("NVIDIA H200").

    Raises: ConfigError if there is none.
    """
    for model in sorted(GPU_MODELS.values(), key=lambda g: -len(g.name)):
        if model.name in name:
            return model
    raise ConfigError(not_one_of("GPU model", name, GPU_MODELS))
