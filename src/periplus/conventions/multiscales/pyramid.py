"""multiscales: the levels of a group from fine to coarse, with their grids and arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from periplus.conventions.context import Reading
from periplus.conventions.meaning import CrsText, Level, Pyramid
from periplus.conventions.multiscales import scales
from periplus.conventions.multiscales.layout import items
from periplus.conventions.multiscales.level import LevelDraft, declared_transform, draft_of, grid_of, transform_by_box
from periplus.conventions.node import Node, ancestors, parent
from periplus.conventions.proj.attributes import crs_of
from periplus.conventions.proj.crs import same_crs
from periplus.conventions.spatial.grid import properties
from periplus.model.affine import place, position, scaled, shifted


def pyramid_of(reading: Reading, group: Node) -> Pyramid | None:
    """The pyramid of a group, or None where it has none; worked out once for all arrays that ask."""
    key = ("pyramid", group.path)
    if key not in reading.memo:
        reading.memo[key] = (None, [])  # avoids recursion while it is computed
        near = reading.of(group)
        reading.memo[key] = (_pyramid(near, group), near.notes)
    pyramid, notes = reading.memo[key]
    if reading.node.path == group.path:
        reading.add(*notes)
    return pyramid  # type: ignore[no-any-return]


def level_of(reading: Reading) -> tuple[Pyramid, Level] | None:
    """The nearest pyramid around the array being read that has it at one of its levels, and that level."""
    path = reading.node.path
    around = parent(path)
    for above in ancestors(path):
        group = reading.lookup(above)
        if group is None or "multiscales" not in group.attributes:
            continue
        pyramid = pyramid_of(reading, group)
        levels = () if pyramid is None else pyramid.levels
        found = next((one for one in levels if one.path == path), None) or next(
            (one for one in levels if one.path == around), None
        )
        if pyramid is not None and found is not None:
            return pyramid, found
    return None


def _pyramid(reading: Reading, group: Node) -> Pyramid | None:
    if "multiscales" not in group.attributes or not reading.declares(group, "multiscales"):
        return None
    given = properties(reading, group)
    drafts = {item.path: draft_of(reading, group, item, given) for item in items(reading, group)}
    if not drafts:
        return None
    sources = _sources(reading, drafts)
    _name_arrays(group, list(drafts.values()))
    _base_transform(reading, drafts, sources, given)
    for path in _ordered(sources):
        if (source := sources[path]) is not None:
            _derive(reading, drafts[path], drafts[source], drafts[_root(path, sources)])
    _relate_roots(drafts, sources)
    value = group.attributes["multiscales"]
    method = value.get("resampling_method") if isinstance(value, Mapping) else None
    return Pyramid(
        path=group.path,
        levels=_levels(list(drafts.values()), sources),
        crs=_crs(reading, group, list(drafts.values())),
        resampling=method if isinstance(method, str) else None,
    )


def _name_arrays(group: Node, drafts: Sequence[LevelDraft]) -> None:
    """Levels that are arrays, each by another name, are one variable: it takes the group's name."""
    names = {next(iter(one.arrays)) for one in drafts if one.kind == "array" and one.arrays}
    if len(names) > 1 and not any(one.kind == "group" for one in drafts):
        for one in drafts:
            if one.arrays:
                one.arrays = {group.name or "data": next(iter(one.arrays.values()))}


def _sources(reading: Reading, drafts: Mapping[str, LevelDraft]) -> dict[str, str | None]:
    """Which level each derives from; circles are cut.

    What names no level counts from the next finer one, or from the finest where it declares a scale.
    """
    sources: dict[str, str | None] = {}
    for path, draft in drafts.items():
        source = draft.item.derived_from
        if source is not None and source not in drafts:
            message = f"asset {draft.item.asset!r} derives from {source}, which is not a level of the layout"
            reading.note("multiscales.derived-from", "error", f"{draft.item.where}.derived_from", message)
            source = None
        sources[path] = source
    for path in sources:
        seen, at = {path}, sources[path]
        while at is not None and at not in seen:
            seen.add(at)
            at = sources[at]
        if at is not None:
            where = f"{drafts[path].item.where}.derived_from"
            message = f"derived_from cycle: asset {drafts[path].item.asset!r} derives from itself in the end"
            reading.note("multiscales.cycle", "error", where, message)
            sources[path] = None
    roots = [path for path, source in sources.items() if source is None]
    sized = [path for path in roots if drafts[path].shape is not None]
    finest = max(sized, key=lambda path: _area(drafts[path].shape), default=None)
    for path in sized:
        if finest is not None and path != finest and drafts[path].transform is None:
            item = drafts[path].item
            larger = [one for one in sized if _area(drafts[one].shape) > _area(drafts[path].shape)]
            taken = finest if item.scale else min(larger, key=lambda one: _area(drafts[one].shape), default=finest)
            message = f"asset {item.asset!r} derives from none; {drafts[taken].item.asset!r} is taken"
            reading.note("multiscales.derived-missing", "info", item.where, message, "write derived_from and transform")
            sources[path] = taken
    return sources


def _area(shape: tuple[int, int] | None) -> int:
    return 0 if shape is None else shape[0] * shape[1]


def _root(path: str, sources: Mapping[str, str | None]) -> str:
    while (source := sources[path]) is not None:
        path = source
    return path


def _ordered(sources: Mapping[str, str | None]) -> list[str]:
    """Levels so that each comes after the one it derives from."""

    def depth(path: str) -> int:
        steps, at = 0, sources[path]
        while at is not None:
            steps, at = steps + 1, sources[at]
        return steps

    return sorted(sources, key=depth)


def _base_transform(
    reading: Reading, drafts: Mapping[str, LevelDraft], sources: Mapping[str, str | None], given: Mapping[str, Any]
) -> None:
    """The group's own transform or box is that of the base, where no closer node declares one."""
    roots = [drafts[path] for path, source in sources.items() if source is None]
    base = roots[0]
    if len(roots) > 1 or base.transform is not None:
        return
    base.transform = declared_transform(reading, given, reading.node) or transform_by_box(reading, given, base)
    home = base.item.path if base.kind == "group" else parent(base.item.path) or "/"
    labelled = any(reading.lookup(f"{home.rstrip('/')}/{dim}") is not None for dim in base.dims)
    if base.transform is None and base.arrays and not labelled and "spatial:dimensions" in given:
        message = "neither a transform nor a box places the levels; they have no coordinates"
        reading.note("spatial.transform-missing", "warning", "spatial:transform", message, "write spatial:transform")


def _derive(reading: Reading, draft: LevelDraft, source: LevelDraft, root: LevelDraft) -> None:
    item = draft.item
    quiet = not draft.names and item.scale is not None and len(item.scale) != 2
    scale = None if quiet else scales.pair(reading, item, item.scale, draft.names, draft.dims)
    translation = None if quiet else scales.pair(reading, item, item.translation, draft.names, draft.dims)
    ratio = None
    if source.shape is not None and draft.shape is not None and all(draft.shape):
        ratio = (source.shape[0] / draft.shape[0], source.shape[1] / draft.shape[1])
    if draft.transform is not None and source.transform is not None:
        here, there = scales.sizes(draft.transform), scales.sizes(source.transform)
        pixels = (here[0] / there[0], here[1] / there[1])
        scales.check(reading, item, scale, pixels, ratio, source.sofar)
        if scale is not None:
            scales.shift(reading, item, translation, pixels)
        _check_extent(reading, draft, source)
        draft.sofar, draft.known = (source.sofar[0] * pixels[0], source.sofar[1] * pixels[1]), source.known
        return
    grown = scales.growth(
        reading,
        item,
        scale,
        finer=source.shape,
        shape=draft.shape,
        base=root.shape,
        sofar=source.sofar,
        nodes=source.registration == "node",
    )
    if grown is None:
        draft.known = False
        if source.transform is not None and draft.transform is None and draft.arrays:
            message = f"the sizes {list(source.shape or ())} and {list(draft.shape or ())} do not give its scale"
            reading.note("multiscales.scale-missing", "warning", f"{item.where}.transform", message, "write the scale")
        return
    draft.sofar, draft.known = (source.sofar[0] * grown[0], source.sofar[1] * grown[1]), source.known
    moved = scales.shift(reading, item, translation, grown)
    if source.transform is not None and draft.transform is None:
        begins = moved if source.registration == "node" else (0, 0)
        draft.transform = scaled(shifted(source.transform, *begins), *grown)
        draft.registration = source.registration


def _check_extent(reading: Reading, draft: LevelDraft, source: LevelDraft) -> None:
    """A finding where a level ends more than one of its cells before or beyond the level it derives from.

    Less is usual: sizes are rounded up or down, and nodes of a coarse level need not hit the last of a fine one.
    """
    here, there = grid_of(draft), grid_of(source)
    if here is None or there is None:
        return
    corners = [(row, column) for row in (0, there.shape[0]) for column in (0, there.shape[1])]
    try:
        ends = [position(here.corner, *place(there.corner, *corner)) for corner in corners]
    except ZeroDivisionError:  # pixels of a hostile box may be too small to have an area
        return
    apart = max(
        abs(edge - end)
        for axis, size in zip(zip(*ends, strict=True), here.shape, strict=True)
        for edge, end in ((min(axis), 0), (max(axis), size))
    )
    if apart > 1.01:
        message = (
            f"by its transform and shape it covers {list(here.bbox)}, and {source.item.asset!r} {list(there.bbox)}"
        )
        reading.note("multiscales.extent", "warning", f"{draft.item.where}.spatial:transform", message)


def _relate_roots(drafts: Mapping[str, LevelDraft], sources: Mapping[str, str | None]) -> None:
    """Levels of chains that begin apart are compared by the pixel sizes of their beginnings."""
    roots = [path for path, source in sources.items() if source is None]
    measured = [path for path in roots if drafts[path].transform is not None]
    if len(roots) < 2:
        return
    first = measured[0] if measured else None
    for path, draft in drafts.items():
        root = drafts[_root(path, sources)]
        if first is None or root.transform is None:
            draft.known = False
        elif root is not drafts[first]:
            here, there = scales.sizes(root.transform), scales.sizes(drafts[first].transform or root.transform)
            draft.sofar = (draft.sofar[0] * here[0] / there[0], draft.sofar[1] * here[1] / there[1])


def _levels(drafts: list[LevelDraft], sources: Mapping[str, str | None]) -> tuple[Level, ...]:
    for one in drafts:
        # Scales of a hostile layout may multiply to nothing, or to infinity.
        one.known = one.known and all(0 < factor < math.inf for factor in one.sofar)
    known = [one for one in drafts if one.known]
    finest = min((one.sofar for one in known), key=lambda pair: pair[0] * pair[1], default=(1.0, 1.0))
    made = []
    for draft in drafts:
        source = sources[draft.item.path]
        made.append(
            Level(
                asset=draft.item.asset,
                path=draft.item.path,
                kind=draft.kind,
                order=0,
                derived_from=source,
                factors=(draft.sofar[0] / finest[0], draft.sofar[1] / finest[1]) if draft.known else None,
                grid=grid_of(draft),
                absolute=draft.item.transform is not None,
                shape=draft.shape,
                arrays=draft.arrays,
                resampling=draft.item.resampling,
            )
        )
    made.sort(key=lambda one: one.factors[0] * one.factors[1] if one.factors is not None else float("inf"))
    return tuple(replace(level, order=n) for n, level in enumerate(made))


def _crs(reading: Reading, group: Node, drafts: Sequence[LevelDraft]) -> CrsText | None:
    stated = [crs for crs in (crs_of(reading, group), *(draft.crs for draft in drafts)) if crs is not None]
    for other in stated[1:]:
        if not same_crs(stated[0].text, other.text):
            message = f"{other.origin} has another CRS than {stated[0].origin}"
            reading.note("multiscales.crs", "warning", "multiscales", message)
    return stated[0] if stated else None
