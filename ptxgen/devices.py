"""Facts about GPU models, as data. Rates are published unless `source` says measured."""

from dataclasses import dataclass

from ptxgen.errors import ConfigError


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


# Source: NVIDIA data sheets of H100 SXM, H200 SXM, H20, B200 and B300 (dense rates).
GPU_MODELS: dict[str, GpuModel] = {
    g.name: g
    for g in (
        GpuModel("H200", "sm_90a", 132, 60 << 20, 4800.0, 1979.0, 989.0, "published"),
        GpuModel("H100", "sm_90a", 132, 50 << 20, 3350.0, 1979.0, 989.0, "published"),
        GpuModel("H20", "sm_90a", 78, 60 << 20, 4000.0, 296.0, 148.0, "published"),
        GpuModel("B200", "sm_100a", 148, 126 << 20, 8000.0, 4500.0, 2250.0, "published"),
        GpuModel("B300", "sm_103a", 148, 126 << 20, 8000.0, 4500.0, 2250.0, "published"),
    )
}


def gpu_model(name: str) -> GpuModel:
    """The model called `name`, or whose name is part of it ("NVIDIA H200").

    Raises: ConfigError if there is none.
    """
    for model in sorted(GPU_MODELS.values(), key=lambda g: -len(g.name)):
        if model.name in name:
            return model
    raise ConfigError(f"GPU model {name!r} is not known; must be one of {', '.join(GPU_MODELS)}")
