"""`ptxgen selftest`: all that somebody with the hardware runs, and one JSON that comes of it."""

import time
from dataclasses import asdict
from typing import Any

import click

from ptxgen.commands.output import (
    json_option,
    json_text,
    note,
    output_files,
    print_json,
    print_table,
)
from ptxgen.commands.run import open_device
from ptxgen.errors import ConfigError, WrongResultError

SCHEMA = "ptxgen.selftest/1"
FAMILY = {"sm_100f": ("sm_100a", "sm_103a")}
"""Target of a family -> targets of the GPUs that run it."""


@click.command("selftest")
@click.option("--arch", "target", help="Target: sm_90a, sm_100a, sm_100f, sm_103a or sm_120a. "
              "[default: the GPU's, sm_100a on the emulator]")  # fmt: skip
@click.option("--device", "device_name", default="gpu", show_default=True,
              metavar="gpu[:INDEX]|emulator", help="Where to run.")  # fmt: skip
@click.option("--size", type=click.Choice(["auto", "small", "full"]), default="auto",
              show_default=True, help="How many cases; auto: full on a GPU.")  # fmt: skip
@click.option("--out", type=click.Path(dir_okay=False), help="Write the JSON there, too.")
@click.option("--case-seconds", type=click.FloatRange(min=0, min_open=True), default=90.0,
              show_default=True, help="A case that takes longer hangs.")  # fmt: skip
@click.option("--bench-seconds", type=click.FloatRange(min=0), default=120.0, show_default=True,
              help="Begin no measurement after this; 0: measure nothing.")  # fmt: skip
@click.option("--sanitizer-seconds", type=click.FloatRange(min=0), default=600.0,
              show_default=True, help="Of each tool of compute-sanitizer; 0: none.")  # fmt: skip
@json_option
def command(
    target: str | None, device_name: str, size: str, out: str | None, case_seconds: float,
    bench_seconds: float, sanitizer_seconds: float, as_json: bool,
) -> None:  # fmt: skip
    """Compute and check products of every kind on this GPU, and measure some of them.

    Every case is compared with numpy, and bit for bit with the model of the tensor core; then
    compute-sanitizer looks at some, and some are timed beside cublasLt if torch is here. The JSON
    says what ran, on what, and what came of it: please send it.
    """
    device = open_device(device_name)
    with output_files(out) as (file,):
        report = _test(device, target, size, case_seconds, bench_seconds, sanitizer_seconds)
        if file is not None:
            file.write(json_text(SCHEMA, report).encode() + b"\n")
    if as_json:
        print_json(SCHEMA, report)
    else:
        _print(report)
    if not report["ok"]:
        raise WrongResultError(
            f"{report['failed']} of {report['runs']} runs failed on {device.name}"
        )


def _test(
    device: Any, target: str | None, size: str, case_seconds: float, bench_seconds: float,
    sanitizer_seconds: float,
) -> dict[str, Any]:  # fmt: skip
    """The report.

    Raises: ConfigError if the device does not run the target.
    """
    from ptxgen.selftest.cases import cases
    from ptxgen.selftest.sweep import sweep_here, sweep_in_children

    emulated = device.name == "emulator"
    arch = "sm_100a" if emulated else device.properties.arch
    target = target or arch
    if not emulated and arch not in FAMILY.get(target, (target,)):
        raise ConfigError(
            f"arch={target} does not run on {device.name}, which is {arch}; try --arch {arch} or "
            "--device emulator"
        )
    small = size == "small" or (size == "auto" and emulated)
    number = len(cases(target, small))
    note(f"{device.name}: {number} cases for {target}")
    began, outcomes = time.monotonic(), []
    running = (
        sweep_here(target, small, device)
        if emulated
        else sweep_in_children(target, small, device.index, case_seconds)
    )
    for outcome in running:
        outcomes.append(outcome)
        if not outcome.ok:
            note(f"{outcome.name} ({outcome.data}): {outcome.error}")
    failed = [o for o in outcomes if not o.ok]
    sanitizer, speed = _hardware_parts(device, target, failed, sanitizer_seconds, bench_seconds)
    return {
        "ok": not failed and bool(outcomes),
        "target": target,
        "cases": number,
        "runs": len(outcomes),
        "failed": len(failed),
        **_environment(device),
        "seconds": time.monotonic() - began,
        "outcomes": [asdict(o) for o in outcomes],
        "sanitizer": sanitizer,
        "benchmark": speed,
    }


def _hardware_parts(
    device: Any, target: str, failed: list[Any], sanitizer_seconds: float, bench_seconds: float
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What compute-sanitizer and the benchmark find; nothing on the emulator."""
    if device.name == "emulator":
        return [], {}
    from ptxgen.errors import PtxgenError
    from ptxgen.selftest.sanitizer import sanitize
    from ptxgen.selftest.speed import measure

    sanitizer = sanitize(target, device.index, sanitizer_seconds) if sanitizer_seconds else []
    if not bench_seconds:
        return sanitizer, {}
    if any("hangs" in outcome.error for outcome in failed):
        return sanitizer, {"reason": "not measured, as kernels hang"}
    try:
        return sanitizer, measure(device, target, seconds=bench_seconds, note=note)
    except PtxgenError as error:
        return sanitizer, {"reason": str(error)}


def _environment(device: Any) -> dict[str, Any]:
    """What the results depend on."""
    from ptxgen.benchmark.suite import commit_of, software_of
    from ptxgen.toolchain import find_ptxas

    found: dict[str, Any] = {
        "device": device.name,
        "hardware": {},
        "software": software_of(),
        "assemblers": [p.identity for p in find_ptxas()],
        "commit": commit_of(),
    }
    if device.name != "emulator":
        from ptxgen.benchmark.gpu_state import StateSampler

        limits = StateSampler(device).limits()
        found["hardware"] = {**asdict(device.properties), **limits}
    return found


def _print(report: dict[str, Any]) -> None:
    kernels: dict[str, list[bool]] = {}
    for outcome in report["outcomes"]:
        kernels.setdefault(outcome["kernel"], []).append(outcome["ok"])
    print_table(
        f"{report['device']}: {report['runs']} runs for {report['target']}",
        ("kernel", "runs", "failed"),
        [(name, len(oks), oks.count(False)) for name, oks in kernels.items()],
    )
    if report["sanitizer"]:
        print_table(
            "compute-sanitizer",
            ("tool", "clean", "cases", "why not"),
            [(s["tool"], s.get("ok", False), s.get("cases", 0),
              s.get("reason") or (s["tail"][-1] if s["tail"] and not s["ok"] else ""))
             for s in report["sanitizer"]],
        )  # fmt: skip
    results = report["benchmark"].get("results")
    if results:
        print_table(
            "Times; ratios are time of the peer / ours",
            ("A", "scale", "m", "n", "k", "us", "TFLOPS", "peers", "config"),
            [(r["a"], r["scale"], r["m"], r["n"], r["k"], round(r["us"], 2), round(r["tflops"]),
              ", ".join(f"{name} {p['ratio']:.3f}" for name, p in r["peers"].items()),
              r["config"]) for r in results],
        )  # fmt: skip
