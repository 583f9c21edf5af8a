"""Calls by what they compute, so that a second one costs only its launch."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

from ptxgen.launcher.device import GpuDevice
from ptxgen.launcher.launching import PreparedCall

PREPARED_LIMIT = 256
"""Prepared calls that are kept, over all devices."""

_calls: OrderedDict[Any, PreparedCall] = OrderedDict()
_lock = threading.Lock()


def prepared_call(
    gpu: GpuDevice, key: Hashable, emit: Callable[[], tuple[Any, Any]]
) -> PreparedCall:
    """The prepared call for `key` on a GPU; on first use made from the (rendered text, launch) that
    `emit` returns.

    Raises: as `emit` and PreparedCall.
    """
    full_key = (id(gpu), key)
    with _lock:
        call = _calls.get(full_key)
        if call is not None:
            _calls.move_to_end(full_key)
            return call
    rendered, launch = emit()
    call = PreparedCall(gpu, launch, rendered.text, template_lines=rendered.template_lines)
    with _lock:
        _calls[full_key] = call
        while len(_calls) > PREPARED_LIMIT:
            _calls.popitem(last=False)
    return call
