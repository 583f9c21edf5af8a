"""grouped_conversion: the time of a grouped peer that is not here, by what it waits for.

A table holds its times on another machine of the same model. Where it waited for the memory there,
they are scaled by the bandwidth of a copy here and there; where for the Tensor Core, by a large
dense problem of cublasLt here and there.
"""

from collections.abc import Mapping
from contextlib import ExitStack

from ptxgen.benchmark import grouped_peers
from ptxgen.benchmark.conversion import PeerTable
from ptxgen.benchmark.grouped_sets import GroupedCase
from ptxgen.benchmark.method import Method, Samples, compare
from ptxgen.benchmark.peers import PEERS, PeerError
from ptxgen.benchmark.replay import Stopwatch
from ptxgen.benchmark.report import PeerResult
from ptxgen.benchmark.workload import Workload
from ptxgen.problem import Gemm

OURS = "ptxgen"
DENSE_PEER = "cublaslt_fp8_tensor_fast"
DENSE_ROWS = 4096
"""Rows of the dense problem."""


class Converter:
    """Converts peers of one run."""

    def __init__(
        self, watch: Stopwatch, method: Method, table: PeerTable | None, copy_bytes_per_s: float
    ) -> None:
        """table: None = nothing is converted."""
        self.watch = watch
        self.method = method
        self.table = table
        self.copy_bytes_per_s = copy_bytes_per_s
        self._dense_factors: dict[tuple[int, int], float] = {}

    def peers(self, case: GroupedCase, samples: Mapping[str, Samples]) -> tuple[PeerResult, ...]:
        """Peers that compute the case and are not among `samples`, which are those of this run.

        A peer with more rows than one of its tiles has is taken to wait for the Tensor Core.
        """
        table, p, ours = self.table, case.problem, samples[OURS].median
        if table is None or len(set(case.rows)) != 1:
            return ()
        found = []
        for name in grouped_peers.serving(case):
            there = table.grouped.get((name, p.groups, case.rows[0], p.n, p.k))
            if name in samples or there is None:
                continue
            if case.rows[0] > grouped_peers.PADDING:
                factor, of = self._dense_factor(table, p.n, p.k), f"{DENSE_PEER} at m={DENSE_ROWS}"
            else:
                factor = table.copy_bytes_per_s / self.copy_bytes_per_s
                of = "the bandwidth of a copy"
            if factor:
                seconds = there * factor
                how = f"by {of} in this run and in that of {table.source}"
                found.append(PeerResult(name, seconds, seconds / ours, None, None, how))
        return tuple(found)

    def _dense_factor(self, table: PeerTable, n: int, k: int) -> float:
        """Time of cublasLt here over its time there, for a large dense problem of n and k; 0 if
        one of them is not known. Measured once."""
        if (n, k) not in self._dense_factors:
            there = table.times.get((DENSE_PEER, DENSE_ROWS, n, k), 0.0) * 1e-6
            problem = Gemm(DENSE_ROWS, n, k, "e4m3", "e4m3", scale="tensor")
            here = self._dense_seconds(problem) if there else 0.0
            self._dense_factors[n, k] = here / there if there else 0.0
        return self._dense_factors[n, k]

    def _dense_seconds(self, problem: Gemm) -> float:
        """Time of cublasLt for a dense problem; 0 if it is not here."""
        with ExitStack() as stack:
            workload = Workload(self.watch.device, problem)
            stack.callback(workload.free)
            try:
                contender = PEERS[DENSE_PEER].contender(workload, self.watch)
            except PeerError:
                return 0.0
            stack.callback(contender.close)
            return compare([contender], self.method, 0.0)[DENSE_PEER].median
