"""images: configs made ready to load, on any executor.

A job and its result are plain JSON data and the function is a module's own, so threads, processes
and remote workers serve alike.
"""

import base64
import json
from collections.abc import Iterable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ptxgen.errors import PtxgenError, ToolMissingError
from ptxgen.kernels import KERNELS
from ptxgen.problem import Gemm
from ptxgen.renderer import render
from ptxgen.tuning_table import config_json, text_hash

DRIVER = "driver"
"""Assembler of an image that is PTX text, for want of ptxas."""


@dataclass(frozen=True)
class Image:
    """One config, assembled; or why it could not be."""

    kernel: str
    config: Any
    code: bytes | str
    """A cubin, or the PTX text where no assembler is here. Empty if it failed."""
    text_hash: str
    assembler: str
    """Name and version, or `driver`."""
    registers: int
    error: str
    """Why it must not be used: rejected, spills or C75xx notes; or empty."""


@lru_cache(maxsize=2048)
def config_text(kernel: str, config: Any) -> str:
    """The PTX of a config. The text depends on the config alone, so no problem is asked for."""
    accumulate = getattr(config, "accumulate", "fast")
    problem = Gemm(0, 0, 0, config.a, config.b, config.d, config.layout, config.scale, accumulate)
    return render(KERNELS[kernel].plan(problem, config)).text


@lru_cache(maxsize=2048)
def config_hash(kernel: str, config: Any) -> str:
    """`text_hash` of the PTX of a config."""
    return text_hash(config_text(kernel, config))


def assemble_job(job: dict[str, str]) -> dict[str, Any]:
    """Assemble one config. `job`: kernel, and config as JSON; errors come back as data."""
    from ptxgen.cache import assemble_cached

    module = KERNELS[job["kernel"]]
    answer: dict[str, Any] = {"code": "", "assembler": "", "registers": 0, "error": ""}
    try:
        config = module.Config(**json.loads(job["config"]))
        text = config_text(job["kernel"], config)
        answer["text_hash"] = text_hash(text)
        cubin = assemble_cached(text)
        answer["assembler"] = cubin.assembler
        answer["registers"] = cubin.registers
        cubin.require_clean()
        answer["code"] = base64.b64encode(cubin.code).decode()
    except ToolMissingError:
        answer["code"], answer["assembler"] = text, DRIVER
    except PtxgenError as error:
        answer["error"] = str(error)
    return answer


def submit(executor: Executor, kernel: str, config: Any) -> "Future[dict[str, Any]]":
    """Start assembling a config; `collect` turns the result into an Image."""
    return executor.submit(assemble_job, {"kernel": kernel, "config": config_json(config)})


def collect(kernel: str, config: Any, future: "Future[dict[str, Any]]") -> Image:
    """The image of a config, when its job is done."""
    answer = future.result()
    code = answer["code"]
    if answer["assembler"] != DRIVER:
        code = base64.b64decode(code)
    return Image(
        kernel, config, code, answer.get("text_hash", ""), answer["assembler"],
        answer["registers"], answer["error"],
    )  # fmt: skip


def assemble_all(executor: Executor, configs: Iterable[tuple[str, Any]]) -> dict[Any, Image]:
    """Images of (kernel, config) pairs, by config; each config is assembled once."""
    futures = {config: (kernel, submit(executor, kernel, config)) for kernel, config in configs}
    return {c: collect(kernel, c, future) for c, (kernel, future) in futures.items()}
