"""How the emulator executes: schedule, numerics, limits. Named as in Pallas' interpret mode."""

from dataclasses import dataclass

from ptxgen.errors import ArgumentError, not_one_of

SCHEDULES = ("lazy", "eager", "run_to_block", "random")
"""lazy: warps take turns, asynchronous work completes only when no warp can go on.
eager: warps take turns, asynchronous work completes at once. run_to_block: as lazy, but a warp
keeps the processor until it blocks and the lowest one goes first. random: warps, turns and
completions are drawn from `seed`, completions seldom if it is odd, and try_wait fails spuriously
now and then."""


@dataclass(frozen=True)
class Options:
    """One way of executing a kernel."""

    schedule: str = "lazy"
    """One of SCHEDULES."""
    seed: int = 0
    """Replays a random schedule."""
    exact: bool = False
    """Tensor core sums bit by bit as published, instead of the fast FP32 product."""
    resident_clusters: int = 1
    """Clusters that execute side by side; 0 = the whole grid. More start when warps poll and
    nothing changes: they may wait for flags of other clusters."""
    max_instructions: int = 2_000_000_000
    """Warp instructions after which a run is taken for an endless loop."""
    idle_turns: int = 200_000
    """Turns of polling warps, without anything changing, that are taken for a deadlock."""

    deadline: float | None = None
    """Where the run ends by OutOfTimeError, on time.perf_counter's clock; None = nowhere."""

    def __post_init__(self) -> None:
        """Check the values.

        Raises: ArgumentError.
        """
        if self.schedule not in SCHEDULES:
            raise ArgumentError(not_one_of("schedule", self.schedule, SCHEDULES))
        if self.resident_clusters < 0 or self.max_instructions < 1:
            raise ArgumentError(
                "resident_clusters must be >= 0 and max_instructions >= 1, got "
                f"{self.resident_clusters} and {self.max_instructions}; try 1, and the default"
            )
