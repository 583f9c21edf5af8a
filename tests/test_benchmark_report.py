"""Reports: summaries, conversion through a peer of the same run, and the picture."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ptxgen.benchmark.check import Check
from ptxgen.benchmark.conversion import PeerTable, default_table, load_peer_table
from ptxgen.benchmark.method import Samples
from ptxgen.benchmark.peers import PEERS, chosen_peers
from ptxgen.benchmark.report import PeerResult, Result, geomean, measured_peer, summarise
from ptxgen.benchmark.sets import KINDS, SETS, kind, regular_shape
from ptxgen.errors import ArgumentError, OutputPathError, ProblemError
from ptxgen.kernels.gemm_sm90 import default_config
from ptxgen.problem import Gemm

RIGHT = Check(True, 1600, 0, 0, 0.0, "bitwise")
ROOT = Path(__file__).parent.parent


def result(m: int, ours_us: float, peers_us: dict[str, float]) -> Result:
    problem = Gemm(m, 256, 512, "e4m3", "e4m3", "bf16", scale="tensor")
    ours = Samples((ours_us * 1e-6,) * 3)
    peers = tuple(
        measured_peer(name, Samples((us * 1e-6,) * 3), ours, RIGHT) for name, us in peers_us.items()
    )
    return Result(
        "dense", "fp8-tensor", problem, "gemm_sm90", default_config(problem), "model", ours, RIGHT,
        peers, {}, 1e-6,
    )  # fmt: skip


def test_summary_has_geomean_least_ratio_and_losing_shapes_of_each_peer() -> None:
    found = summarise([result(128, 10, {"x": 20, "y": 9}), result(256, 10, {"x": 5, "y": 30})])
    by_peer = {s["peer"]: s for s in found}
    assert by_peer["x"]["geomean"] == pytest.approx(1.0)
    assert by_peer["x"]["min"] == pytest.approx(0.5)
    assert [(e["m"], e["ratio"]) for e in by_peer["x"]["losing"]] == [(256, pytest.approx(0.5))]
    assert by_peer["best"]["geomean"] == pytest.approx(geomean([0.9, 0.5]))
    assert len(by_peer["best"]["losing"]) == 2


def test_a_converted_peer_is_never_the_best_measured_one() -> None:
    r = result(128, 10, {"x": 20})
    converted = PeerResult("z", 5e-6, 0.5, None, None, "through x")
    both = replace(r, peers=(*r.peers, converted))
    by_peer = {s["peer"]: s for s in summarise([both])}
    assert by_peer["best"]["min"] == pytest.approx(2.0)
    assert by_peer["z (converted)"]["min"] == pytest.approx(0.5)


def test_rates_count_every_operand_once() -> None:
    r = result(128, 10, {})
    assert r.tflops == pytest.approx(2 * 128 * 256 * 512 / 10e-6 / 1e12)
    assert r.gbytes_per_s == pytest.approx(
        (128 * 512 + 256 * 512 + 128 * 256 * 2 + 8) / 10e-6 / 1e9
    )


def test_conversion_multiplies_this_runs_time_with_the_tables_ratio() -> None:
    problem = Gemm(64, 256, 512, "e4m3", "e4m3")
    shape = (problem.m, problem.n, problem.k)
    table = PeerTable("t", {("cublaslt_fp8_tensor_fast", *shape): 10.0,
                            ("deepgemm_fp8_1d2d", *shape): 15.0})  # fmt: skip
    here = {"cublaslt_fp8_tensor_fast": 8e-6}
    assert table.convert("deepgemm_fp8_1d2d", problem, here) == pytest.approx(12e-6)
    assert table.convert("deepgemm_fp8_1d2d", problem, {}) is None
    assert table.convert("deepgemm_bf16", problem, here) is None


def test_the_committed_peer_table_converts_every_dense_shape() -> None:
    path = default_table()
    assert path is not None
    assert path.parent == ROOT / "benchmarks" / "peers"
    table = load_peer_table(path)
    for name, base in (("fp8-tensor", "cublaslt_fp8_tensor_fast"), ("bf16", "cublas_bf16")):
        peer = "deepgemm_fp8_1d2d" if name == "fp8-tensor" else "deepgemm_bf16"
        for shape in SETS["dense"].shapes:
            assert table.convert(peer, kind(name).problem(shape), {base: 1.0}), shape


def test_a_broken_peer_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    path.write_text('{"rows": [{"peer": "x"}]}')
    with pytest.raises(ArgumentError, match="not a peer table"):
        load_peer_table(path)


def test_every_peer_serves_the_kinds_that_it_is_for() -> None:
    for name, served in (("cublaslt_fp8_tensor_fast", "fp8-rowcol"), ("cublas_bf16", "bf16")):
        assert PEERS[name].serves(kind(served).problem((64, 256, 512)))
        other = "bf16" if served != "bf16" else "fp8-tensor"
        assert not PEERS[name].serves(kind(other).problem((64, 256, 512)))


def test_peers_are_chosen_by_name_or_group_and_unknown_ones_refused() -> None:
    assert [p.name for p in chosen_peers(["deepgemm", "deepgemm_bf16"])] == [
        "deepgemm_fp8_1d2d", "deepgemm_bf16",
    ]  # fmt: skip
    with pytest.raises(ArgumentError, match="cutlass"):
        chosen_peers(["cutlass"])


@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_kind_makes_problems(name: str) -> None:
    try:
        assert kind(name).problem((1, 2111, 7184)).k == 7184
    except ProblemError as error:
        pytest.fail(str(error))


@pytest.mark.parametrize("shape", SETS["odd"].shapes)
def test_odd_shapes_are_served_and_the_regular_one_is_no_smaller(shape: tuple[int, ...]) -> None:
    regular = regular_shape((shape[0], shape[1], shape[2]))
    assert all(r >= s for r, s in zip(regular, shape, strict=True))
    assert regular != shape
    assert default_config(kind("fp8-tensor").problem((shape[0], shape[1], shape[2])))


def report() -> dict[str, Any]:
    results = [result(128, 10, {"x": 20}), result(256, 11, {"x": 9, "y": 30})]
    ceilings = {"wgmma_tflops": {"e4m3": 1700.0}, "read_stream_gbytes_per_s": 4400.0}
    return {
        "hardware": {"name": "NVIDIA H200"},
        "environment": {"clocks": "1980 MHz"},
        "ceilings": ceilings,
        "results": [r.as_data(ceilings) for r in results],
    }


def test_results_are_json_with_the_shares_of_the_ceilings() -> None:
    data = json.loads(json.dumps(report()))["results"][0]
    assert data["percent_of_wgmma_ceiling"] == pytest.approx(100 * data["tflops"] / 1700)
    assert data["over_read_stream_us"] == pytest.approx(9.0)
    assert (data["compiled"], data["correct"], data["speedup"]) == (True, True, 2.0)


def test_a_report_becomes_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from ptxgen.benchmark.plot import plot_report

    plot_report(report(), tmp_path / "report.svg")
    assert b"wgmma" in (tmp_path / "report.svg").read_bytes()
    with pytest.raises(OutputPathError, match="missing"):
        plot_report(report(), tmp_path / "missing" / "report.svg")
