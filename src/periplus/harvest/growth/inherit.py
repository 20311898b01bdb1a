"""Options of a run that appends to an index: those that are not given are taken from the index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from periplus.arrange.mosaic.overlap import MOSAIC_DUPLICATES, MOSAIC_ORDERS
from periplus.arrange.stack.coordinate import COORDINATES, STACK_DUPLICATES
from periplus.errors import ConflictError
from periplus.harvest.growth.stored import StoredIndex
from periplus.harvest.options import ArrangeOptions, name_times


def inherit_options(index: StoredIndex, kind: str, options: Mapping[str, Any], url: str) -> ArrangeOptions:
    """How to arrange the files of the index and the appended ones; another arrangement than that of the index is new.

    ConflictError if the pattern is not the one that the names of the index were read with, or if there is none and the
    index does not have the times that its files contain.
    """
    found = _merge_options(index, kind, options)
    if index.lost_times and not name_times(found.recorded_kind, found.recorded).give_times:
        raise ConflictError(
            "the files of this index have the times in their names: give a pattern= with a time to append to it",
            url=url,
        )
    return found


def _merge_options(index: StoredIndex, kind: str, options: Mapping[str, Any]) -> ArrangeOptions:
    stored = _stored_kind(index)
    if kind not in ("auto", stored):
        chosen = _with_pattern(index, kind, options)
        notes = [_same_pattern(chosen)] if chosen != options else []
        if stored is not None:
            notes.append(f"all files are arranged again with arrange={kind!r} instead of arrange={stored!r}")
        return ArrangeOptions(kind, chosen, kind, chosen, tuple(notes))
    before, given = index.pattern, options["pattern"]
    if before is not None and given not in (None, before.text):
        raise ConflictError(
            f"this index was made with pattern={before.text!r}, not {given!r}; append uses the pattern of the index: "
            "omit the other, or write a new index for files with other names"
        )
    asked, notes = _merged(index, stored, options), []
    if before is not None and given is None and options["coordinate"] in ("auto", asked["coordinate"]):
        asked["pattern"] = before.text
        notes.append(_same_pattern(asked))
    if before is None and given is not None:
        notes.append("the pattern applies to all files, including those already in the index")
    automatic = kind == "auto" and index.asked.get("arrange") == "auto"
    if automatic and stored == "collect":
        notes.append("the index is a collection and stays one; give all files without append= to arrange them again")
    asked_kind = "auto" if automatic else stored or kind
    return ArrangeOptions(stored or kind, _effective(index, stored, asked, given), asked_kind, asked, tuple(notes))


def _stored_kind(index: StoredIndex) -> str | None:
    """The arrangement of an index; None if it has a single file, for which none was chosen."""
    undecided = index.kind == "collect" and index.count < 2 and index.asked.get("arrange") == "auto"
    return None if undecided or not index.kind else index.kind


def _merged(index: StoredIndex, stored: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with defaults replaced by those of the index."""
    mosaic = stored == "mosaic"
    allowed = {
        "coordinate": COORDINATES,
        "duplicates": MOSAIC_DUPLICATES if mosaic else STACK_DUPLICATES,
        "order": MOSAIC_ORDERS if mosaic else (),
    }
    found = dict(options)
    for name, default in (("dim", None), ("coordinate", "auto"), ("duplicates", "error"), ("order", None)):
        value = index.asked.get(name)
        if options.get(name) == default and isinstance(value, str) and value in allowed.get(name, (value or None,)):
            found[name] = value
    return found


def _effective(index: StoredIndex, stored: str | None, asked: Mapping[str, Any], given: str | None) -> dict[str, Any]:
    """Options with the dimension and coordinate that `auto` chose for a stack."""
    found, arrangement = dict(asked), index.arrangement
    if stored != "stack" or (given is not None and index.pattern is None):
        return found
    dim, way = arrangement.get("dim"), arrangement.get("coordinate")
    if found["dim"] is None and isinstance(dim, str):
        found["dim"] = dim
    if found["coordinate"] == "auto" and way in COORDINATES and (way == "pattern") == (found["pattern"] is not None):
        found["coordinate"] = way
    return found


def _with_pattern(index: StoredIndex, kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of another arrangement, with the pattern of the index if none is given."""
    if options["pattern"] is not None or options["coordinate"] != "auto" or index.pattern is None:
        return dict(options)
    chosen: dict[str, Any] = {**options, "pattern": index.pattern.text}
    if kind == "stack":
        before = {"dim": options["dim"] or index.asked.get("dim"), "coordinate": index.asked.get("coordinate")}
        chosen |= {name: value for name, value in before.items() if isinstance(value, str)}
    try:
        name_times(kind, chosen)
    except ValueError as error:
        if index.pattern.time is None:
            return dict(options)  # without the pattern, files lose nothing
        raise ValueError(f"the index has pattern={index.pattern.text!r}; give a pattern= as well: {error}") from None
    return chosen


def _same_pattern(options: Mapping[str, Any]) -> str:
    return f"names are read with the pattern of the index, pattern={options['pattern']!r}"
