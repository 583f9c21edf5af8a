"""How findings of the checker, and mutation scores, are printed."""

import time
from typing import TYPE_CHECKING, Any

import click

from ptxgen.commands.output import note, print_facts, print_json, print_table
from ptxgen.commands.progress import Bar
from ptxgen.emulator.checking import Report
from ptxgen.emulator.findings import Finding
from ptxgen.subjects import Subject

if TYPE_CHECKING:
    from ptxgen.mutation_score import Score, Verdict

CONTEXT_LINES = 2
"""Lines of PTX around a finding."""
WIDTH = 110
"""Columns of a line of PTX that are shown."""
PROGRESS_S = 2.0


def report_json(report: Report, subject: Subject, strict: bool) -> None:
    """Print what checking found as one JSON object."""
    print_json(
        "ptxgen.check/1",
        {
            "ok": report.ok,
            "kernel": subject.launch.entry,
            "config": None if subject.config is None else str(subject.config),
            "strict": strict,
            "identical": report.identical,
            "seconds": report.seconds,
            "runs": [
                {
                    "schedule": r.schedule, "seed": r.seed, "seconds": r.seconds,
                    "instructions": r.num_instructions, "error": r.error, "sha256": dict(r.digests),
                }
                for r in report.runs
            ],
            "skipped": list(report.skipped),
            "findings": [
                {**f.to_dict(), "template_line": subject.template_line(f.line)}
                for f in report.findings
            ],
        },
    )  # fmt: skip


def print_report(report: Report, subject: Subject, strict: bool) -> None:
    """Print what checking found, for people."""
    lines = subject.ptx.splitlines()
    for finding in report.findings:
        _print_finding(finding, subject, lines)
    runs = ", ".join(
        f"{r.schedule}{f' seed {r.seed}' * (r.schedule == 'random')}" for r in report.runs
    )
    counts = {
        s: sum(f.severity == s for f in report.findings) for s in ("error", "warning", "advice")
    }
    print_facts(
        "",
        {
            "kernel": subject.launch.entry,
            "rules": "strict" if strict else "tolerant",
            "schedules": runs,
            "left out for lack of time": ", ".join(report.skipped) or "none",
            "bytes of the result": "the same in all runs" if report.identical else "NOT the same",
            "found": ", ".join(f"{n} {s}(s)" for s, n in counts.items() if n) or "nothing",
            "warp instructions": max((r.num_instructions for r in report.runs), default=0),
            "seconds": report.seconds,
        },
    )


def _print_finding(finding: Finding, subject: Subject, lines: list[str]) -> None:
    times = f", {finding.count} times" if finding.count > 1 else ""
    click.echo(f"{finding.severity} {finding.code}{times}")
    click.echo(f"  {finding.message}")
    for line in dict.fromkeys((finding.other_line, finding.line)):
        if line:
            _print_context(line, subject, lines)
    facts = {
        "bytes": _bytes(finding),
        "barrier": finding.barrier,
        "fix": finding.fix,
        "replay": _replay(finding),
    }
    for name, value in facts.items():
        if value:
            click.echo(f"  {name}: {value}")
    click.echo()


def _print_context(line: int, subject: Subject, lines: list[str]) -> None:
    where = subject.template_line(line)
    click.echo(f"  line {line}{f' ({where})' if where else ''}")
    for number in range(max(1, line - CONTEXT_LINES), min(len(lines), line + CONTEXT_LINES) + 1):
        text = lines[number - 1].rstrip()
        text = text if len(text) <= WIDTH else f"{text[: WIDTH - 4]} ..."
        click.echo(f"  {'>' if number == line else ' '} {number:5} | {text}")


def _bytes(finding: Finding) -> str:
    if finding.addresses is None:
        return ""
    first, count = finding.addresses
    if finding.space == "tensor":
        return f"tensor memory lane {first // 4 // 512}, column {first // 4 % 512}, {count} B"
    return f"{finding.space} {first:#x}, {count} B"


def _replay(finding: Finding) -> str:
    if not finding.schedule:
        return ""
    seed = f" --seed {finding.seed}" if finding.schedule == "random" else ""
    return f"--schedule {finding.schedule}{seed}"


class MutationProgress:
    """Says on stderr how far the mutants are, now and then, and names each that survives."""

    def __init__(self, bar: Bar | None) -> None:
        self._bar = bar
        self._last = time.perf_counter()
        self._caught = 0

    def __call__(self, verdict: "Verdict", done: int, total: int) -> None:
        """One more mutant has been judged."""
        self._caught += verdict.outcome == "caught"
        if verdict.outcome == "survived":
            say = note if self._bar is None else self._bar.say
            say(f"survived ({verdict.by}): line {verdict.mutant.name}")
        if self._bar is not None:
            self._bar.show(f"{done} of {total} mutants, {self._caught} caught", done, total)
            return
        now = time.perf_counter()
        if now - self._last > PROGRESS_S or done == total:
            self._last = now
            note(f"{done} of {total} mutants, {self._caught} caught")


def score_json(score: "Score", subject: Subject) -> None:
    """Print a mutation score as one JSON object."""
    print_json("ptxgen.mutation/1", {**_score(score), "kernel": subject.launch.entry})


def print_score(score: "Score", subject: Subject) -> None:
    """Print a mutation score, for people."""
    counts = _score(score)
    for title, outcome in (("Survivors", "survived"), ("Equivalent", "equivalent")):
        rows = [
            [v.mutant.line, v.mutant.operator, v.mutant.instruction[:60], v.by]
            for v in score.of(outcome)
        ]
        if rows:
            print_table(title, ("line", "change", "instruction", "why"), rows)
    print_facts(
        "",
        {
            "kernel": subject.launch.entry,
            **{k: counts[k] for k in ("mutants", "caught", "equivalent")},
            "survivors": len(score.of("survived")),
            "score": f"{score.value:.1%} of those that are not equivalent",
            "seconds": score.seconds,
        },
    )


def _score(score: "Score") -> dict[str, Any]:
    return {
        "ok": score.ok,
        "mutants": len(score.verdicts),
        "caught": len(score.of("caught")),
        "equivalent": len(score.of("equivalent")),
        "survivors": [v.to_dict() for v in score.of("survived")],
        "equivalents": [v.to_dict() for v in score.of("equivalent")],
        "caught_by": _by_code(score),
        "score": score.value,
        "seconds": score.seconds,
    }


def _by_code(score: "Score") -> dict[str, int]:
    found: dict[str, int] = {}
    for verdict in score.of("caught"):
        found[verdict.by] = found.get(verdict.by, 0) + 1
    return dict(sorted(found.items(), key=lambda item: -item[1]))
