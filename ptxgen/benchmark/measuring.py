"""measuring: times configs of ours on a GPU for the tuner, each one checked first."""

from collections.abc import Sequence
from typing import Any

from ptxgen.benchmark.check import Expected, check, expect
from ptxgen.benchmark.method import Contender, Method, compare
from ptxgen.benchmark.replay import Stopwatch, launch_contender
from ptxgen.benchmark.workload import Workload
from ptxgen.errors import DriverError, PtxgenError
from ptxgen.images import Image
from ptxgen.kernels import KERNELS, k_parts, unit_of
from ptxgen.launcher.driver import CONTEXT_KILLERS
from ptxgen.problem import Gemm
from ptxgen.tuner import Outcome

TUNING = Method(slot_s=0.008, lead_share=0.25, settle_s=0.03)
"""Shorter slots than a benchmark's: many configs are told apart, not published."""


class KernelMeasure:
    """A `ptxgen.tuner.Measure` on one GPU. Keeps the operands of the problem it measured last."""

    def __init__(self, watch: Stopwatch, method: Method = TUNING) -> None:
        self.watch = watch
        self.method = method
        self._workload: Workload | None = None
        self._expected: dict[tuple[tuple[tuple[int, int], ...], str], Expected] = {}

    def __call__(self, problem: Gemm, images: Sequence[Image], rounds: int) -> list[Outcome]:
        """Check and time configs; one outcome each.

        Raises: DriverError if a kernel has made the GPU's context unusable.
        """
        workload = self._prepare(problem)
        outcomes: dict[Any, Outcome] = {}
        contenders: list[Contender] = []
        try:
            for image in images:
                try:
                    contender = our_contender(str(image.config), self.watch, workload, image)
                    contenders.append(contender)
                    expected = self._expect(workload, image.config)
                    check(workload, contender, expected).require(str(image.config))
                except DriverError as error:
                    if any(f"({code})" in str(error) for code in CONTEXT_KILLERS):
                        raise
                    outcomes[image.config] = Outcome((), str(error))
                except PtxgenError as error:
                    outcomes[image.config] = Outcome((), str(error))
            method = Method(
                self.method.slot_s, self.method.lead_share, self.method.settle_s, rounds, rounds
            )
            failed = {str(config) for config in outcomes}
            good = [c for c in contenders if c.name not in failed]
            if good:
                samples = compare(good, method)
                outcomes |= {
                    image.config: Outcome(samples[str(image.config)].values)
                    for image in images
                    if str(image.config) in samples
                }
        finally:
            for contender in contenders:
                contender.close()
        return [outcomes[image.config] for image in images]

    def close(self) -> None:
        """Give the operands back."""
        if self._workload is not None:
            self._workload.free()
            self._workload = None

    def _prepare(self, problem: Gemm) -> Workload:
        if self._workload is None or self._workload.problem != problem:
            self.close()
            self._workload = Workload(self.watch.device, problem)
            self._expected = {}
        return self._workload

    def _expect(self, workload: Workload, config: Any) -> Expected:
        """What a config must give: that depends on how it parts K."""
        key = (k_parts(config, workload.problem), unit_of(config))
        if key not in self._expected:
            tile = (config.tile_m, config.tile_n)
            self._expected[key] = expect(
                workload.problem, workload.operands, tile, exact=True, k_parts=key[0], unit=key[1]
            )
        return self._expected[key]


def our_contender(name: str, watch: Stopwatch, workload: Workload, image: Image) -> Contender:
    """One of our configs on all copies of a workload.

    Raises: ConfigError, LaunchError, AssemblyError, DriverError.
    """
    num_sms = watch.device.properties.num_sms
    plan = KERNELS[image.kernel].plan(workload.problem, image.config, num_sms)
    return launch_contender(name, watch, plan.launch, image.code, workload.copies)
