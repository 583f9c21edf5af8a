"""Draw one CTA of a trace that `ptxgen check --trace` wrote, coloured by the tile that work is for.

Run: python scripts/timeline_svg.py TRACE.json [--cta 0] [--epilogue FILLED] > picture.svg
--epilogue  label of the code that an epilogue warp runs once per tile; it counts the tiles
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

WIDTH, LEFT, ROW, GAP, TOP = 940, 150, 22, 6, 58
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2")
ASYNC = {"tma_load": "TMA loads", "tcgen05_mma": "tcgen05.mma", "tma_store": "TMA stores"}
"""Asynchronous work that is drawn, and what its row is called."""


def operations(events: list[dict[str, Any]], kind: str) -> list[tuple[int, int]]:
    """(begin, end) of all operations of a kind in the order in which they were issued."""
    ends = {e["id"]: e["ts"] for e in events if e["ph"] == "e" and e["name"] == kind}
    begun = [(e["ts"], ends[e["id"]]) for e in events if e["ph"] == "b" and e["name"] == kind]
    return sorted(begun)


def epilogues(events: list[dict[str, Any]], label: str) -> dict[int, list[tuple[int, int]]]:
    """Warp -> (begin, end) of its epilogues, one for each tile."""
    found: dict[int, list[tuple[int, int]]] = {}
    for e in sorted((e for e in events if e["ph"] == "X"), key=lambda e: e["ts"]):
        if e["name"] == label and e["cat"] == "code":
            found.setdefault(e["tid"], []).append((e["ts"], e["ts"] + e["dur"]))
    return found


def rows_of(events: list[dict[str, Any]], label: str) -> list[tuple[str, list[tuple[int, ...]]]]:
    """(name, [(begin, end, tile)]) of each row, in the order in which work flows."""
    warps = epilogues(events, label)
    if not warps:
        sys.exit(f"no code labelled {label!r} in this CTA; try another --cta or --epilogue")
    tiles = max(map(len, warps.values()))
    rows: dict[str, list[tuple[int, ...]]] = {}
    for kind, name in ASYNC.items():
        found = operations(events, kind)
        rows[name] = [(*x, i * tiles // len(found)) for i, x in enumerate(found)]
    between = [(f"epilogue warp {w}", [(*x, i) for i, x in enumerate(found)])
               for w, found in sorted(warps.items())]  # fmt: skip
    return [("TMA loads", rows["TMA loads"]), ("tcgen05.mma", rows["tcgen05.mma"]), *between,
            ("TMA stores", rows["TMA stores"])]  # fmt: skip


def draw(rows: list[tuple[str, list[tuple[int, ...]]]], title: str) -> str:
    """The picture as SVG text."""
    first = min(x[0] for _, bars in rows for x in bars)
    last = max(x[1] for _, bars in rows for x in bars)
    scale = (WIDTH - LEFT - 20) / (last - first)
    height = TOP + len(rows) * (ROW + GAP) + 20
    tiles = 1 + max(x[2] for _, bars in rows for x in bars)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="system-ui, sans-serif" font-size="13" role="img" aria-label="{title}">',
        f'  <rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'  <text x="10" y="20" fill="#333">{title}</text>',
    ]
    for tile in range(tiles):
        x, colour = LEFT + 90 * tile, COLOURS[tile % len(COLOURS)]
        out.append(f'  <rect x="{x}" y="32" width="14" height="14" fill="{colour}"/>')
        out.append(f'  <text x="{x + 20}" y="44" fill="#333">tile {tile}</text>')
    for number, (name, bars) in enumerate(rows):
        y = TOP + number * (ROW + GAP)
        out.append(f'  <text x="10" y="{y + 16}" fill="#333">{name}</text>')
        out.append(f'  <rect x="{LEFT}" y="{y}" width="{WIDTH - LEFT - 20}" height="{ROW}" '
                   'fill="#f3f3f3"/>')  # fmt: skip
        for begin, end, tile in bars:
            x, wide = LEFT + (begin - first) * scale, max(1.5, (end - begin) * scale)
            out.append(f'  <rect x="{x:.1f}" y="{y + 2}" width="{wide:.1f}" height="{ROW - 4}" '
                       f'fill="{COLOURS[tile % len(COLOURS)]}" fill-opacity="0.7"/>')  # fmt: skip
    return "\n".join([*out, "</svg>", ""])


def main() -> None:
    """Read the trace and print the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--cta", type=int, default=0)
    parser.add_argument("--epilogue", default="FILLED")
    arguments = parser.parse_args()
    trace = json.loads(arguments.trace.read_text(encoding="utf-8"))
    events = [e for e in trace["traceEvents"] if e["pid"] == arguments.cta]
    title = f"CTA {arguments.cta}: logical time, one unit per warp instruction of the whole grid"
    sys.stdout.write(draw(rows_of(events, arguments.epilogue), title))


if __name__ == "__main__":
    main()
