"""What the driver's PTX compiler says: registers, spills and notes, read from its log."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ptxgen.assembly_log import EntryUsage, Message, read_messages, read_usage

_BARE = re.compile(r"^(?=(?:info|warning|error|fatal)\s*:)", re.MULTILINE)
"""A severity that a driver printed without the `ptxas` that the offline assembler puts before."""


@dataclass(frozen=True)
class JitLog:
    """The driver's log of one load."""

    info: str
    """Its information log, as it came."""
    error: str
    """Its error log, as it came; empty when the load succeeded without a warning."""
    seconds: float = 0.0
    """How long the load took."""
    truncated: bool = False
    """The log was longer than our buffer."""

    @property
    def text(self) -> str:
        """Both logs, errors first."""
        return "\n".join(part for part in (self.error, self.info) if part)

    @property
    def kernels(self) -> dict[str, EntryUsage]:
        """Resources by entry; empty for a cubin, which is not compiled, or an unknown format."""
        try:
            return {usage.name: usage for usage in read_usage(_BARE.sub("ptxas ", self.info))}
        except ValueError:
            return {}

    def messages(self, template_lines: Sequence[str] | None = None) -> tuple[Message, ...]:
        """Errors, warnings and notes; `template_lines` as for `read_messages`."""
        return read_messages(_BARE.sub("ptxas ", self.text), template_lines)

    @property
    def notes(self) -> tuple[Message, ...]:
        """Messages with a C75xx code: dropped setmaxnreg, serialised wgmma and their like."""
        return tuple(m for m in self.messages() if m.code and m.code.startswith("C75"))

    @property
    def spill_bytes(self) -> int:
        """Bytes of spill stores and loads of all entries."""
        return sum(k.spill_store_bytes + k.spill_load_bytes for k in self.kernels.values())


def decode_log(buffer: bytes | bytearray) -> str:
    """Log text from a buffer that the driver filled: cut at the first NUL, decoded leniently."""
    return bytes(buffer).split(b"\0", 1)[0].decode("utf-8", "replace").strip()
