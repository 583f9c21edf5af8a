"""`ptxgen doctor`: what is here, and what to install."""

from dataclasses import asdict

import click

from ptxgen.commands.output import json_option, print_json, print_table

REQUIRABLE = ("ptxas", "nvjitlink", "nvdisasm", "cuobjdump", "pyelftools", "driver", "gpu")


@click.command("doctor")
@click.option(
    "--require",
    multiple=True,
    type=click.Choice(REQUIRABLE),
    help="Exit with code 3 if this is missing; may be given several times.",
)
@json_option
def command(require: tuple[str, ...], as_json: bool) -> None:
    """Say which tools are here, where, and what to install."""
    from ptxgen.diagnosis import diagnose
    from ptxgen.errors import ToolMissingError

    findings = diagnose()
    here = {f.name for f in findings if f.found}
    missing = [name for name in require if name not in here]
    if as_json:
        print_json(
            "ptxgen.doctor/1",
            {"missing_required": missing, "findings": [asdict(f) for f in findings]},
        )
    else:
        print_table(
            "",
            ("", "version", "where", "details"),
            [
                (f.name, f.version, f.where, f.details)
                if f.found
                else (f.name, "missing", f"for: {f.used_for}", f"try: {f.install}")
                for f in findings
            ],
        )
        for finding in findings:
            if not finding.found and finding.details:
                click.echo(f"{finding.name}: {finding.details}")
    if missing:
        tries = {f.name: f.install for f in findings if not f.found}
        raise ToolMissingError(
            "; ".join(
                f"{name} is required and missing; try: {tries.get(name, 'a machine with a GPU')}"
                for name in missing
            )
        )
