"""arrange: lay files into global arrays. Pure: descriptions and references in, a catalog and references out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from periplus.arrange.axis import read_axis
from periplus.arrange.collect import collect
from periplus.arrange.entry import Arrangement, Entry, Lookup, files_of
from periplus.arrange.extend import extend
from periplus.arrange.stack import misfit, stack
from periplus.errors import ConflictError, FormatError

KINDS = ("auto", "collect", "stack")

__all__ = ["KINDS", "Arrangement", "Entry", "Lookup", "arrange", "collect", "extend", "files_of", "stack"]


def arrange(entries: Sequence[Entry], refs: Lookup, *, kind: str = "auto", **options: Any) -> Arrangement:
    """Lay files into arrays: `collect`, `stack` (its options are those of `stack`), or `auto`.

    `auto` stacks when there are several files of one grid and each has a coordinate of its own (from `pattern`, from a
    catalogue, or from the file's own DateTime); otherwise it collects. One file is always collected, under plain names.
    """
    if kind not in KINDS:
        raise FormatError(f"arrange is one of {', '.join(KINDS)}, not {kind!r}")
    if kind == "stack":
        return stack(entries, refs, **options)
    if kind == "auto" and _stackable(entries, **options):
        try:
            return stack(entries, refs, **options)
        except ConflictError as error:
            # What no cheap look could tell (equal coordinates, holes that would be lost): these files are no stack.
            return replace(collect(entries, refs), warnings=(f"not stacked: {error.message}",))
    return collect(entries, refs)


def _stackable(
    entries: Sequence[Entry], *, dim: str | None = None, pattern: str | None = None, coordinate: str = "auto", **_: Any
) -> bool:
    good = [i for i, entry in enumerate(entries) if entry.error is None]
    if len(good) < 2:
        return False
    axis = read_axis(entries, good, dim=dim, pattern=pattern, way=coordinate)
    if axis.misfits or (axis.way == "order" and coordinate != "order"):
        return False
    first: dict[str | None, Entry] = {}
    judged: set[int] = set()
    for i in good:
        entry = entries[i]
        reference = first.setdefault(entry.series, entry)
        if id(entry.arrays) not in judged and misfit(entry.arrays, reference.arrays) is not None:
            return False
        judged.add(id(entry.arrays))
    return True
