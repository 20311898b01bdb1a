"""The time of each file from its name, and which fields of a pattern an arrangement uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from periplus.arrange.entry import Entry
from periplus.arrange.messages import file_name
from periplus.arrange.misfits import Misfits
from periplus.arrange.pattern import Pattern, parse
from periplus.errors import FormatError


def check_pattern(text: str | None, *, kind: str, dim: str | None, coordinate: str) -> Pattern | None:
    """Parse a pattern; ValueError for a field that arranging in this way would not use.

    The time of a pattern becomes the datetime of files. A stack uses one field more: the one that labels its dimension.
    """
    if text is None:
        if coordinate == "pattern":
            raise ValueError("coordinate='pattern' takes labels from file names: give a pattern=")
        return None
    pattern = parse(text)
    if coordinate == "datetime":
        raise ValueError("coordinate='datetime' takes the files' own times, so pattern= has no effect: leave one out")
    label = pattern.along(dim) if kind in ("auto", "stack") and coordinate in ("auto", "pattern") else None
    unused = [field for field in pattern.fields if field not in (pattern.time, label)]
    if not unused:
        return pattern
    field = unused[0]
    if label is None:
        where = f"arrange={kind!r}" if coordinate != "order" else "coordinate='order'"
        more = ", or stack along it with arrange='stack'" if coordinate != "order" and pattern.time is None else ""
        raise ValueError(
            f"the field {field!r} of the pattern is not used: {where} takes only a time from file names; write * in "
            f"its place to ignore it{more}"
        )
    raise ValueError(
        f"the field {field!r} of the pattern is not used: a stack has one new dimension, here {dim or label!r}; index "
        f"the files of each {field} on their own, with its text or * in place of the field, or all of them with "
        f"arrange='collect'"
    )


def timed(
    entries: Sequence[Entry], pattern: Pattern, *, skip_misfits: bool
) -> tuple[list[Entry], dict[int, str], bool]:
    """Entries with the times that their names give; misfits by number; whether a file had another time of its own.

    A file whose name does not match is an error, with `skip_misfits` an entry with an error.
    """
    misfits = Misfits(entries, skip_misfits)
    result = list(entries)
    own = False
    for i, entry in enumerate(entries):
        moment = None if entry.error is not None else _moment(entry, pattern)
        if isinstance(moment, str):
            misfits.add(i, moment if skip_misfits else f"{moment}; skip_misfits=True leaves such files out")
        elif moment is not None:
            own = own or entry.datetime not in (None, moment)
            result[i] = replace(entry, datetime=moment)
    for i, error in misfits.errors.items():
        result[i] = replace(entries[i], error=error)
    return result, misfits.why, own


def _moment(entry: Entry, pattern: Pattern) -> datetime | str | None:
    """The time in a file's name, aware; None where the pattern has no time, or why the name does not match."""
    url = entry.source.url
    found = pattern.match(url)
    try:
        if found is not None and pattern.time is None:
            return None
        value = None if found is None else pattern.value(found, pattern.time or "", url)
    except FormatError as error:
        return f"{file_name(entry)}: {error.message}"
    if not isinstance(value, np.datetime64):
        return f"{file_name(entry)} does not match the pattern {pattern.text!r}"
    moment: datetime = value.astype("datetime64[us]").item()
    return moment.replace(tzinfo=UTC)
