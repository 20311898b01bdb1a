"""Groups of arrays in the footer document: what they have in common is written once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import Array, Pipeline
from periplus.table.arrays import PARTS, read_array, read_name, write_array
from periplus.table.families import Family, Groups, Member
from periplus.table.values import listed, mapped, read_free, real, shown, whole, write_free

OWN = ("shape", "transform", "level", "edges", "parts", "gcps", "rpc")
"""Fields in which arrays of a kind differ; the others make up their prototype."""


def write_groups(groups: Groups, attributes: dict[str, Any], parts: Mapping[str, int]) -> dict[str, Any]:
    """The fields `prototypes`, `families`, `notes` and `groups`; attributes of groups are taken out of `attributes`."""
    prototypes: dict[str, int] = {}
    families = []
    most = _most_parts(groups, parts)
    for number, family in enumerate(groups.families):
        told = {}
        for rest, array in family.items():
            fields = write_array(array, most.get((number, rest), 1))
            own = {name: fields.pop(name) for name in OWN if name in fields}
            like = prototypes.setdefault(json.dumps(fields, allow_nan=False), len(prototypes))
            told[rest] = {"like": like, **own}
        families.append(told)
    notes: dict[str, int] = {}
    known: dict[int, tuple[Any, int]] = {}  # by identity: groups that are alike share what is said of them
    members: dict[str, list[Any]] = {}
    for group, member in groups.members.items():
        note = None
        if group in attributes:
            free = attributes.pop(group)
            if id(free) not in known:
                said = json.dumps(write_free(free, "attributes"), allow_nan=False)
                known[id(free)] = free, notes.setdefault(said, len(notes))
            note = known[id(free)][1]
        members[group] = [member.family, note, float(member.x), float(member.y)]
    return {
        "prototypes": [json.loads(text) for text in prototypes],
        "families": families,
        "notes": [json.loads(text) for text in notes],
        "groups": members,
    }


def _most_parts(groups: Groups, parts: Mapping[str, int]) -> dict[tuple[int, str], int]:
    """Most parts of a chunk, by family and name: the most that any of its groups has."""
    most: dict[tuple[int, str], int] = {}
    for name, count in parts.items():
        place = None if name in groups.plain else groups.place(name)
        if place is not None:
            key = place[0].family, place[1]
            most[key] = max(most.get(key, 1), count)
    return most


def read_groups(
    fields: Mapping[str, Any], plain: Mapping[str, Array], limits: Limits, memory: dict[str, tuple[Pipeline, ...]]
) -> tuple[Groups, dict[str, Any], dict[str, int]]:
    """The arrays with those of groups, attributes of groups, and most parts of arrays that have several."""
    prototypes = listed(fields.get("prototypes", []), "prototypes", lambda item, at: mapped(item, at))
    families: list[Family] = []
    several: list[dict[str, int]] = []
    for item in listed(fields.get("families", []), "families", lambda item, at: mapped(item, at)):
        family: dict[str, Array] = {}
        parts: dict[str, int] = {}
        for rest, own in item.items():
            whole_fields = _merged(mapped(own, f"array {shown(rest)}"), prototypes, rest)
            family[rest] = read_array(rest, whole_fields, limits, memory)
            if "parts" in whole_fields:
                parts[rest] = whole(whole_fields["parts"], f"array {rest!r}: parts", least=1, most=PARTS)
        families.append(family)
        several.append(parts)
    notes = [read_free(item) for item in listed(fields.get("notes", []), "notes", lambda item, at: mapped(item, at))]
    members: dict[str, Member] = {}
    attributes: dict[str, Any] = {}
    most: dict[str, int] = {}
    for group, told in mapped(fields.get("groups", {}), "groups").items():
        if not isinstance(told, list | tuple) or len(told) != 4:
            raise FormatError(f"group {shown(group)} is not [family, note, x, y]")
        number = whole(told[0], f"group {group!r}: family", most=len(families) - 1)
        members[read_name(group)] = Member(number, real(told[2], "x"), real(told[3], "y"))
        if told[1] is not None:
            attributes[group] = notes[whole(told[1], f"group {group!r}: note", most=len(notes) - 1)]
        most |= {f"{group}/{rest}": count for rest, count in several[number].items()}
    groups = Groups(plain, families, members)
    twice = groups.clash()
    if twice is not None:
        raise FormatError(f"two arrays are named {shown(twice)}")
    return groups, attributes, most


def _merged(own: Mapping[str, Any], prototypes: tuple[Mapping[str, Any], ...], name: str) -> Mapping[str, Any]:
    """All fields of an array: its own, and for the others those of its prototype."""
    if "like" not in own:
        return own
    like = whole(own["like"], f"array {name!r}: like", most=len(prototypes) - 1)
    return {**prototypes[like], **{field: value for field, value in own.items() if field != "like"}}
