"""Options of a run that adds files to an index: what is not given is as the index has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from periplus.arrange.mosaic.overlap import MOSAIC_DUPLICATES, MOSAIC_ORDERS
from periplus.arrange.stack.coordinate import COORDINATES, STACK_DUPLICATES
from periplus.errors import ConflictError
from periplus.harvest.growth.stored import StoredIndex
from periplus.harvest.names import Names, named


@dataclass(frozen=True, slots=True)
class Plan:
    """How the files of an index and those added to it are arranged."""

    kind: str
    options: dict[str, Any]
    asked_kind: str
    """What the index records as asked for: `auto` stays `auto`, although its outcome does not change any more."""
    asked: dict[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> Names:
        """What the pattern gives the files."""
        return named(self.asked_kind, self.asked)


def inherited(index: StoredIndex, kind: str, options: Mapping[str, Any], url: str) -> Plan:
    """The plan of a run that adds files; an arrangement that is given and differs from that of the index is a new one.

    ConflictError where another pattern is given than the one that the names of the index were read by, or none where
    its files lost the times of their own.
    """
    plan = _plan(index, kind, options)
    if index.lost_times and not plan.names.give_times:
        raise ConflictError(
            "the files of this index have the times in their names: give a pattern= with a time to add to it", url=url
        )
    return plan


def _plan(index: StoredIndex, kind: str, options: Mapping[str, Any]) -> Plan:
    stored = _stored_kind(index)
    if kind not in ("auto", stored):
        chosen = _with_pattern(index, kind, options)
        notes = [_as_before(chosen)] if chosen != options else []
        if stored is not None:
            notes.append(f"all files are arranged again by arrange={kind!r}; they were by arrange={stored!r}")
        return Plan(kind, chosen, kind, chosen, tuple(notes))
    before, given = index.pattern, options["pattern"]
    if before is not None and given not in (None, before.text):
        raise ConflictError(
            f"this index was made with pattern={before.text!r}, not {given!r}; append reads names by it, so leave "
            "the other out, or write a new index for files with other names"
        )
    asked, notes = _merged(index, stored, options), []
    if before is not None and given is None and options["coordinate"] in ("auto", asked["coordinate"]):
        asked["pattern"] = before.text
        notes.append(_as_before(asked))
    if before is None and given is not None:
        notes.append("the pattern gives all files their times or labels, also those that the index had")
    automatic = kind == "auto" and index.asked.get("arrange") == "auto"
    if automatic and stored == "collect":
        notes.append("the index is a collection and stays one; to arrange all files again, name them without append=")
    asked_kind = "auto" if automatic else stored or kind
    return Plan(stored or kind, _effective(index, stored, asked, given), asked_kind, asked, tuple(notes))


def _stored_kind(index: StoredIndex) -> str | None:
    """The arrangement of an index; None where it has one file, for which none was chosen."""
    open_still = index.kind == "collect" and index.count < 2 and index.asked.get("arrange") == "auto"
    return None if open_still or not index.kind else index.kind


def _merged(index: StoredIndex, stored: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with those that the index was made with in place of defaults."""
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
    """Options with what was chosen automatically for the stack that the index is."""
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
    """Options of another arrangement, with the pattern of the index where none is given."""
    if options["pattern"] is not None or options["coordinate"] != "auto" or index.pattern is None:
        return dict(options)
    chosen: dict[str, Any] = {**options, "pattern": index.pattern.text}
    if kind == "stack":
        before = {"dim": options["dim"] or index.asked.get("dim"), "coordinate": index.asked.get("coordinate")}
        chosen |= {name: value for name, value in before.items() if isinstance(value, str)}
    try:
        named(kind, chosen)
    except ValueError as error:
        if index.pattern.time is None:
            return dict(options)  # it gives files nothing that they would lose
        raise ValueError(f"the index has pattern={index.pattern.text!r}, so give a pattern= too: {error}") from None
    return chosen


def _as_before(options: Mapping[str, Any]) -> str:
    return f"names are read as before, by pattern={options['pattern']!r}"
