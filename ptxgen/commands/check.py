"""`ptxgen check`: look for hazards in a kernel, on the emulator."""

from functools import partial
from typing import Any

import click

from ptxgen.commands.choice import choice_options
from ptxgen.commands.grouped_options import GROUPED, grouped_options
from ptxgen.commands.options import TARGETS, config_options, problem_options
from ptxgen.commands.output import json_option, note, output_files, read_launch, read_text
from ptxgen.commands.progress import bar_shown
from ptxgen.commands.subject import exercising, subject_of
from ptxgen.errors import DeadlockError, EmulationError, HazardError, PtxError, PtxgenError
from ptxgen.launch import Launch


@click.command("check")
@click.argument("target", metavar="|".join((*TARGETS, GROUPED, "FILE", "-")))
@problem_options
@grouped_options
@config_options
@choice_options
@click.option(
    "--launch",
    "launch_paths",
    multiple=True,
    metavar="PATH",
    help="Launch description of a FILE; several run in this order, on the same buffers.",
)
@click.option(
    "--launch-template",
    is_flag=True,
    help="Print a launch description of a FILE to fill in, and check nothing.",
)
@click.option("--entry", metavar="NAME", help="Which kernel of a FILE --launch-template is for.")
@click.option(
    "--strict/--tolerant",
    default=None,
    help="Rules for our own kernels, or those that published ones keep "
    "[default: strict for gemm and grouped, tolerant for a FILE].",
)
@click.option(
    "--schedule",
    "schedules",
    multiple=True,
    type=click.Choice(["lazy", "eager", "run_to_block", "random"]),
    help="Schedules to run; may be repeated [default: all].",
)
@click.option(
    "--seed",
    "seeds",
    multiple=True,
    type=click.IntRange(0),
    help="Seeds of the random schedule; may be repeated [default: 0, 1].",
)
@click.option(
    "--data",
    type=click.Choice(["integers", "random", "positive"]),
    default="integers",
    show_default=True,
    help="Inputs of gemm and grouped.",
)
@click.option("--exact", is_flag=True, help="Emulate Tensor Core sums bit for bit.")
@click.option(
    "--recheck",
    is_flag=True,
    help="Compare accumulators with numpy's partial sums after each k-step (gemm).",
)
@click.option(
    "--trace",
    "trace_path",
    metavar="PATH",
    help="Write a timeline that ui.perfetto.dev opens, and check nothing else.",
)
@click.option(
    "--mutate",
    is_flag=True,
    help="Weaken each synchronising instruction in turn: does the checker notice?",
)
@click.option(
    "--executor",
    default="processes",
    show_default=True,
    metavar="KIND[:N]",
    help="Where mutants run: threads:N, processes:N, or MODULE:ATTRIBUTE.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    help="Time for all: no further run or mutant begins after it.",
)
@json_option
def command(
    target: str,
    launch_paths: tuple[str, ...],
    launch_template: bool,
    entry: str | None,
    strict: bool | None,
    schedules: tuple[str, ...],
    seeds: tuple[int, ...],
    data: str,
    exact: bool,
    recheck: bool,
    trace_path: str | None,
    mutate: bool,
    executor: str,
    seconds: float | None,
    as_json: bool,
    **values: Any,
) -> None:
    """Look for races, missing fences and waits, deadlocks and other hazards in a kernel.

    TARGET is gemm or grouped with the options of a problem, or a PTX file (- for stdin) with
    --launch. The kernel runs on the emulator under several schedules; its memory, barriers and
    asynchronous work are followed by a happens-before checker. Exits with 0 if there is no error,
    5 if there is one, 6 for a deadlock, 4 if the PTX is rejected.
    """
    if sum((launch_template, recheck, bool(trace_path), mutate)) > 1:
        raise click.UsageError(
            "--launch-template, --recheck, --trace and --mutate exclude each other; try one"
        )
    if launch_template:
        _print_template(target, entry)
        return
    if target not in TARGETS and recheck:
        raise click.UsageError(
            "--recheck belongs to gemm, whose sums numpy knows; try --data integers"
        )
    launch_path = launch_paths[-1] if launch_paths else None
    if len(launch_paths) > 1 and (mutate or trace_path):
        raise click.UsageError("--mutate and --trace take one --launch; try the last one")
    if mutate:
        subjects = exercising(target, launch_path, values)
        _mutate(subjects, _strictness(strict, subjects[0]), executor, seconds, as_json)
        return
    subject = subject_of(target, launch_path, values, data="integers" if recheck else data)
    schedule, seed = (schedules or ("lazy",))[0], (seeds or (0,))[0]
    try:
        if trace_path is not None:
            _trace(subject, trace_path, schedule, seed)
        elif recheck:
            _recheck(subject, schedule, seed, as_json)
        else:
            rules = _strictness(strict, subject)
            before = [read_launch(path) for path in launch_paths[:-1]]
            _check(subject, before, rules, schedules, seeds, exact, seconds, as_json)
    except (PtxError, EmulationError) as error:
        raise subject.located(error) from error


def _strictness(strict: bool | None, subject: Any) -> bool:
    return subject.is_ours if strict is None else strict


def _print_template(path: str, entry: str | None) -> None:
    from ptxgen.commands.output import compact_json
    from ptxgen.launch_template import launch_template

    if path in (*TARGETS, GROUPED):
        raise click.UsageError("--launch-template belongs to a FILE; try emit --launch-out")
    launch, notes = launch_template(read_text(path), entry)
    click.echo(compact_json(launch.to_json()))
    note("to fill in:")
    for line in notes:
        note(f"  {line}")


def _check(
    subject: Any,
    before: list[Launch],
    strict: bool,
    schedules: tuple[str, ...],
    seeds: tuple[int, ...],
    exact: bool,
    seconds: float | None,
    as_json: bool,
) -> None:
    from ptxgen.commands.findings import print_report, report_json
    from ptxgen.emulator.checking import DEFAULT_SEEDS, check
    from ptxgen.emulator.options import SCHEDULES

    with bar_shown() as bar:
        report = check(
            subject.ptx, [*before, subject.launch], subject.data, strict=strict,
            schedules=schedules or SCHEDULES, seeds=seeds or DEFAULT_SEEDS, exact=exact,
            max_seconds=seconds, progress=bar.show if bar else None,
        )  # fmt: skip
    if as_json:
        report_json(report, subject, strict)
    else:
        print_report(report, subject, strict)
    errors = [f for f in report.findings if f.severity == "error"]
    if errors:
        # An error says what went wrong first; a deadlock alone has an exit code of its own.
        only_stuck = {f.code for f in errors} <= {"DEADLOCK", "TX-MISSING", "SETMAXNREG"}
        stuck = any(f.code == "DEADLOCK" for f in errors)
        kind = DeadlockError if only_stuck and stuck else HazardError
        raise kind(f"{len(errors)} error(s): {', '.join(dict.fromkeys(f.code for f in errors))}")


def _run(subject: Any, options: Any, observer: Any) -> None:
    """Run the subject once, followed by `observer`."""
    from ptxgen.emulator import run

    with bar_shown() as bar:
        tell = partial(bar.show, f"schedule {options.schedule}") if bar else None
        run(subject.ptx, subject.launch, subject.data, options, observer, tell)


def _trace(subject: Any, path: str, schedule: str, seed: int) -> None:
    from ptxgen.emulator import Options
    from ptxgen.timeline import Timeline

    timeline = Timeline(subject.ptx, subject.launch.entry)
    with output_files(path) as (file,):
        assert file is not None
        try:
            _run(subject, Options(schedule, seed), timeline)
        except EmulationError as error:
            note(f"the run ended with an error, up to which the timeline goes: {error}")
        file.write(timeline.to_json().encode())
    note(f"{len(timeline.events)} events; open {path} at https://ui.perfetto.dev")


def _recheck(subject: Any, schedule: str, seed: int, as_json: bool) -> None:
    from ptxgen.commands.output import print_facts, print_json
    from ptxgen.emulator import Options
    from ptxgen.errors import ConfigError
    from ptxgen.kernels import kernel_of, unit_of
    from ptxgen.recheck import Recheck

    unit = unit_of(subject.config)
    if unit not in ("wgmma", "tcgen05"):
        raise ConfigError(
            f"--recheck follows wgmma and tcgen05.mma, but {kernel_of(subject.config).NAME} "
            f"has neither; try --arch sm_90a or sm_100a with operands that TMA can load, "
            "or run --data integers"
        )
    recheck = Recheck(subject.problem, swapped=getattr(subject.config, "swap_ab", False))
    _run(subject, Options(schedule, seed), recheck)
    recheck.finish()
    facts = {"config": subject.name, "schedule": f"{schedule}, seed {seed}"}
    if as_json:
        print_json(
            "ptxgen.recheck/1", {"ok": True, **facts, "k_steps_compared": recheck.num_products}
        )
    else:
        compared = f"{recheck.num_products}, all as numpy sums"
        print_facts("", {**facts, "k-steps of accumulators compared": compared})


def _mutate(
    subjects: list[Any], strict: bool, executor_text: str, seconds: float | None, as_json: bool
) -> None:
    from ptxgen.commands.findings import MutationProgress, print_score, score_json
    from ptxgen.executors import executor_of
    from ptxgen.mutation_score import MIN_SCORE, Scenario, score

    first = subjects[0]
    scenarios = [Scenario(s.launch, s.data) for s in subjects]
    with executor_of(executor_text) as executor, bar_shown() as bar:
        result = score(
            first.ptx, scenarios, executor, strict=strict, seconds=seconds,
            progress=MutationProgress(bar),
        )  # fmt: skip
    if as_json:
        score_json(result, first)
    else:
        print_score(result, first)
    if not result.ok:
        raise PtxgenError(
            f"{result.value:.1%} of the mutants that matter were caught, must be {MIN_SCORE:.0%}"
        )
