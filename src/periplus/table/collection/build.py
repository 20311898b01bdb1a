"""Collections into columns: groups and families made from arrays, or from the files table, and all of it checked."""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError
from periplus.model import Array, Catalog, Files
from periplus.table.collection.groups import (
    Family,
    GroupAttributes,
    GroupColumns,
    GroupedArrays,
    GroupParts,
    moved,
    placed,
)

if TYPE_CHECKING:
    import pyarrow as pa

FEWEST = 64
"""Groups from which on columns are worth it."""


def gathered(catalog: Catalog, files: Files, parts: Mapping[str, int]) -> Catalog:
    """The catalog of a collection of many files with its arrays as groups; any other as it is."""
    arrays = catalog.arrays
    column = files.columns.get("group")
    if isinstance(arrays, GroupedArrays):
        groups = _with_parts(_with_files(arrays), parts)
        others = catalog.attributes.plain if isinstance(catalog.attributes, GroupAttributes) else catalog.attributes
        return replace(catalog, arrays=groups, attributes=GroupAttributes(others, groups))
    if catalog.arrangement.get("kind") != "collect" or column is None or len(column) < FEWEST:
        return catalog
    known = {group: number for number, group in enumerate(column) if isinstance(group, str) and group}
    groups = _with_parts(_into(no_groups(), arrays, known, catalog.attributes), parts)
    if not groups.families:
        return catalog
    inside = set(groups.group_list)
    others = {name: stated for name, stated in catalog.attributes.items() if name not in inside}
    return replace(catalog, arrays=groups, attributes=GroupAttributes(others, groups))


def extended(
    groups: GroupedArrays, arrays: Mapping[str, Array], known: Mapping[str, int], attributes: Mapping[str, Any]
) -> GroupedArrays:
    """The groups with more arrays, those of the groups `known` (with the row of their file); what was there stays."""
    more = _into(groups, arrays, known, attributes)
    more.look_up(arrays)
    return more


def no_groups() -> GroupedArrays:
    """No arrays at all."""
    from periplus.table.parquet.buffers import strings

    none = np.empty(0, np.int32)
    return GroupedArrays(names=strings([]), family=none, x=np.empty(0), y=np.empty(0), file=none, note=none)


def _with_files(groups: GroupedArrays) -> GroupedArrays:
    """The groups that have a file; arrays of others, which an index of version 2 may have, are listed one by one."""
    lone = groups.taken(np.flatnonzero(groups.file < 0)) if (groups.file < 0).any() else None
    if lone is None:
        return groups
    return replace(groups.taken(np.flatnonzero(groups.file >= 0)), plain={**groups.plain, **replace(lone, plain={})})


def _with_parts(groups: GroupedArrays, parts: Mapping[str, int]) -> GroupedArrays:
    """The groups with the most parts that an array of each family has."""
    most: list[dict[str, int]] = [dict(known) for known in groups.parts] or [{} for _ in groups.families]
    if isinstance(parts, GroupParts) and parts.groups is groups:
        return groups
    for name, count in parts.items():
        place = None if name in groups.plain else groups.place(name)
        if place is not None and count > 1:
            known = most[groups.family[place[0]]]
            known[place[1]] = max(known.get(place[1], 1), count)
    listed: Sequence[Mapping[str, int]] = most if any(most) else ()
    return groups if list(listed) == list(groups.parts) else replace(groups, parts=listed)


def _into(
    groups: GroupedArrays,
    arrays: Mapping[str, Array],
    known: Mapping[str, int],
    attributes: Mapping[str, Any],
) -> GroupedArrays:
    inside: dict[str, dict[str, Array]] = {}
    plain: dict[str, Array] = dict(groups.plain)
    for name, array in arrays.items():
        at = name.rfind("/")
        while at > 0 and name[:at] not in known:
            at = name.rfind("/", 0, at)
        if at > 0:
            inside.setdefault(name[:at], {})[name[at + 1 :]] = array
        else:
            plain[name] = array
    members = ((group, known[group], found, attributes.get(group)) for group, found in inside.items())
    return _with_members(groups, members, plain)


def grouped(
    names: Sequence[str],
    files: Sequence[int],
    arrays: Sequence[tuple[Array, ...]],
    attributes: Sequence[Mapping[str, Any]],
) -> GroupedArrays:
    """The arrays of files, each in its own group; one item each for the rows `files` of the files table.

    Files whose arrays begin at different places have them one by one.
    """
    plain: dict[str, Array] = {}
    members = []
    for name, file, found, stated in zip(names, files, arrays, attributes, strict=True):
        inside = {array.name: array for array in found}
        if len(inside) < len(found):
            plain |= {f"{name}/{rest}": array.renamed(f"{name}/{rest}") for rest, array in inside.items()}
        elif found:
            members.append((name, file, inside, stated or None))
    return _with_members(no_groups(), members, plain)


def _with_members(
    groups: GroupedArrays,
    members: Iterable[tuple[str, int, Family, Mapping[str, Any] | None]],
    plain: dict[str, Array],
) -> GroupedArrays:
    """The groups with more: name, row of the file, arrays by their names within the group, and attributes.

    Arrays of a group that begin at different places are added to `plain`, which replaces the arrays in no group.
    """
    kept: list[Family] = list(groups.families)
    families = {_kind(family): number for number, family in enumerate(kept)}
    notes = list(groups.notes)
    numbers = {id(note): number for number, note in enumerate(notes)}  # groups that are alike share their attributes
    rows: list[tuple[str, int, float, float, int, int]] = []
    for group, file, found, stated in members:
        corners = {corner for array in found.values() if (corner := _corner(array)) is not None}
        if len(corners) > 1:
            plain |= {f"{group}/{rest}": array.renamed(f"{group}/{rest}") for rest, array in found.items()}
            continue
        x, y = corners.pop() if corners else (0.0, 0.0)
        number = families.setdefault(_kind(found), len(kept))
        if number == len(kept):
            kept.append({rest: moved(array.renamed(rest), 0.0, 0.0) for rest, array in found.items()})
        note = -1 if stated is None else numbers.setdefault(id(stated), len(notes))
        notes += [stated] if stated is not None and note == len(notes) else []
        rows.append((group, number, x, y, file, note))
    return joined(groups, rows, plain=plain, families=kept, notes=notes)


def joined(
    groups: GroupedArrays, rows: Sequence[tuple[str, int, float, float, int, int]], **changes: Any
) -> GroupedArrays:
    """The groups with more rows: name, family, x, y, file, note."""
    import pyarrow as pa

    from periplus.table.parquet.buffers import strings

    more: list[tuple[Any, ...]] = list(zip(*rows, strict=True)) or [()] * 6
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(groups, name), np.array(values, getattr(groups, name).dtype)])
        for name, values in zip(("family", "x", "y", "file", "note"), more[1:], strict=True)
    }
    names = strings(more[0])
    return replace(groups, names=pa.concat_arrays([groups.names, names]), **columns, **changes)


def _kind(family: Family) -> tuple[Any, ...]:
    """Equal for groups of one family. Anything else is compared by identity."""
    return tuple((rest, likeness(a) or id(a)) for rest, a in family.items())


def _corner(array: Array) -> tuple[float, float] | None:
    place = array.georeference
    return None if place is None or place.transform is None else (place.transform[2], place.transform[5])


def likeness(array: Array) -> bytes | None:
    """Equal for arrays that differ in name and corner alone; None for what cannot be compared so."""
    place = array.georeference
    stated: Any = (array.dims, array.shape, array.chunks, array.dtype.str, array.level, array.edges)
    stated = (*stated, array.fill, tuple([encoding.plain for encoding in array.encodings]), array.attributes)
    if place is not None:
        if place.gcps or place.rpc is not None:
            return None
        stated = (
            *stated,
            place.crs,
            place.registration,
            place.transform and (*place.transform[:2], *place.transform[3:5]),
        )
    try:
        return marshal.dumps(stated, 2)
    except ValueError:
        return None  # it holds something that is not plain


# --- in the files table -----------------------------------------------------------------------------------------------


def members_of(groups: GroupedArrays, count: int) -> GroupColumns:
    """The group columns of a files table of `count` files; FormatError for groups that share a file."""
    from periplus.table.parquet.buffers import numbers

    file = groups.file
    if len(file) and (file.min() < 0 or file.max() >= count or np.bincount(file).max() > 1):
        raise FormatError("each group of a collection needs its own file")
    row = np.full(count, -1, np.int64)
    row[file] = np.arange(len(file))
    none = row < 0
    there = np.array([placed(family) for family in groups.families], bool)[groups.family]

    def spread(values: NDArray[Any], missing: Any) -> NDArray[Any]:
        answer = np.full(count, missing, values.dtype)
        answer[file] = values
        return answer

    return GroupColumns(
        group=groups.names.take(numbers(np.maximum(row, 0), valid=~none)),
        family=spread(groups.family, -1),
        x=spread(np.where(there, groups.x, np.nan), np.nan),
        y=spread(np.where(there, groups.y, np.nan), np.nan),
        note=spread(groups.note, -1),
    )


def groups_from(
    members: GroupColumns,
    *,
    plain: Mapping[str, Array],
    families: Sequence[Family],
    notes: Sequence[Mapping[str, Any]],
    parts: Sequence[Mapping[str, int]],
) -> GroupedArrays:
    """The arrays of a collection from the columns of its files table, everything checked: FormatError."""
    from periplus.table.parquet.buffers import numbers, to_valid

    count = len(members.family)
    if any(len(column) != count for column in members):
        raise FormatError("the group columns of the files table differ in length")
    file = np.flatnonzero(members.family != -1)
    family, note = members.family[file], members.note[file]
    if file.size and (family.min() < 0 or family.max() >= len(families)):
        worst = int(family[(family < 0) | (family >= len(families))][0])
        raise FormatError(f"the files table has family {worst} where {len(families)} are listed")
    if file.size and (note.min() < -1 or note.max() >= len(notes)):
        raise FormatError(f"the files table has note {int(note.max())} where {len(notes)} are listed")
    if not to_valid(members.group)[file].all():
        raise FormatError("a file of a family has no group")
    there = np.array([placed(one) for one in families], bool)[family]
    x, y = np.where(there, members.x[file], 0.0), np.where(there, members.y[file], 0.0)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise FormatError("the files table has an x or y that is not a finite number")
    names = members.group if len(file) == count else members.group.take(numbers(file))
    check_names(names)
    groups = GroupedArrays(
        plain=plain,
        families=families,
        names=names,
        family=family,
        x=x,
        y=y,
        file=file.astype(np.int32),
        note=note,
        notes=notes,
        parts=parts if any(parts) else (),
    )
    twice = groups.clash()
    if twice is not None:
        raise FormatError(f"two arrays are named {twice!r:.80}")
    return groups


LONGEST = 4096
"""Characters of a name."""


def check_names(names: pa.Array) -> None:
    """FormatError where one of many names breaks the rules of `read_name`, or there is one twice."""
    import pyarrow.compute as pc

    count = len(names)
    if not count:
        return
    _, ends, data = names.buffers()
    stops = np.frombuffer(ends, np.int32, count=count + 1, offset=names.offset * 4).astype(np.int64)
    if stops[0] < 0 or (np.diff(stops) < 0).any() or stops[-1] > (0 if data is None else data.size):
        raise FormatError("the names of the groups are damaged")
    held = np.frombuffer(data if data is not None else b"", np.uint8)[stops[0] : stops[-1]]
    try:
        held.tobytes().decode()
    except UnicodeDecodeError:
        raise FormatError("the name of a group is not UTF-8") from None
    stops = stops - stops[0]
    inside = stops[:-1] < len(held)
    if (held[stops[:-1][inside]] & 0xC0 == 0x80).any():
        raise FormatError("the name of a group is not UTF-8")
    # Segments end at slashes and where names end: none is empty, `.` or `..`.
    slashes = np.flatnonzero(held == ord("/"))
    begins = np.sort(np.concatenate([stops[:-1], slashes + 1]), kind="stable")  # two runs, each in order
    length = np.sort(np.concatenate([stops[1:], slashes]), kind="stable") - begins
    dots = np.concatenate([held, np.zeros(2, np.uint8)]) == ord(".")
    odd = (length < 1) | ((length == 1) & dots[begins]) | ((length == 2) & dots[begins] & dots[begins + 1])
    banned = np.flatnonzero((held == ord("\\")) | (held < 32) | (held == 127))
    if odd.any() or banned.size:
        segments = np.repeat(np.arange(count), 1 + np.diff(np.searchsorted(slashes, stops)))
        row = int(segments[odd][0] if odd.any() else np.searchsorted(stops, banned[0], side="right") - 1)
        raise FormatError(f"{names[row].as_py()!r:.80} cannot be a name")
    if int(pc.max(pc.utf8_length(names)).as_py()) > LONGEST:
        raise FormatError("a group has too long a name")
    if len(names.unique()) != count:
        raise FormatError("two files are in the same group")
