"""What a command works on: TARGET with the options of a problem, or a FILE with --launch."""

from typing import Any

import click

from ptxgen.commands.grouped_options import GROUPED, select_grouped
from ptxgen.commands.options import TARGETS, refuse_given, refuse_options_of_problems, select
from ptxgen.commands.output import read_launch, read_text
from ptxgen.subjects import (
    Subject,
    exercising_grouped_subjects,
    exercising_subjects,
    gemm_subject,
    grouped_subject,
)

CHECKED_CTAS = 4
"""CTAs that share the tiles of a grouped problem: few, so that each walks from group to group."""


def subject_of(
    target: str,
    launch_path: str | None,
    values: dict[str, Any],
    *,
    data: str = "integers",
) -> Subject:
    """The subject that the command line describes.

    Raises: UsageError, ProblemError, ConfigError, LaunchError, ArgumentError.
    """
    if target not in (*TARGETS, GROUPED):
        refuse_options_of_problems(values)
        refuse_given(("data",), "a FILE takes its inputs from its launch; try without")
        if launch_path is None:
            raise click.UsageError(
                "a FILE needs --launch PATH; try check FILE --launch-template, which prints one to "
                "fill in"
            )
        launch = read_launch(launch_path)
        return Subject(target, read_text(target), launch)
    if launch_path is not None:
        raise click.UsageError("--launch belongs to a FILE; try emit -o FILE, or without")
    if target == GROUPED:
        grouped = select_grouped(values)
        return grouped_subject(
            grouped.problem, grouped.sizes, grouped.config, grouped.kernel, rows=grouped.rows,
            data=data, num_sms=CHECKED_CTAS,
        )  # fmt: skip
    selection = select(values)
    return gemm_subject(selection.problem, selection.config, selection.kernel, data=data)


def exercising(target: str, launch_path: str | None, values: dict[str, Any]) -> list[Subject]:
    """Subjects of one text that together execute all of it: small problems of a config, unless
    sizes are given or groups have none; a FILE with its one launch.

    Raises: as `subject_of`.
    """
    if target == GROUPED and not _given("m", "n", "k", "groups", "rows", "max_m"):
        grouped = select_grouped(values)
        if grouped.problem.mode != "batched":
            return exercising_grouped_subjects(grouped.problem, grouped.config, grouped.kernel)
    if target not in TARGETS or _given("m", "n", "k"):
        return [subject_of(target, launch_path, values)]
    selection = select(values)
    return exercising_subjects(selection.problem, selection.config, selection.kernel)


def _given(*names: str) -> bool:
    context = click.get_current_context()
    default = click.core.ParameterSource.DEFAULT
    return any(context.get_parameter_source(name) is not default for name in names)
