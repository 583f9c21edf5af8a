"""Loaded modules by their text, bounded: a tuning loop must not fill the device with code."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ptxgen.launcher.module import Module

MODULE_LIMIT = 128
"""Modules that a context keeps; the least recently used that nobody holds is unloaded."""


class ModuleCache:
    """Modules of one context, keyed by the PTX text or cubin bytes themselves.

    A module that is in use (`loaded`, or `acquire` without `release`) is never unloaded.
    """

    def __init__(
        self,
        load: Callable[[str | bytes, Sequence[str] | None], Module],
        unload: Callable[[Module], None],
        limit: int = MODULE_LIMIT,
    ) -> None:
        self._load = load
        self._unload = unload
        self._limit = limit
        self._modules: OrderedDict[str | bytes, Module] = OrderedDict()
        self._users: dict[int, int] = {}
        # Reentrant: the garbage collector may end a holder, and so call release, inside it.
        self._lock = threading.RLock()
        self._load_lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._modules)

    def acquire(self, image: str | bytes, template_lines: Sequence[str] | None = None) -> Module:
        """The module of `image`, loaded at most once; held until `release`.

        `template_lines`: see `load_module`.

        Raises: AssemblyError, DriverError.
        """
        module = self._lookup(image)
        if module is not None:
            return module
        with self._load_lock:
            module = self._lookup(image)  # another thread may have loaded it meanwhile
            if module is not None:
                return module
            module = self._load(image, template_lines)
            with self._lock:
                self._modules[image] = module
                self._users[id(module)] = 1
                idle = self._take_idle()
            for old in idle:
                self._unload(old)
            return module

    def release(self, module: Module) -> None:
        """Give back what `acquire` returned."""
        with self._lock:
            self._users[id(module)] -= 1

    @contextmanager
    def loaded(self, image: str | bytes) -> Iterator[Module]:
        """The module of `image`, held within the `with` block."""
        module = self.acquire(image)
        try:
            yield module
        finally:
            self.release(module)

    def clear(self) -> None:
        """Unload every module that nobody holds."""
        with self._lock:
            idle = self._take_idle(keep=0)
        for old in idle:
            self._unload(old)

    def _lookup(self, image: str | bytes) -> Module | None:
        with self._lock:
            module = self._modules.get(image)
            if module is not None:
                self._modules.move_to_end(image)
                self._users[id(module)] += 1
            return module

    def _take_idle(self, keep: int | None = None) -> list[Module]:
        """Remove the oldest modules without users, until `keep` are left; the lock is held."""
        keep = self._limit if keep is None else keep
        taken: list[Module] = []
        for image, module in list(self._modules.items()):
            if len(self._modules) <= keep:
                break
            if self._users[id(module)] == 0:
                del self._modules[image], self._users[id(module)]
                taken.append(module)
        return taken
