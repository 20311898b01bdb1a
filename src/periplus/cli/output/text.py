"""Format numbers and tables as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

TIMES = "×"


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Aligned columns; numbers right-aligned, everything else left-aligned."""
    body = [list(row) for row in rows]
    cells = [[_cell(value) for value in row] for row in body]
    widths = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(header)]
    right = [bool(body) and all(isinstance(row[i], int | float | None) for row in body) for i in range(len(header))]
    lines = [
        "  ".join(
            cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in (list(header), *cells)
    ]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.10g}"
    return clean(str(value))


def size(count: int) -> str:
    """Bytes as a short number with a unit."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.3g} {unit}" if unit != "B" else f"{count} B"
        value /= 1000
    return f"{value:,.3g} TB" if value < 1000 else f"{value:,.0f} TB"


def count(number: int, noun: str) -> str:
    """`1 file`, `2,556 files`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def extent(shape: Sequence[int]) -> str:
    """`24 × 3 × 2048 × 2048`."""
    return f" {TIMES} ".join(str(n) for n in shape)


def clean(text: str) -> str:
    """The text without control characters, which file names may contain and a terminal would interpret."""
    return "".join(c if c.isprintable() else "�" for c in text)


def printable(text: str) -> str:
    """The text on one line, without control characters."""
    return clean(" ".join(text.split()))
