"""Kernels in stream order: which earlier ones are over, as far as a thread knows.

A kernel whose predecessor executes griddepcontrol.launch_dependents may start before that is over;
any other kernel starts when all before it are. griddepcontrol.wait says that the predecessor has
completed, and its memory is visible. It says nothing of the kernels before: those are over if some
thread of the predecessor has waited for them.
Source: PTX ISA 9.0, "griddepcontrol"; CUDA C++ Programming Guide, "Programmatic Dependent Launch".
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class _Kernel:
    """What one kernel has done about its neighbours."""

    at_start: frozenset[int] = frozenset()
    """Kernels that are over when it starts."""
    by_wait: frozenset[int] = frozenset()
    """Kernels that are over when a thread of it has waited."""
    waits: bool = False
    lets_dependents_in: bool = False
    lets_in_unwaited: bool = False
    """Some thread lets dependents in that has not waited."""

    @property
    def at_end(self) -> frozenset[int]:
        """Kernels that are over when it is."""
        return self.by_wait if self.waits else self.at_start


@dataclass(slots=True)
class Kernels:
    """All kernels of a run, numbered from 1."""

    current: int = 0
    _kernels: list[_Kernel] = field(default_factory=lambda: [_Kernel()])

    def begin(self) -> bool:
        """The next kernel begins; whether all earlier ones are over."""
        before = self._kernels[self.current]
        by_wait = before.at_end | {self.current}
        at_start = frozenset(range(self.current + 1))
        if before.lets_dependents_in:
            at_start = before.at_start if before.lets_in_unwaited else before.by_wait
        self._kernels.append(_Kernel(at_start, by_wait))
        self.current += 1
        return len(at_start) == self.current

    def wait(self) -> None:
        """A thread executes griddepcontrol.wait."""
        self._kernels[self.current].waits = True

    def let_dependents_in(self, waited: bool) -> None:
        """A thread executes griddepcontrol.launch_dependents; `waited`: after its wait."""
        kernel = self._kernels[self.current]
        kernel.lets_dependents_in = True
        kernel.lets_in_unwaited = kernel.lets_in_unwaited or not waited

    def is_over(self, earlier: int, waited: bool) -> bool:
        """Whether an earlier kernel is over for a thread of the current one."""
        kernel = self._kernels[self.current]
        return earlier in kernel.at_start or (waited and earlier in kernel.by_wait)
