"""Files that appear whole or not at all."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
"""What a write to an open file fails with: no room, a limit, a fault, or it is closed."""


def is_write_error(error: OSError) -> bool:
    """Whether a write to an open file failed. Such an error, unlike those of paths, names none."""
    return error.filename is None and error.errno in NOT_WRITTEN


def discard(stream: IO[str]) -> None:
    """Let what `stream` still holds, and all that follows, go nowhere: it cannot be written."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write that takes the place of `path` when the block ends well.

    The temporary file is made at once beside `path`, so a place that cannot be written is known
    before any work is done. Nothing is left behind if the block fails.

    Raises: OSError if `path` cannot be written.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        if target.is_dir():
            raise IsADirectoryError(None, "it is a folder", str(path))
        with target.open("wb") as file:  # a pipe or device cannot be replaced
            yield file
        return
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(None, "the file there is read-only", str(path))
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".ptxgen-", delete=False) as file:
        temporary = Path(file.name)
        try:
            yield file
            file.flush()
            umask = os.umask(0)
            os.umask(umask)
            temporary.chmod(0o666 & ~umask)
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
