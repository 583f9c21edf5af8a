"""`ptxgen cache`: the cubins on disk."""

import time

import click

from ptxgen.commands.output import json_option, note, print_json, print_table


@click.group("cache")
def command() -> None:
    """Show or clear the cache of cubins.

    It lies in the user's cache folder, or where PTXGEN_CACHE_DIR says.
    """


@command.command("list")
@json_option
def list_command(as_json: bool) -> None:
    """List the cubins, the one used last first."""
    from ptxgen.cache import MAX_BYTES, cache_dir, list_entries

    entries = list_entries()
    if as_json:
        print_json(
            "ptxgen.cache/1",
            {
                "folder": str(cache_dir()),
                "max_bytes": MAX_BYTES,
                "entries": [
                    {
                        "key": e.key,
                        "bytes": e.nbytes,
                        "used": e.used,
                        "arch": e.arch,
                        "assembler": e.assembler,
                        "entries": e.entries,
                    }
                    for e in entries
                ],
            },
        )
        return
    total = sum(e.nbytes for e in entries)
    print_table(
        f"{cache_dir()}: {len(entries)} cubins, {total} of at most {MAX_BYTES} B",
        ("key", "bytes", "last used", "assembler", "arch", "entries"),
        [
            (
                e.key[:12],
                e.nbytes,
                time.strftime("%Y-%m-%d %H:%M", time.localtime(e.used)),
                e.assembler,
                e.arch,
                ", ".join(e.entries),
            )
            for e in entries
        ],
    )


@command.command("clear")
@json_option
def clear_command(as_json: bool) -> None:
    """Remove all cubins."""
    from ptxgen.cache import cache_dir, clear

    removed = clear()
    if as_json:
        print_json("ptxgen.cache/1", {"folder": str(cache_dir()), "removed": removed})
    else:
        note(f"removed {removed} cubins from {cache_dir()}")
