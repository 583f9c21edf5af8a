"""What the scripts here share: option -o, the GPU that they measure, the report."""

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ptxgen.benchmark.gpu_state import StateSampler
from ptxgen.benchmark.suite import provenance
from ptxgen.errors import ToolMissingError
from ptxgen.launcher.device import GpuDevice


def options(description: str | None) -> argparse.ArgumentParser:
    """A parser that takes -o: where the report goes, if anywhere."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("-o", "--output", type=Path)
    return parser


def open_gpu() -> tuple[GpuDevice, dict[str, Any]]:
    """GPU 0, and what a report says of it.

    Raises: ToolMissingError if there is none.
    """
    device = GpuDevice.get()
    return device, provenance(device, StateSampler(device))


def write(
    path: Path | None, name: str, ok: bool, where: Mapping[str, Any], method: str | None,
    **found: Any,
) -> None:  # fmt: skip
    """Write what was found, schema ptxgen.NAME/1, if there is a path. where: from `open_gpu`."""
    if path is None:
        return
    report = {"schema": f"ptxgen.{name}/1", "ok": ok, **where, "method": method, **found}
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def exit_status(main: Callable[[], int]) -> int:
    """What `main` returns; 3 where it needs a GPU and there is none."""
    try:
        return main()
    except ToolMissingError as error:
        print(error, file=sys.stderr)
        return error.exit_code
