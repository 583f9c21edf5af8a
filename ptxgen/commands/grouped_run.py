"""What `ptxgen run grouped` does: run all groups, check each, report the worst."""

from typing import Any

from ptxgen.commands.grouped_options import select_grouped
from ptxgen.commands.output import finite, print_facts, print_json
from ptxgen.errors import EmulationError, PtxError, WrongResultError


def run_grouped(
    device: Any, data: str, seed: int, exact: bool, as_json: bool, values: dict[str, Any]
) -> None:
    """Run the grouped problem that the options describe, and print what came of it.

    Raises: WrongResultError if D is wrong or anything else was written; as the parts that it uses.
    """
    from ptxgen.grouped_trial import run_grouped as run_on
    from ptxgen.renderer import render
    from ptxgen.trial import digest

    selection = select_grouped(values)
    problem, config, sizes = selection.problem, selection.config, selection.sizes
    properties = getattr(device, "properties", None)
    plan = selection.kernel.plan(problem, config, *([properties.num_sms] if properties else []))
    rendered = render(plan)
    try:
        trial = run_on(
            problem, sizes, plan.launch, rendered.text, device,
            tile=(config.tile_m, config.tile_n), data=data, seed=seed, exact=exact,
            unit=selection.kernel.UNIT,
        )  # fmt: skip
    except (PtxError, EmulationError) as error:
        where = rendered.template_line(error.line)
        if where:
            error.args = (f"{error} ({where})",)
        raise
    verdict, group = trial.verdict, trial.worst_group
    if as_json:
        print_json(
            "ptxgen.run/1",
            {
                "ok": trial.ok,
                "device": trial.device,
                "kernel": plan.kernel,
                "config": str(config),
                "mode": problem.mode,
                "rows": list(selection.rows),
                "swap_ab": config.swap_ab,
                "data": data,
                "seed": seed,
                "ptx_sha256": digest(rendered.text),
                "seconds": trial.seconds,
                "load_seconds": trial.load_seconds,
                "max_error_over_bound": finite(verdict.max_error_over_bound),
                "worst": {
                    "group": group,
                    "index": verdict.worst,
                    "error": finite(verdict.worst_error),
                    "bound": verdict.worst_bound,
                },
                "worst_block_rms": finite(verdict.worst_block_rms),
                "exact_elements": verdict.exact_elements,
                "exact_mismatches": verdict.exact_mismatches,
                "stray_bytes": trial.stray_bytes,
            },
        )
    else:
        row, column = verdict.worst
        facts: dict[str, object] = {
            "result": "ok" if trial.ok else "WRONG",
            "device": trial.device,
            "config": str(config),
            "operands": "swapped" if config.swap_ab else "not swapped",
            "rows of the groups": ", ".join(map(str, selection.rows)),
            "PTX sha256": digest(rendered.text),
            "inputs": f"{data}, seed {seed}",
            "seconds": trial.seconds,
            "largest error": f"{verdict.max_error_over_bound:.3g} of its bound, at D[{row},"
            f"{column}] of group {group}: {verdict.worst_error:.3g} of {verdict.worst_bound:.3g}",
            "worst 8 x 8 block": f"{verdict.worst_block_rms:.3g} of its allowed RMS error",
            "bytes written outside the groups": trial.stray_bytes,
        }
        if verdict.exact_elements:
            facts["bit for bit"] = (
                f"{verdict.exact_elements - verdict.exact_mismatches} of "
                f"{verdict.exact_elements} elements as the tensor core sums"
            )
        print_facts("", facts)
    if not trial.ok:
        stray = f"; {trial.stray_bytes} stray bytes were written" if trial.stray_bytes else ""
        raise WrongResultError(f"group {group}: {verdict}{stray}")
