"""Options of a run: which of them have an effect, how files are arranged, and the times that names of files give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from periplus.arrange import KINDS, FileEntry
from periplus.arrange.mosaic.overlap import MOSAIC_DUPLICATES, MOSAIC_ORDERS
from periplus.arrange.pattern import NamePattern
from periplus.arrange.stack.coordinate import COORDINATES, STACK_DUPLICATES
from periplus.arrange.times import check_pattern, with_name_times
from periplus.errors import ConflictError

OWN_TIMES = "own_times"
"""In the arrangement of an index whose files have the times in their names: whether files contain other times."""


@dataclass(frozen=True, slots=True)
class ArrangeOptions:
    """How the files of a run are arranged."""

    kind: str
    options: Mapping[str, Any]
    recorded_kind: str
    """What the index records as requested: `auto` stays `auto` even if an appending run cannot change the outcome."""
    recorded: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    def record(self, *, look_for_sidecars: bool, checksums: bool) -> dict[str, Any]:
        """The request as an index records it, so that a later run can compare its own with it."""
        given = {name: value for name, value in self.recorded.items() if value is not None}
        scanned = {**({} if look_for_sidecars else {"siblings": False}), **({"checksums": True} if checksums else {})}
        return {"arrange": self.recorded_kind, **given, **scanned}


@dataclass(slots=True)
class NameTimes:
    """The times that a pattern reads from names of files."""

    pattern: NamePattern | None
    differ: bool = False
    """Whether a file contains another time than its name."""

    @property
    def give_times(self) -> bool:
        return self.pattern is not None and self.pattern.time is not None

    def apply(
        self, entries: list[FileEntry], *, skip_misfits: bool, kept: int = 0
    ) -> tuple[list[FileEntry], Mapping[int, str]]:
        """Entries with the times in their names, and those whose names do not match; ConflictError if none matches.

        `kept` is the number of files of the run that are not among the entries.
        """
        if self.pattern is None:
            return entries, {}
        entries, misfits, differ = with_name_times(entries, self.pattern, skip_misfits=skip_misfits)
        self.differ = self.differ or differ
        if misfits and not kept and all(entry.error is not None for entry in entries):
            raise ConflictError(f"no file matches: {next(iter(misfits.values()))}")
        return entries, misfits

    def timed(self, entries: Sequence[FileEntry]) -> Sequence[FileEntry]:
        """Entries of an index with the times in their names."""
        return entries if self.pattern is None else with_name_times(entries, self.pattern, skip_misfits=False)[0]

    def record(self) -> dict[str, bool]:
        """For the arrangement of the index: whether a run without the pattern has to read the times from the files."""
        return {OWN_TIMES: self.differ} if self.give_times else {}


def name_times(kind: str, options: Mapping[str, Any]) -> NameTimes:
    """The times that the names give with these options."""
    chosen = {name: options[name] for name in ("dim", "coordinate")}
    return NameTimes(check_pattern(options["pattern"], kind=kind, **chosen))


def check_options(
    kind: str,
    *,
    dim: Any,
    pattern: str | None,
    coordinate: str,
    duplicates: str,
    order: str,
    skip_misfits: bool,
    append: bool,
) -> None:
    """Raise for options that are invalid or have no effect, before anything is read.

    If files are appended and no arrangement is given, that of the index will be used, which is not known yet.
    """
    undecided = append and kind == "auto"
    rules: tuple[str, ...] = MOSAIC_DUPLICATES if kind == "mosaic" else STACK_DUPLICATES
    if undecided:
        rules = tuple(dict.fromkeys((*STACK_DUPLICATES, *MOSAIC_DUPLICATES)))
    for name, value, allowed in (
        ("arrange", kind, KINDS),
        ("coordinate", coordinate, COORDINATES),
        (f"duplicates= of a {kind}" if kind in ("mosaic", "stack") else "duplicates=", duplicates, rules),
        ("order", order, MOSAIC_ORDERS),
        ("skip_misfits", skip_misfits, (True, False)),
    ):
        if value not in allowed:
            raise ValueError(f"{name} is one of {', '.join(map(str, allowed))}, not {value!r}")
    if order != "given" and kind != "mosaic" and not undecided:
        raise ValueError(f"order= has no effect with arrange={kind!r}: it applies to arrange='mosaic'")
    stacks, plain = kind in ("stack", "auto"), kind == "collect"
    has_pattern = pattern is not None or append  # the index may have a pattern
    for name, given, applies, modes in (
        ("dim", dim is not None, stacks, "'stack'"),
        ("coordinate", coordinate != "auto", stacks, "'stack'"),
        ("duplicates", duplicates != "error", not plain, "'stack' or 'mosaic'"),
        ("skip_misfits", skip_misfits, not plain or has_pattern, "'stack' or 'mosaic', or to a pattern="),
    ):
        if given and not applies:
            raise ValueError(f"{name}= has no effect with arrange={kind!r}: it applies to arrange={modes}")
    if dim == "":
        raise ValueError("dim= is empty; it is the name of a dimension")
    check_pattern(pattern, kind=kind, dim=dim, coordinate=coordinate)
