"""Times of files from their names, and which fields of a pattern an arrangement uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from periplus.arrange.arrangement import FileEntry
from periplus.arrange.compatibility import Misfits
from periplus.arrange.messages import file_name
from periplus.arrange.pattern import NamePattern, parse
from periplus.errors import FormatError


def check_pattern(text: str | None, *, kind: str, dim: str | None, coordinate: str) -> NamePattern | None:
    """Parse a pattern; ValueError if the arrangement would not use one of its fields.

    The time field becomes the datetime of files. A stack uses one more field, which labels its dimension.
    """
    if text is None:
        if coordinate == "pattern":
            raise ValueError("coordinate='pattern' reads labels from file names and needs a pattern=")
        return None
    if not isinstance(text, str):
        raise TypeError(f"pattern= is text such as scene_{{time:%Y%m%d}}, not {text!r}")
    pattern = parse(text)
    if coordinate == "datetime":
        raise ValueError(
            "coordinate='datetime' uses the times in files or catalogues, so pattern= has no effect: omit one"
        )
    label = pattern.label_field(dim) if kind in ("auto", "stack") and coordinate in ("auto", "pattern") else None
    unused = [field for field in pattern.fields if field not in (pattern.time, label)]
    if not unused:
        return pattern
    field = unused[0]
    if label is None:
        where = f"arrange={kind!r}" if coordinate != "order" else "coordinate='order'"
        more = ", or stack along it with arrange='stack'" if coordinate != "order" and pattern.time is None else ""
        raise ValueError(
            f"the field {field!r} of the pattern is not used: {where} reads only a time from file names; write * in "
            f"its place to ignore it{more}"
        )
    raise ValueError(
        f"the field {field!r} of the pattern is not used: a stack has one new dimension, here {dim or label!r}; index "
        f"the files of each {field} on their own, with its text or * in place of the field, or all of them with "
        f"arrange='collect'"
    )


def with_name_times(
    entries: Sequence[FileEntry], pattern: NamePattern, *, skip_misfits: bool
) -> tuple[list[FileEntry], dict[int, str], bool]:
    """Entries with the times in their names; the misfits by number; whether a file itself has another time.

    A name that does not match is an error; with `skip_misfits`, an entry with an error.
    """
    misfits = Misfits(entries, skip_misfits)
    result = list(entries)
    differs = False
    for i, entry in enumerate(entries):
        moment = None if entry.error is not None else _moment(entry, pattern)
        if isinstance(moment, str):
            misfits.add(i, moment if skip_misfits else f"{moment}; skip_misfits=True skips such files")
        elif moment is not None:
            differs = differs or entry.datetime not in (None, moment)
            result[i] = replace(entry, datetime=moment)
    for i, error in misfits.errors.items():
        result[i] = replace(entries[i], error=error)
    return result, misfits.reasons, differs


def _moment(entry: FileEntry, pattern: NamePattern) -> datetime | str | None:
    """The time in the name of a file; None if the pattern has no time; otherwise why the name does not match."""
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
