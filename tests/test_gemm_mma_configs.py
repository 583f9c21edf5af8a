"""Configurations of gemm_mma: the legal assemble cleanly, the illegal are refused by name."""

import itertools
from dataclasses import replace

import pytest
from config_samples import assemble_cleanly, covering_sample
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxgen.dtypes import dtype
from ptxgen.errors import ConfigError, ProblemError
from ptxgen.kernels import (
    gemm_mma,
    gemm_sm90,
    gemm_sm100,
    gemm_sm100_blockscaled,
    kernel_for,
)
from ptxgen.kernels.gemm_mma_config import TILE_K_BYTES, Config
from ptxgen.problem import FP8, LAYOUTS, Gemm
from ptxgen.ptx.forms import min_version
from ptxgen.ptx.parser import parse
from ptxgen.renderer import render
from ptxgen.warp_tiles import BANKS_BYTES, CHUNK_BYTES, WarpTile

CI_SAMPLE = 12


def corner_configs() -> list[Config]:
    """All legal configs of a grid whose ends are the ends of what may be chosen."""
    found = []
    for target, layout, (a, b), accumulate, copies, scale in itertools.product(
        gemm_mma.TARGETS, LAYOUTS, (("bf16", "bf16"), ("e4m3", "e5m2")), ("fast", "promoted"),
        ((16, 16), (4, 8), (2, 16), (2, 2), (1, 1)), ("none", "rowcol"),
    ):  # fmt: skip
        size = dtype(a).bytes
        config = Config(
            a, b, "bf16", layout, scale, accumulate, target,
            a_copy_bytes=max(size, copies[0]), b_copy_bytes=max(size, copies[1]),
        )  # fmt: skip
        for tile, warps, k_bytes, stages in itertools.product(
            ((16, 16), (16, 128), (64, 64), (128, 128), (128, 256), (256, 64)),
            ((1, 1), (1, 4), (2, 2), (2, 4), (4, 1)), TILE_K_BYTES, (3, 4),
        ):  # fmt: skip
            tuned = replace(
                config, tile_m=tile[0], tile_n=tile[1], tile_k=k_bytes // size, stages=stages,
                warps_m=warps[0], warps_n=warps[1],
            )  # fmt: skip
            try:
                tuned.check()
            except ConfigError:
                continue
            found.append(tuned)
    return found


def sample(count: int) -> list[Config]:
    """`count` configs, a quarter of them those with the fullest registers."""
    configs = corner_configs()
    fullest = sorted(configs, key=lambda c: -c.num_registers)[: count // 4]
    return covering_sample(configs, count, fullest)


def problem_of(config: Config) -> Gemm:
    return Gemm(0, 0, 0, config.a, config.b, config.d, config.layout, config.scale,
                config.accumulate)  # fmt: skip


def test_sample_of_corner_configs_assembles_without_spill_or_message() -> None:
    for config in sample(CI_SAMPLE):
        assemble_cleanly(gemm_mma.plan(problem_of(config), config))


@pytest.mark.slow
def test_many_corner_configs_assemble_without_spill_or_message() -> None:
    for config in sample(300):
        assemble_cleanly(gemm_mma.plan(problem_of(config), config))


def test_ptx_version_is_the_lowest_that_serves() -> None:
    for target in gemm_mma.TARGETS:
        for a in ("bf16", "e4m3"):
            if a in FP8 and target in ("sm_80", "sm_86"):
                continue
            problem = Gemm(64, 64, 64, a, a)
            plan = gemm_mma.plan(problem, gemm_mma.default_config(problem, target=target))
            lowest = min_version(parse(render(plan).text), target).version
            assert lowest == plan.version or (lowest == "7.8" and plan.version < lowest)


FIELDS = {
    "a": st.sampled_from(["e4m3", "e5m2", "bf16", "f16", "tf32", "s8"]),
    "b": st.sampled_from(["e4m3", "e5m2", "bf16", "f16", "tf32", "s8"]),
    "d": st.sampled_from(["bf16", "f16", "f32", "s32"]),
    "layout": st.sampled_from(LAYOUTS),
    "scale": st.sampled_from(["none", "tensor", "rowcol", "block"]),
    "accumulate": st.sampled_from(["fast", "promoted"]),
    "a_stride": st.integers(150, 170),
    "b_alignment": st.sampled_from([1, 2, 4, 8, 16, 256]),
}
SIZES = st.sampled_from([-1, 0, 1, 2, 3, 4, 8, 16, 32, 48, 64, 128, 256, 512])
NUMBERS = ("tile_m", "tile_n", "tile_k", "stages", "warps_m", "warps_n", "a_copy_bytes",
           "b_copy_bytes", "d_store_bytes", "ctas_per_sm")  # fmt: skip
TUNED = dict.fromkeys(NUMBERS, SIZES) | {"target": st.sampled_from([*gemm_mma.TARGETS, "sm_75"])}


@settings(max_examples=300, deadline=None)
@given(st.fixed_dictionaries(FIELDS), st.fixed_dictionaries({}, optional=TUNED))
def test_any_config_renders_or_is_refused_by_our_own_error(
    fields: dict[str, str], tuned: dict[str, int | str]
) -> None:
    try:
        problem = Gemm(100, 120, 144, **fields)  # type: ignore[arg-type]
        config = gemm_mma.default_config(problem, **tuned)
        text = render(gemm_mma.plan(problem, config)).text
    except (ConfigError, ProblemError):
        return
    assert text.startswith("//")


@pytest.mark.parametrize(
    ("fields", "tuned", "message"),
    [
        ({"a": "e4m3", "b": "e4m3"}, {"target": "sm_80"}, "mma.sync has FP8 from sm_89 on"),
        ({"a_stride": 129}, {"a_copy_bytes": 16}, "try a_copy_bytes=2"),
        ({"b_alignment": 8}, {"b_copy_bytes": 16}, "alignment of 8 .*; try b_copy_bytes=8"),
        ({"d_stride": 65}, {"d_store_bytes": 4}, "try d_store_bytes=2"),
        ({}, {"swizzle_bytes": 128}, "gemm_mma has no swizzle_bytes; must be one of a, b, d"),
        ({}, {"stages": 2}, "stages=2 must be one of 3, 4, 5, 6, 7, 8"),
        ({}, {"tile_m": 256, "tile_n": 256, "warps_m": 2, "warps_n": 2}, "registers per thread"),
        ({}, {"tile_m": 256, "tile_n": 128, "stages": 8, "warps_m": 4, "warps_n": 2,
              "target": "sm_86"}, "sm_86 has 101376 B; try stages<=4"),
        ({"scale": "block", "a": "e4m3", "b": "e4m3", "accumulate": "promoted"}, {},
         "gemm_mma has scale none, tensor, rowcol, got block"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_with_a_way_out(
    fields: dict[str, object], tuned: dict[str, int | str], message: str
) -> None:
    problem = Gemm(64, 64, 128, **fields)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=message):
        gemm_mma.plan(problem, gemm_mma.default_config(problem, **tuned))


@pytest.mark.parametrize(
    ("arch", "fields", "kernel"),
    [
        ("sm_90a", {}, gemm_sm90),
        ("sm_90a", {"a_stride": 129}, gemm_mma),
        ("sm_90a", {"b_alignment": 2}, gemm_mma),
        ("sm_90a", {"a": "e4m3", "b": "e4m3", "layout": "tn"}, gemm_mma),
        ("sm_100a", {}, gemm_sm100),
        ("sm_100a", {"a_stride": 129}, gemm_mma),
        ("sm_80", {}, gemm_mma),
    ],
)
def test_the_kernel_is_the_one_that_can_address_the_operands(
    arch: str, fields: dict[str, object], kernel: object
) -> None:
    assert kernel_for(Gemm(64, 64, 128, **fields), arch) is kernel  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arch", "problem", "message"),
    [
        ("sm_100a", Gemm(65, 33, 96, "e2m3", "e2m3"), "TMA needs a multiple of 128; try .* k=128"),
        ("sm_100a", Gemm(65, 33, 99, "s8", "s8"), "row stride of 99 .* try a padded copy .* 112"),
        ("sm_103a", Gemm(65, 33, 128, "s8", "s8"), "kind::i8, which sm_103a lacks.*try e4m3"),
        ("sm_90a", Gemm(65, 33, 128, "e2m3", "e2m3"), "wgmma .* got a=e2m3.*try arch=sm_100a"),
        ("sm_80", Gemm(65, 33, 128, "e4m3", "e4m3"), "mma.sync has FP8 from sm_89 on"),
        ("sm_120a", Gemm(65, 33, 33, "e2m3", "e2m3"), "multiple of 4; try .* k=48"),
        ("sm_120a", Gemm(65, 33, 36, "e2m1", "e2m3"), "must be a multiple of 8, 4 bytes; try"),
    ],
)  # fmt: skip
def test_operands_that_no_kernel_takes_are_refused_by_the_one_made_for_the_target(
    arch: str, problem: Gemm, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        kernel_for(problem, arch)


def test_lengths_of_rows_are_refused_before_strides_that_follow_from_them() -> None:
    problem = Gemm(65, 33, 1000, "e5m2", "e3m2", scale="mx128")
    with pytest.raises(ConfigError, match=r"B has rows of 1000 .* k=1024"):
        gemm_sm100_blockscaled.check_operands(problem)


def test_the_text_does_not_depend_on_sizes_and_strides() -> None:
    first = Gemm(64, 64, 128, a_stride=129)
    second = Gemm(65, 80, 96, a_stride=201, d_stride=90)
    config = gemm_mma.default_config(first)
    texts = {render(gemm_mma.plan(p, config)).text for p in (first, second)}
    assert len(texts) == 1


TILES = [
    WarpTile("a", dtype(kind), k_major, rows, k_bytes // dtype(kind).bytes, 16, 128, 1)
    for kind in ("bf16", "e4m3")
    for k_major in (True, False)
    for rows in (32, 64, 128, 256)
    for k_bytes in TILE_K_BYTES
]


def name_of(tile: WarpTile) -> str:
    return f"{tile.dtype}-{'k' if tile.k_major else 'mn'}-{tile.rows}x{tile.k}"


@pytest.mark.parametrize("tile", TILES, ids=name_of)
def test_every_byte_of_a_tile_is_copied_once(tile: WarpTile) -> None:
    places = []
    for thread in range(tile.threads):
        row, unit = divmod(thread, tile.units_per_row)
        chunk = unit ^ tile.chunk_flip(row)
        base = row * tile.pitch_bytes + chunk * CHUNK_BYTES
        places += [(base ^ c.place.flip) + c.place.offset for c in tile.copies]
    assert sorted(places) == list(range(0, tile.nbytes, CHUNK_BYTES))


@pytest.mark.parametrize("tile", [t for t in TILES if t.pitch_bytes >= 64], ids=name_of)
def test_rows_of_one_matrix_lie_in_different_banks(tile: WarpTile) -> None:
    rows = [0, 1, 4, 5, 8, 9, 12, 13] if tile.transposed_bytes else list(range(8))
    banks = {
        (row * tile.pitch_bytes + (tile.chunk_flip(row) * CHUNK_BYTES)) % BANKS_BYTES
        for row in rows
    }
    assert len(banks) == 8
