"""What `ptxgen inspect gemm --why` adds: which config the package takes, and why not the others."""

import re
from collections import Counter
from typing import Any

from ptxgen.commands.output import print_facts, print_table
from ptxgen.devices import GpuModel
from ptxgen.problem import Gemm

SHOWN = 8
"""Configs and rules that are listed for people; JSON has as many."""


def reasons(problem: Gemm, gpu: GpuModel, config: Any) -> dict[str, Any]:
    """How a config is chosen for `problem` on the GPU model `gpu`, as plain data.

    config: the one that is inspected.

    Raises: ConfigError if the model is not known, or nothing serves the problem on it.
    """
    from ptxgen.selection import explain

    explanation = explain(problem, gpu)
    choice = explanation.choice
    rules: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for refused in explanation.refused:
        rule = re.sub(r"\d+", "N", refused.reason.split(";")[0])
        rules.setdefault(rule, refused.reason)
        counts[rule] += 1
    return {
        "gpu": gpu.name,
        "config": str(choice.config),
        "source": choice.source,
        "choice": choice.why,
        "is_inspected": choice.config == config,
        "num_legal": len(explanation.ranked),
        "ranked": [
            {
                "config": str(r.config),
                "us": r.cost.total * 1e6,
                "bound": r.cost.bound,
                "launch_us": r.cost.launch * 1e6,
                "issue_us": r.cost.issue * 1e6,
                "last_wave_us": r.cost.wave * 1e6,
                "l2_us": r.cost.l2 * 1e6,
                "dram_us": r.cost.dram * 1e6,
                "waves": r.cost.waves,
            }
            for r in explanation.ranked[:SHOWN]
        ],
        "num_refused": len(explanation.refused),
        "refused": [
            {"configs": count, "example": rules[rule]} for rule, count in counts.most_common(SHOWN)
        ],
    }


def print_reasons(found: dict[str, Any]) -> None:
    """The same for people."""
    print_facts(
        "Why",
        {
            "GPU": found["gpu"],
            "taken": found["config"]
            + (
                ", the one above"
                if found["is_inspected"]
                else ", by a call on this GPU, or with --config chosen; the one above is what the "
                "options say, the rest by rule"
            ),
            "choice": found["choice"],
        },
    )
    print_table(
        f"The best of {found['num_legal']} legal configs by the model, in us",
        ("config", "total", "bound", "launch", "issue", "last wave", "L2", "DRAM", "waves"),
        [
            (r["config"], r["us"], r["bound"], r["launch_us"], r["issue_us"], r["last_wave_us"],
             r["l2_us"], r["dram_us"], r["waves"])
            for r in found["ranked"]
        ],
    )  # fmt: skip
    print_table(
        f"Why {found['num_refused']} others are refused",
        ("configs", "for example"),
        [(r["configs"], r["example"]) for r in found["refused"]],
    )
