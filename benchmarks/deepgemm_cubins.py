"""Compile DeepGEMM's Hopper kernels for the benchmark sets, and say how to launch each.

Where a GPU is, there may be neither nvcc nor DeepGEMM; with what this writes, `ptxgen bench
--deepgemm DIR` measures its kernels there through our launcher. From a checkout:

    python benchmarks/deepgemm_cubins.py --deepgemm ../DeepGEMM --set dense --set masked -o DIR

DeepGEMM must have its CUTLASS submodule, or --cutlass names another. DIR gets cubins and a
deepgemm.json (schema ptxgen.deepgemm/1); what is there already is not compiled again.
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.deepgemm_config import FAMILIES, Config, Problem, best_configs
from benchmarks.deepgemm_launch import describe, instantiation
from ptxgen.benchmark import grouped_sets, sets
from ptxgen.benchmark.deepgemm import INDEX, SCHEMA, problem_key

# Source: DeepGEMM 54e2261, csrc/jit/compiler.hpp.
FLAGS = (
    "-std=c++20", "--diag-suppress=39,161,174,177,186,940", "--gpu-architecture=sm_90a",
    "--ptxas-options=--register-usage-level=10", "-O3", "--expt-relaxed-constexpr",
    "--expt-extended-lambda",
    "--compiler-options=-fPIC,-O3,-fconcepts,-Wno-deprecated-declarations,-Wno-abi",
)  # fmt: skip


def problems_of(names: Sequence[str], shapes: Sequence[str], bf16: bool) -> Iterator[Problem]:
    """The problems of benchmark sets and of shapes MxNxK, as DeepGEMM sees them.

    Raises: ArgumentError for a set that is not known.
    """
    dense = [tuple(int(x) for x in shape.split("x")) for shape in shapes]
    for name in names:
        if name in sets.SETS:
            dense += sets.SETS[name].shapes
            continue
        for case in grouped_sets.cases_of((name,)):
            yield grouped_problem(case)
    for m, n, k in dense:
        yield Problem("bf16" if bf16 else "fp8", m, n, k)


def compile_kernel(
    nvcc: str, includes: Sequence[Path], source: str, folder: Path, name: str,
    suffixes: Sequence[str],
) -> None:  # fmt: skip
    """Compile one instantiation into `folder`, once for each suffix (cubin, ptx) not there yet.

    Raises: RuntimeError with what nvcc said.
    """
    for suffix in suffixes:
        target = folder / f"{name}.{suffix}"
        if target.exists():
            continue
        with tempfile.TemporaryDirectory() as empty:  # as DeepGEMM does
            text, made = Path(empty, "kernel.cu"), Path(empty, f"kernel.{suffix}")
            text.write_text(source, encoding="utf-8")
            command: list[str | Path] = [
                nvcc, text, f"-{suffix}", "-o", made, *FLAGS, *(f"-I{x}" for x in includes),
            ]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=empty)
            if done.returncode:
                raise RuntimeError(f"nvcc failed on\n{source}\n{done.stderr[-2000:]}")
            target.write_bytes(made.read_bytes())


def entry_of(cubin: Path) -> str:
    """The name of the kernel, from the cubin's section names."""
    found = re.search(rb"\.text\.(\w*gemm\w*_impl\w*)", cubin.read_bytes())
    if not found:
        raise RuntimeError(f"{cubin} must hold one of DeepGEMM's kernels, has none")
    return found[1].decode()


def build(arguments: argparse.Namespace) -> int:
    """Compile what is missing, and write the index after each kernel."""
    nvcc, folder = arguments.nvcc, arguments.output
    folder.mkdir(parents=True, exist_ok=True)
    cutlass = arguments.cutlass or arguments.deepgemm / "third-party" / "cutlass"
    includes = [
        x.resolve() for x in (arguments.deepgemm / "deep_gemm/include", cutlass / "include")
    ]
    version = _output(nvcc, "--version").strip().splitlines()[-1]
    suffixes = ("cubin", "ptx") if arguments.ptx else ("cubin",)
    uses: dict[str, list[tuple[Problem, int, Config]]] = {}
    """Problems by the source of the kernel that serves them."""
    problems = problems_of(arguments.sets, arguments.shapes, arguments.bf16)
    for problem in dict.fromkeys(problems):
        for rank, config in enumerate(best_configs(problem, arguments.plausible)):
            uses.setdefault(instantiation(problem, config), []).append((problem, rank, config))
    index = folder / INDEX
    entries = _read(index) if index.exists() else {}
    with ThreadPoolExecutor(arguments.jobs) as pool:
        jobs = {}
        for source, served in uses.items():
            digest = hashlib.sha256(f"{version}{FLAGS}{source}".encode()).hexdigest()[:12]
            name = f"{FAMILIES[served[0][0].family].kernel}-{digest}"
            job = pool.submit(compile_kernel, nvcc, includes, source, folder, name, suffixes)
            jobs[job] = name, served
        for count, job in enumerate(as_completed(jobs), 1):
            job.result()
            name, served = jobs[job]
            entry = entry_of(folder / f"{name}.cubin")
            for problem, rank, config in served:
                launch = json.loads(describe(problem, config, entry).to_json())
                entries[_place(asdict(problem), rank)] = {
                    "problem": asdict(problem), "rank": rank, "config": asdict(config),
                    "cubin": f"{name}.cubin", "launch": launch,
                }  # fmt: skip
            written = {"schema": SCHEMA, "deepgemm": arguments.commit, "nvcc": version,
                       "kernels": list(entries.values())}  # fmt: skip
            index.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
            print(f"{count} of {len(jobs)}: {name}, {len(served)} problems", file=sys.stderr)
    return 0


def grouped_problem(case: grouped_sets.GroupedCase) -> Problem:
    """A grouped case as DeepGEMM sees it."""
    return Problem(**problem_key(case.problem, case.rows))


def _read(index: Path) -> dict[str, Any]:
    """Entries of an index by their place."""
    entries = json.loads(index.read_text(encoding="utf-8"))["kernels"]
    return {_place(x["problem"], x["rank"]): x for x in entries}


def _place(problem: dict[str, Any], rank: int) -> str:
    """What an entry of the index is found by."""
    return json.dumps([problem, rank])


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main() -> int:
    """Read the options and build."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--deepgemm", type=Path, required=True, help="a checkout of DeepGEMM")
    add("--cutlass", type=Path, help="a checkout of CUTLASS, instead of DeepGEMM's submodule")
    add("--commit", default="unknown", help="DeepGEMM's commit, for the index")
    add("--nvcc", default="nvcc")
    add("--set", dest="sets", action="append", default=[], help="a set of bench gemm or grouped")
    add("--shape", dest="shapes", action="append", default=[], metavar="MxNxK")
    add("--bf16", action="store_true", help="bf16 kernels for dense sets and shapes, not FP8")
    add("--plausible", type=int, default=1, help="so many of DeepGEMM's best configs each")
    add("--jobs", type=int, default=2)
    add("--ptx", action="store_true", help="PTX beside each cubin, for the emulator")
    add("-o", "--output", type=Path, required=True)
    return build(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
