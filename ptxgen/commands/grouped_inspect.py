"""What `ptxgen inspect grouped` prints: the plan of a config, and why operands are swapped."""

from dataclasses import asdict
from typing import Any

from ptxgen.commands.grouped_options import GroupedSelection, select_grouped
from ptxgen.commands.output import print_facts, print_json, print_table
from ptxgen.commands.plan_report import plan_data, print_plan


def inspect_grouped(as_json: bool, why: bool, values: dict[str, Any]) -> None:
    """Print the plan of the grouped problem that the options describe.

    why: also how the choice between swapped and not was made, beside what others published.

    Raises: ProblemError, ConfigError, ArgumentError.
    """
    selection = select_grouped(values)
    problem, config = selection.problem, selection.config
    plan = selection.kernel.plan(problem, config)
    reasons = _reasons(selection) if why else None
    if as_json:
        print_json(
            "ptxgen.inspection/1",
            {
                **plan_data(plan, config),
                "swap_ab": config.swap_ab,
                **({"why": reasons} if reasons else {}),
            },
        )
        return
    print_plan(plan, config, selection.shown)
    if reasons is not None:
        print_facts("Why", {"choice": reasons["choice"], "GPU": reasons["gpu"]})
        print_table(
            "What the model compares, in us",
            ("operands", "config", "total", "memory", "L2", "compute", "rows computed"),
            [
                (e["operands"], e["config"], e["us"], e["memory_us"], e["l2_us"], e["compute_us"],
                 e["computed_rows"])
                for e in reasons["estimates"]
            ],
        )  # fmt: skip
        print_table(
            "What others published",
            ("who", "rule", "source"),
            [(p["who"], p["rule"], p["source"]) for p in reasons["published"]],
        )


def _reasons(selection: GroupedSelection) -> dict[str, Any]:
    """How the choice is made for the selection's problem, as plain data."""
    from ptxgen.errors import ConfigError
    from ptxgen.swap_selection import choose_swap, expected_rows_of

    if selection.kernel.UNIT != "wgmma":
        raise ConfigError(
            f"--why compares operands swapped and not, and {selection.kernel.NAME} swaps unless "
            "told; try --arch sm_90a"
        )
    problem, gpu, expected = selection.problem, selection.gpu, selection.expected_rows
    expected = expected_rows_of(problem) if expected is None else expected
    choice = choose_swap(problem, expected, gpu, selection.swap_ab, selection.chosen)
    return {
        "choice": choice.why,
        "gpu": gpu.name,
        "expected_rows": expected,
        "estimates": [
            {
                "operands": "swapped" if e.config.swap_ab else "not swapped",
                "config": str(e.config),
                "us": e.seconds * 1e6,
                "memory_us": e.memory_seconds * 1e6,
                "l2_us": e.l2_seconds * 1e6,
                "compute_us": e.compute_seconds * 1e6,
                "computed_rows": e.computed_rows,
            }
            for e in (choice.straight, choice.swapped)
            if e is not None
        ],
        "published": [asdict(p) for p in choice.published],
    }
