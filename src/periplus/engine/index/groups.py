"""Which group of an index a Dataset is made of: levels, images and files by name."""

from __future__ import annotations

from collections.abc import Iterable

from periplus.errors import MissingError, some


def parent(name: str) -> str:
    """The group of an array: `0` of `0/data`, the empty root of `sst`."""
    return name.rpartition("/")[0]


def join(group: str, name: str) -> str:
    """The path of a name in a group."""
    return f"{group}/{name}" if group else name


def under(groups: Iterable[str], group: str) -> list[str]:
    """The group and those inside it, in the order given."""
    return [g for g in groups if not group or g == group or g.startswith(group + "/")]


def choose(arrays: Iterable[str], group: str | None, level: int | None) -> str:
    """The one group meant: itself, or that level of the image it names; level 0 when none is asked for."""
    groups = list(dict.fromkeys(parent(name) for name in arrays))
    wanted = (group or "").strip("/")
    if level is None and wanted in groups:
        return wanted
    name = str(level or 0)
    if join(wanted, name) in groups:
        return join(wanted, name)
    inside = [g for g in under(groups, wanted) if g.rpartition("/")[2] == name]
    if len(inside) == 1:
        return inside[0]
    if inside:
        images = [parent(g) for g in inside]
        raise MissingError(f"this index has several images; give group= one of {_shown(images)}, or open_datatree")
    asked = " with ".join(
        [*([f"group {wanted!r}"] if wanted else []), *([f"level {level}"] if level is not None else [])]
    )
    raise MissingError(f"no {asked or 'image'} in this index; its groups are {some(groups, like=wanted)}")


def _shown(names: list[str]) -> str:
    return ", ".join(repr(n) for n in names[:8]) + (f", … ({len(names)} in all)" if len(names) > 8 else "")
