"""Swapping follows from the GPU's ratio of compute to bandwidth, not from rows alone."""

import json
from pathlib import Path

import pytest

from ptxgen.devices import gpu_model
from ptxgen.errors import ConfigError
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.kernels import grouped_sm90
from ptxgen.swap_selection import choose_swap, estimate

WEIGHTS = [(4096, 7168), (7168, 2048)]


def problem(n: int = 4096, k: int = 7168) -> GroupedGemm:
    return GroupedGemm("masked", 16, 4096, n, k, scale="block", accumulate="promoted")


@pytest.mark.parametrize(("n", "k"), WEIGHTS)
@pytest.mark.parametrize("rows", [8, 24, 32])
def test_few_rows_are_swapped_where_padded_wgmma_are_the_limit(rows: int, n: int, k: int) -> None:
    choice = choose_swap(problem(n, k), rows, "H20")
    assert choice.config.swap_ab
    assert choice.straight is not None
    assert choice.straight.bound == "compute"


@pytest.mark.parametrize("rows", [8, 32, 64])
def test_few_rows_are_bound_by_memory_on_an_h200_either_way(rows: int) -> None:
    choice = choose_swap(problem(), rows, "H200")
    assert choice.straight is not None
    assert choice.swapped is not None
    assert choice.straight.bound == choice.swapped.bound == "memory"


@pytest.mark.parametrize("swap_ab", ["on", "off"])
def test_an_explicit_wish_is_followed(swap_ab: str) -> None:
    choice = choose_swap(problem(), 64, "H200", swap_ab)
    assert choice.config.swap_ab == (swap_ab == "on")
    assert (choice.straight is None) == (swap_ab == "on")


@pytest.mark.parametrize("rows", range(8, 257, 8))
def test_auto_takes_the_better_estimate(rows: int) -> None:
    p = problem()
    choice = choose_swap(p, rows, "H200")
    best = min(e.seconds for e in (choice.straight, choice.swapped) if e is not None)
    gpu_seconds = [e for e in (choice.straight, choice.swapped) if e and e.config == choice.config]
    assert gpu_seconds[0].seconds == best


def test_chosen_fields_are_kept() -> None:
    choice = choose_swap(problem(), 40, "H100", "on", {"tile_m": 24, "tile_n": 64})
    assert (choice.config.tile_m, choice.config.tile_n) == (24, 64)


def test_what_no_config_serves_is_refused_with_a_reason() -> None:
    with pytest.raises(ConfigError, match="tile_n=100"):
        choose_swap(problem(), 40, "H100", "auto", {"tile_n": 100})


def test_estimates_grow_with_the_rows() -> None:
    from ptxgen.devices import gpu_model
    from ptxgen.kernels import grouped_sm90

    config = grouped_sm90.default_config(problem(), swap_ab=True, tile_m=64)
    times = [estimate(problem(), m, config, gpu_model("H200")).seconds for m in (8, 64, 256, 1024)]
    assert times == sorted(times)


MEASURED = Path(__file__).parent.parent / "benchmarks" / "results" / "h200-grouped-tiles.json"


@pytest.mark.parametrize(("n", "within"), [(4096, 1.02), (7168, 1.02), (2112, 1.06)])
def test_the_tile_that_the_model_prefers_is_near_the_best_one_measured(
    n: int, within: float
) -> None:
    runs = {run["name"]: run for run in json.loads(MEASURED.read_text())["runs"]}
    points: dict[int, list[tuple[float, float]]] = {}
    for row in runs["swap curve"]["rows"]:
        tile = row["config"]
        more_than_one = not tile.get("swap_ab") and row["rows"] > tile["tile_m"]
        if row["n"] != n or tile.get("tile_n") == 256 or more_than_one:
            continue  # not a candidate, or cut otherwise since
        of_point = GroupedGemm("masked", 16, 256, n, row["k"], scale="block", accumulate="promoted")
        config = grouped_sm90.default_config(of_point, **tile)
        predicted = estimate(of_point, row["rows"], config, gpu_model("H200")).seconds
        points.setdefault(row["rows"], []).append((predicted, row["us"]))
    assert len(points) > 12
    for rows, found in points.items():
        preferred, best = min(found)[1], min(us for _, us in found)
        assert preferred <= within * best, f"{rows} rows: {preferred} us, best {best} us"


CURVE = MEASURED.with_name("h200-grouped-curve.json")


def kind_of(config: str) -> tuple[str, ...]:
    """What tells measured configs apart: way, tile, cluster, warpgroups; swapped, the height only
    where there are several main loops above 64 rows."""
    way, tile, _, cluster, warpgroups, *_ = config.split("_")
    tile_m, tile_n = tile.split("x")
    swapped = way.startswith("swapped")
    height = "" if swapped and int(tile_m) <= 64 else tile_m
    return "swapped" if swapped else way, height, tile_n, cluster, warpgroups


def test_the_automatic_choice_is_within_2_percent_of_the_best_of_the_curve() -> None:
    points = json.loads(CURVE.read_text())["points"]
    assert len(points) == 3 * 32
    for point in points:
        n, k, m = point["n"], point["k"], point["m"]
        problem = GroupedGemm("masked", 16, 256, n, k, scale="block", accumulate="promoted")
        name = str(choose_swap(problem, m).config).split("promoted_")[1]
        same = [us for config, us in point["us"].items() if kind_of(config) == kind_of(name)]
        assert same, f"n={n}, {m} rows: {name} was not measured"
        best = min(point["us"].values())
        assert min(same) <= 1.02 * best, f"n={n}, {m} rows: {name} {min(same)} us, best {best} us"
