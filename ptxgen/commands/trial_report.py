"""What `ptxgen run` does with a kernel of ours: run it, and print how far it is from its bounds."""

from collections.abc import Callable
from typing import Any

from ptxgen.commands.output import finite, print_facts, print_json
from ptxgen.commands.progress import progress_shown
from ptxgen.errors import EmulationError, PtxError, WrongResultError
from ptxgen.launch import Device, Launch
from ptxgen.trial import Trial, digest


def run_and_report(
    selection: Any,
    device: Device,
    run: Callable[[Launch, str, Any, Callable[[str], None]], Trial],
    data: str,
    seed: int,
    as_json: bool,
) -> None:
    """Plan and render the selection's config for the device, run it, and print what came of it.

    run: takes launch, PTX, config, and whom to tell what begins. data, seed: what the operands
    were made from.

    Raises: WrongResultError if D is wrong or anything else was written; as the parts that it uses.
    """
    from ptxgen.renderer import render

    config, properties = selection.config, getattr(device, "properties", None)
    sms = [properties.num_sms] if properties else []
    plan = selection.kernel.plan(selection.problem, config, *sms)
    rendered = render(plan)
    try:
        with progress_shown(device) as progress:
            trial = run(plan.launch, rendered.text, config, progress.tell)
    except (PtxError, EmulationError) as error:
        raise rendered.located(error)  # noqa: B904 (it is the same error)
    sha256 = digest(rendered.text)
    if as_json:
        names = {"kernel": plan.kernel, "config": str(config), **selection.described}
        inputs = {"data": data, "seed": seed, "ptx_sha256": sha256}
        print_json(
            "ptxgen.run/1",
            {"ok": trial.ok, "device": trial.device, **names, **inputs, **_measured(trial)},
        )
    else:
        names = {"config": str(config), **selection.shown}
        inputs = {"PTX sha256": sha256, "inputs": f"{data}, seed {seed}"}
        outcome = {"result": "ok" if trial.ok else "WRONG", "device": trial.device}
        print_facts("", {**outcome, **names, **inputs, **_facts(trial)})
    if not trial.ok:
        where = "" if trial.worst_group is None else f"group {trial.worst_group}: "
        stray = f"; {trial.stray_bytes} bytes outside D were written" if trial.stray_bytes else ""
        raise WrongResultError(f"{where}{trial.verdict}{stray}")


def _measured(trial: Trial) -> dict[str, object]:
    verdict = trial.verdict
    group = {} if trial.worst_group is None else {"group": trial.worst_group}
    return {
        "seconds": trial.seconds,
        "load_seconds": trial.load_seconds,
        "max_error_over_bound": finite(verdict.max_error_over_bound),
        "worst": {
            **group,
            "index": verdict.worst,
            "error": finite(verdict.worst_error),
            "bound": verdict.worst_bound,
        },
        "worst_block_rms": finite(verdict.worst_block_rms),
        "exact_elements": verdict.exact_elements,
        "exact_mismatches": verdict.exact_mismatches,
        "stray_bytes": trial.stray_bytes,
    }


def _facts(trial: Trial) -> dict[str, object]:
    verdict, (row, column) = trial.verdict, trial.verdict.worst
    group = "" if trial.worst_group is None else f" of group {trial.worst_group}"
    facts: dict[str, object] = {
        "seconds": trial.seconds,
        "largest error": f"{verdict.max_error_over_bound:.3g} of its bound, at D[{row},{column}]"
        f"{group}: {verdict.worst_error:.3g} of {verdict.worst_bound:.3g}",
        "worst 8 x 8 block": f"{verdict.worst_block_rms:.3g} of its allowed RMS error",
        "bytes written outside D": trial.stray_bytes,
    }
    if verdict.exact_elements:
        right = verdict.exact_elements - verdict.exact_mismatches
        facts["bit for bit"] = (
            f"{right} of {verdict.exact_elements} elements as the tensor core sums"
        )
    return facts
