"""Mutation scores of the golden kernels: how many weakened synchronisations the checker notices.

Run from a checkout: python scripts/mutation.py [--changed BASE] [--seconds S] [NAME ...]
--changed BASE  only kernels whose text differs from that of a commit
--seconds S     begin no further kernel after that time, and name those that are left; every day
                another kernel comes first
Prints one JSON object; exit status 1 if a kernel is below the bounds or not clean.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from golden_kernels import golden_kernels  # noqa: E402

from ptxgen.errors import PtxgenError  # noqa: E402
from ptxgen.executors import executor_of  # noqa: E402
from ptxgen.mutation_score import MIN_SCORE, Scenario, score  # noqa: E402

MAX_EQUIVALENT = 0.1


def changed_since(base: str) -> list[str]:
    """Names of the golden kernels whose files differ from those of a commit."""
    command = ["git", "diff", "--name-only", base, "--", "tests/golden"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [Path(line).stem for line in done.stdout.split()]


def result_of(name: str, executor: str) -> dict[str, Any]:
    """Counts, score and survivors of one kernel."""
    golden = golden_kernels()[name]
    try:
        subjects = golden.subjects()
        scenarios = [Scenario(s.launch, s.data) for s in subjects]
        with executor_of(executor) as running:
            found = score(subjects[0].ptx, scenarios, running)
    except PtxgenError as error:
        return {"ok": False, "error": str(error).splitlines()[0]}
    equivalent = len(found.of("equivalent"))
    return {
        "ok": found.ok and equivalent <= MAX_EQUIVALENT * len(found.verdicts),
        "mutants": len(found.verdicts),
        "caught": len(found.of("caught")),
        "equivalent": equivalent,
        "survivors": [v.to_dict() for v in found.of("survived")],
        "score": round(found.value, 4),
        "seconds": round(found.seconds, 1),
    }


def main() -> int:
    """Score the kernels that are asked for; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--changed", metavar="BASE")
    parser.add_argument("--executor", default="processes")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    arguments = parser.parse_args()
    names = arguments.names or list(golden_kernels())
    if arguments.changed:
        changed = changed_since(arguments.changed)
        names = [name for name in names if name in changed]
    if names and arguments.seconds < float("inf"):
        first = time.gmtime().tm_yday % len(names)
        names = names[first:] + names[:first]
    results: dict[str, dict[str, Any]] = {}
    end = time.monotonic() + arguments.seconds
    for name in names:
        if time.monotonic() > end:
            left = [name for name in names if name not in results]
            sys.stderr.write(f"no time left for {', '.join(left)}\n")
            break
        results[name] = result_of(name, arguments.executor)
        sys.stderr.write(f"{name}: {results[name]}\n")
    summary = {"schema": "ptxgen.mutation-scores/1", "min_score": MIN_SCORE, "kernels": results}
    sys.stdout.write(json.dumps(summary, indent=1) + "\n")
    return 0 if all(r["ok"] for r in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
