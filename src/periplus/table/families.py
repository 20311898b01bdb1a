"""Many files of few kinds: their arrays told once for each kind, and made when they are asked for."""

from __future__ import annotations

import marshal
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from periplus.model import Array, Catalog

FEWEST = 64
"""Groups from which on it is worth it."""


class Member(NamedTuple):
    """A group: which family its arrays are of, and the corner that their transforms share."""

    family: int
    x: float = 0.0
    y: float = 0.0


Family = Mapping[str, Array]
"""Arrays by their names within a group; transforms begin at (0, 0)."""


@dataclass(frozen=True, slots=True, eq=False)
class Groups(Mapping[str, Array]):
    """Arrays by path, where groups of them are alike: a hundred thousand files take no memory for their arrays."""

    plain: Mapping[str, Array]
    """Arrays that are in no group."""
    families: Sequence[Family]
    members: Mapping[str, Member]
    """By path of the group."""
    _count: int = field(init=False)

    def __post_init__(self) -> None:
        sizes = [len(family) for family in self.families]
        count = len(self.plain) + sum(sizes[member.family] for member in self.members.values())
        object.__setattr__(self, "_count", count)

    def __getitem__(self, name: str) -> Array:
        if name in self.plain:
            return self.plain[name]
        place = self.place(name)
        if place is None:
            raise KeyError(name)
        member, rest = place
        return moved(self.families[member.family][rest].renamed(name), member.x, member.y)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self.plain or self.place(name) is not None)

    def __iter__(self) -> Iterator[str]:
        yield from self.plain
        for group, member in self.members.items():
            for rest in self.families[member.family]:
                yield f"{group}/{rest}"

    def __len__(self) -> int:
        return self._count

    def place(self, name: str) -> tuple[Member, str] | None:
        """The group an array is in, and its name there."""
        at = name.rfind("/")
        while at > 0:
            member = self.members.get(name[:at])
            if member is not None and name[at + 1 :] in self.families[member.family]:
                return member, name[at + 1 :]
            at = name.rfind("/", 0, at)
        return None

    def clash(self) -> str | None:
        """A name that two arrays would have; None where there is none."""
        for name in self.plain:
            if self.place(name) is not None:
                return name
        for group, member in self.members.items():
            at = group.rfind("/")
            while at > 0:
                outer = self.members.get(group[:at])
                for rest in self.families[member.family] if outer is not None else ():
                    inner = f"{group[at + 1 :]}/{rest}"
                    if outer is not None and inner in self.families[outer.family]:
                        return f"{group[:at]}/{inner}"
                at = group.rfind("/", 0, at)
        return None


def kinds(arrays: Mapping[str, Array]) -> Iterable[Array]:
    """Arrays that have every combination of dimensions there is: all, or one of each kind."""
    if not isinstance(arrays, Groups):
        return arrays.values()
    return [*arrays.plain.values(), *(array for family in arrays.families for array in family.values())]


def kind_of(arrays: Mapping[str, Array], name: str) -> Array | None:
    """The array of that name, or what describes it but for name and corner; None where there is none."""
    if not isinstance(arrays, Groups) or name in arrays.plain:
        return arrays.get(name)
    place = arrays.place(name)
    return None if place is None else arrays.families[place[0].family][place[1]]


def room(arrays: Mapping[str, Array], parts: Mapping[str, int]) -> int:
    """How many rows the grids of the arrays admit."""
    if not isinstance(arrays, Groups):
        return sum(math.prod(array.grid) * parts.get(name, 1) for name, array in arrays.items())
    sizes = [sum(math.prod(array.grid) for array in family.values()) for family in arrays.families]
    total = sum(math.prod(array.grid) for array in arrays.plain.values())
    total += sum(sizes[member.family] for member in arrays.members.values())
    return total + sum(math.prod(arrays[name].grid) * (most - 1) for name, most in parts.items() if name in arrays)


def unlike(before: Mapping[str, Array], after: Mapping[str, Array]) -> Iterator[str]:
    """Names of arrays of before that are not surely the same after; few where one was made by `extended` the other."""
    if not isinstance(before, Groups) or not isinstance(after, Groups):
        yield from before
        return
    same = [one is other for one, other in zip(before.families, after.families, strict=False)]
    yield from (name for name, array in before.plain.items() if after.plain.get(name) is not array)
    for group, member in before.members.items():
        if not (member.family < len(same) and same[member.family] and after.members.get(group) == member):
            yield from (f"{group}/{rest}" for rest in before.families[member.family])


def moved(array: Array, x: float, y: float) -> Array:
    """The array with its corner elsewhere; one without a transform stays as it is."""
    place = array.georeference
    if place is None or place.transform is None:
        return array
    a, b, _, d, e, _ = place.transform
    return replace(array, georeference=replace(place, transform=(a, b, x, d, e, y)))


def gathered(catalog: Catalog, parts: Mapping[str, int]) -> Groups | None:
    """The arrays of a collection of files as groups of few families; None where that is no gain.

    Arrays of one family have the same most parts as well.
    """
    if isinstance(catalog.arrays, Groups):
        return catalog.arrays
    groups = catalog.arrangement.get("groups")
    if catalog.arrangement.get("kind") != "collect" or not isinstance(groups, list | tuple) or len(groups) < FEWEST:
        return None
    known = {group for group in groups if isinstance(group, str) and group}
    return _into(Groups({}, (), {}), catalog.arrays, known, parts)


def extended(groups: Groups, arrays: Mapping[str, Array], known: Collection[str]) -> Groups:
    """The groups with more arrays, which are of the groups `known`; what was there stays the very same."""
    return _into(groups, arrays, known, {})


def _into(groups: Groups, arrays: Mapping[str, Array], known: Collection[str], parts: Mapping[str, int]) -> Groups:
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
    kept: list[Family] = list(groups.families)
    families = {_kind(family, parts): number for number, family in enumerate(kept)}
    members: dict[str, Member] = dict(groups.members)
    for group, found in inside.items():
        corners = {corner for array in found.values() if (corner := _corner(array)) is not None}
        x, y = corners.pop() if len(corners) == 1 else (0.0, 0.0)
        if corners:  # its arrays begin at different places
            plain |= {f"{group}/{rest}": array for rest, array in found.items()}
            continue
        kind = _kind(found, parts)
        if kind not in families:
            families[kind] = len(kept)
            kept.append({rest: moved(array.renamed(rest), 0.0, 0.0) for rest, array in found.items()})
        members[group] = Member(families[kind], x, y)
    return Groups(plain, kept, members)


def _kind(family: Family, parts: Mapping[str, int]) -> tuple[Any, ...]:
    """Equal for groups of one family. What is like nothing else is told apart by where it lies, while it is held."""
    return tuple((rest, likeness(a) or id(a), parts.get(a.name, 1)) for rest, a in family.items())


def _corner(array: Array) -> tuple[float, float] | None:
    place = array.georeference
    return None if place is None or place.transform is None else (place.transform[2], place.transform[5])


def likeness(array: Array) -> bytes | None:
    """Equal for arrays that differ in name and corner alone; None for what cannot be compared so."""
    place = array.georeference
    said: Any = (array.dims, array.shape, array.chunks, array.dtype.str, array.level, array.edges)
    said = (*said, array.fill, array.encodings, array.attributes)
    if place is not None:
        if place.gcps or place.rpc is not None:
            return None
        said = (*said, place.crs, place.registration, place.transform and (*place.transform[:2], *place.transform[3:5]))
    try:
        return marshal.dumps(said, 2)
    except ValueError:
        return None  # it holds something that is not plain
