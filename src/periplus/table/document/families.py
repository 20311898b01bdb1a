"""Groups of arrays in the footer document: what they have in common is written once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import Array
from periplus.parse.json import abbreviated, check_integer, check_list, check_number, check_object
from periplus.table.collection.build import groups_from, joined, no_groups
from periplus.table.collection.groups import Family, GroupColumns, GroupedArrays
from periplus.table.document.arrays import PARTS, read_array, read_name, write_array
from periplus.table.document.encodings import Memory
from periplus.table.document.values import read_free, write_free

OWN = ("shape", "transform", "level", "edges", "parts", "gcps", "rpc")
"""Fields in which arrays of a kind differ; the others make up their prototype."""


def write_families(groups: GroupedArrays) -> dict[str, Any]:
    """The fields `prototypes`, `families` and `notes`."""
    prototypes: dict[str, int] = {}
    families = []
    for number, family in enumerate(groups.families):
        listing = {}
        for rest, array in family.items():
            fields = write_array(array, groups.parts[number].get(rest, 1) if groups.parts else 1)
            own = {name: fields.pop(name) for name in OWN if name in fields}
            like = prototypes.setdefault(json.dumps(fields, allow_nan=False), len(prototypes))
            listing[rest] = {"like": like, **own}
        families.append(listing)
    return {
        "prototypes": [json.loads(text) for text in prototypes],
        "families": families,
        "notes": [write_free(note, "attributes") for note in groups.notes],
    }


def read_families(
    fields: Mapping[str, Any],
    plain: Mapping[str, Array],
    limits: Limits,
    memory: Memory,
    members: Callable[[], GroupColumns] | None,
) -> GroupedArrays:
    """The arrays with those of a collection: its families here, its groups in the files table."""
    families, parts, notes = _read_kinds(fields, limits, memory)
    if members is None:
        raise FormatError("the groups of a collection are in its files table, and there is none")
    return groups_from(members(), plain=plain, families=families, notes=notes, parts=parts)


def _read_kinds(
    fields: Mapping[str, Any], limits: Limits, memory: Memory
) -> tuple[list[Family], list[dict[str, int]], list[Mapping[str, Any]]]:
    """Families, the most parts of their arrays, and notes."""
    prototypes = check_list(fields.get("prototypes", []), "prototypes", check_object)
    families: list[Family] = []
    several: list[dict[str, int]] = []
    for item in check_list(fields.get("families", []), "families", check_object):
        family: dict[str, Array] = {}
        parts: dict[str, int] = {}
        for rest, own in item.items():
            whole_fields = _merged(check_object(own, f"array {abbreviated(rest)}"), prototypes, rest)
            family[rest] = read_array(rest, whole_fields, limits, memory)
            most = check_integer(whole_fields.get("parts", 1), f"array {rest!r}: parts", least=1, most=PARTS)
            if most > 1:
                parts[rest] = most
        families.append(family)
        several.append(parts)
    notes = [read_free(item) for item in check_list(fields.get("notes", []), "notes", check_object)]
    return families, several, notes


def read_groups(fields: Mapping[str, Any], plain: Mapping[str, Array], limits: Limits, memory: Memory) -> GroupedArrays:
    """The arrays with those of the groups that a document of version 2 lists."""
    families, parts, notes = _read_kinds(fields, limits, memory)
    arrangement = fields.get("arrangement")
    stated = arrangement.get("groups") if isinstance(arrangement, Mapping) else None
    files = {group: n for n, group in enumerate(stated) if isinstance(group, str)} if isinstance(stated, list) else {}
    rows = []
    for group, values in check_object(fields.get("groups", {}), "groups").items():
        if not isinstance(values, list | tuple) or len(values) != 4:
            raise FormatError(f"group {abbreviated(group)} is not [family, note, x, y]")
        family = check_integer(values[0], f"group {group!r}: family", most=len(families) - 1)
        note = -1 if values[1] is None else check_integer(values[1], f"group {group!r}: note", most=len(notes) - 1)
        x, y = check_number(values[2], "x"), check_number(values[3], "y")
        rows.append((read_name(group), family, x, y, files.get(group, -1), note))
    several = parts if any(parts) else ()
    groups = joined(no_groups(), rows, plain=plain, families=families, notes=notes, parts=several)
    twice = groups.clash()
    if twice is not None:
        raise FormatError(f"two arrays are named {abbreviated(twice)}")
    return groups


def _merged(own: Mapping[str, Any], prototypes: tuple[Mapping[str, Any], ...], name: str) -> Mapping[str, Any]:
    """All fields of an array: its own, and for the others those of its prototype."""
    if "like" not in own:
        return own
    like = check_integer(own["like"], f"array {name!r}: like", most=len(prototypes) - 1)
    return {**prototypes[like], **{field: value for field, value in own.items() if field != "like"}}
