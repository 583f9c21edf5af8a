"""report: what a run found, as JSON and as a summary of ratios per set and peer."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from ptxgen.benchmark.check import Check
from ptxgen.benchmark.method import Samples, paired_ratio
from ptxgen.problem import Gemm

P = TypeVar("P")
SCHEMA = "ptxgen.bench/1"
BEST = "best"
"""Name of the fastest measured peer of each problem, in summaries."""


@dataclass(frozen=True)
class PeerResult:
    """One peer on one problem."""

    name: str
    seconds: float
    """Median per call."""
    ratio: float
    """Its time / ours: the median over paired rounds, or of medians if converted."""
    samples: Samples | None
    """None if converted."""
    check: Check | None = None
    converted: str = ""
    """How the time was converted, or empty if it was measured."""
    rival: bool = True
    """False for a time of ours, of another shape."""


@dataclass(frozen=True)
class Result:
    """One problem: ours and the peers."""

    set_name: str
    kind: str
    problem: Gemm
    kernel: str
    config: Any
    source: str
    """Who chose the config, and why."""
    ours: Samples
    check: Check
    peers: tuple[PeerResult, ...]
    refusals: dict[str, str]
    """Peer -> why it was not measured."""
    stream_s: float | None
    """What the read stream takes for the bytes of the operands."""
    state: dict[str, Any] = field(default_factory=dict)
    """Clocks, power and temperature while it ran."""

    @property
    def tflops(self) -> float:
        """10^12 operations per second."""
        return self.problem.flop / self.ours.median / 1e12

    @property
    def gbytes_per_s(self) -> float:
        """10^9 bytes per second, each operand counted once."""
        return self.problem.compulsory_bytes / self.ours.median / 1e9

    def as_data(self, ceilings: Mapping[str, Any]) -> dict[str, Any]:
        """For the report; times in microseconds."""
        p = self.problem
        mma = ceilings.get("wgmma_tflops", {}).get(p.a)
        read = ceilings.get("read_stream_gbytes_per_s")
        best = min((x.ratio for x in self.peers if x.rival), default=None)
        return {
            "set": self.set_name,
            "kind": self.kind,
            "m": p.m,
            "n": p.n,
            "k": p.k,
            "problem": asdict(p),
            "kernel": self.kernel,
            "config": asdict(self.config),
            "config_name": str(self.config),
            "config_source": self.source,
            "compiled": True,
            "correct": self.check.ok,
            "check": asdict(self.check),
            "ms": self.ours.median * 1e3,
            "us": self.ours.median * 1e6,
            "spread": self.ours.spread,
            "samples_us": _microseconds(self.ours),
            "tflops": self.tflops,
            "gbytes_per_s": self.gbytes_per_s,
            "percent_of_wgmma_ceiling": 100 * self.tflops / mma if mma else None,
            "percent_of_read_stream": 100 * self.gbytes_per_s / read if read else None,
            "read_stream_us": self.stream_s * 1e6 if self.stream_s else None,
            "over_read_stream_us": (
                (self.ours.median - self.stream_s) * 1e6 if self.stream_s else None
            ),
            "speedup": best,
            "peers": [
                {
                    "peer": x.name,
                    "us": x.seconds * 1e6,
                    "ratio": x.ratio,
                    "tflops": p.flop / x.seconds / 1e12,
                    "spread": x.samples.spread if x.samples else None,
                    "samples_us": _microseconds(x.samples) if x.samples else [],
                    "converted": x.converted or None,
                    "check": asdict(x.check) if x.check else None,
                }
                for x in self.peers
            ],
            "not_measured": self.refusals,
            "gpu_state": self.state,
        }


def measured_peer(
    name: str, samples: Samples, ours: Samples, check: Check, rival: bool = True
) -> PeerResult:
    """A peer that ran beside ours, in the same rounds."""
    ratio = paired_ratio(samples, ours)
    return PeerResult(name, samples.median, ratio, samples, check, rival=rival)


def summarise(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Ratios (time of the peer / ours) per set, kind and peer; `best` is the fastest measured one.

    Each: {"set", "peer", "problems", "geomean", "min", "losing": [{"m", "n", "k", "ratio"}]}.
    """
    groups: dict[tuple[str, str], list[tuple[Gemm, float]]] = {}
    for result in results:
        label = f"{result.set_name}/{result.kind}"
        for peer in result.peers:
            name = f"{peer.name} (converted)" if peer.converted else peer.name
            groups.setdefault((label, name), []).append((result.problem, peer.ratio))
        measured = [p.ratio for p in result.peers if p.rival and not p.converted]
        if measured:
            groups.setdefault((label, BEST), []).append((result.problem, min(measured)))
    return summary_of(groups, lambda p: {"m": p.m, "n": p.n, "k": p.k})


def summary_of(
    groups: Mapping[tuple[str, str], Sequence[tuple[P, float]]],
    named: Callable[[P], dict[str, Any]],
) -> list[dict[str, Any]]:
    """One entry per set and peer. groups: (problem, time of the peer / ours) of each.

    named: what a losing problem is listed as.
    """
    return [
        {
            "set": label,
            "peer": peer,
            "problems": len(pairs),
            "geomean": geomean([ratio for _, ratio in pairs]),
            "min": min(ratio for _, ratio in pairs),
            "losing": [
                {**named(problem), "ratio": ratio}
                for problem, ratio in sorted(pairs, key=lambda pair: pair[1])
                if ratio < 1
            ],
        }
        for (label, peer), pairs in groups.items()
    ]


def geomean(values: Sequence[float]) -> float:
    """Geometric mean of positive numbers, at least one."""
    return math.exp(sum(map(math.log, values)) / len(values))


def _microseconds(samples: Samples) -> list[float]:
    return [round(value * 1e6, 4) for value in samples.values]
