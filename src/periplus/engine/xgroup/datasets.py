"""Open a group, one level of its pyramid, or a whole hierarchy as Datasets, and warn of what was found wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from inspect import signature
from typing import Any

import xarray as xr

from periplus.conventions.identity import CONVENTIONS, KEY, belongs
from periplus.conventions.meaning import Level, Pyramid
from periplus.conventions.node import ROOT, join, relative
from periplus.engine.assemble.dataset import assemble
from periplus.engine.assemble.source import AssemblyOptions, dropped
from periplus.engine.assemble.tree import BASE, aligned
from periplus.engine.index.backend import OPENING
from periplus.engine.xgroup.pyramid import LevelRequest, arrays_of, choose, crop, group_of
from periplus.engine.xgroup.source import ZarrSource
from periplus.engine.xgroup.stores import CrossStore, CrossStores, open_hierarchy
from periplus.errors import MissingError
from periplus.parse.json import walking
from periplus.policy import Policy


class CloseAll:
    """Closes the stores that were opened; a pickled copy closes nothing."""

    def __init__(self, *closers: Callable[[], None]) -> None:
        self.closers = closers

    def __call__(self) -> None:
        for close in self.closers:
            close()

    def __reduce__(self) -> tuple[Any, ...]:
        return (CloseAll, ())


@walking("the metadata of the store")
def open_one(what: Any, request: LevelRequest, **options: Any) -> xr.Dataset:
    """The arrays of a group, or of the requested level of its pyramid."""
    source, group = _open(what, tuple(one.name for one in fields(request)), **options)
    try:
        meaning = source.group_meaning(group)
        pyramid = None if meaning is None else meaning.pyramid
        arrays = {path.rpartition("/")[2]: path for path in source.hierarchy.arrays(group)}
        attributes = source.hierarchy.attributes(group)
        if pyramid is not None and any(level.arrays for level in pyramid.levels):
            level = choose(pyramid, request)
            arrays = arrays_of(source, pyramid, level)
            attributes = _level_attributes(source, group, level)
        elif request.level not in (None, 0):
            raise MissingError(
                f"no level {request.level!r}: {group} holds no pyramid{_where_pyramids_are(source, group)}"
            )
        made = assemble(source, arrays, attributes)
        dataset = crop(made.dataset, made.grids, request)
    except BaseException:
        source.close()
        raise
    dataset.set_close(CloseAll(*source.closers()))
    source.warn()
    return dataset


@walking("the metadata of the store")
def open_all(what: Any, **options: Any) -> dict[str, xr.Dataset]:
    """Every group of a hierarchy by its path, such that xarray can build a tree of them."""
    source, group = _open(what, (), **options)
    try:
        groups = aligned(_groups(source, group))
    except BaseException:
        source.close()
        raise
    groups["/"].set_close(CloseAll(*source.closers()))
    source.warn()
    return groups


@walking("the metadata of the store")
def pyramid_levels(what: Any, **options: Any) -> tuple[Level, ...]:
    """The levels of the pyramid that a group holds."""
    source, group = _open(what, (), **options)
    try:
        meaning = source.group_meaning(group)
    finally:
        source.close()
    return () if meaning is None or meaning.pyramid is None else meaning.pyramid.levels


def _open(
    what: Any,
    choice: tuple[str, ...],
    /,
    *,
    group: str | None = None,
    drop_variables: str | Iterable[str] | None = None,
    cross_store_storage_options: Mapping[str, Any] | None = None,
    cross_store: CrossStore = None,
    coords: str = "auto",
    strict: bool = True,
    dequantize: bool = False,
    consolidated: bool | None = None,
    zarr_format: int | None = None,
    use_zarr_fill_value_as_mask: bool | None = None,
    **arguments: Any,
) -> tuple[ZarrSource, str]:
    """The opened store and the path of the group in it; options are those of the engine, `choice` names others."""
    for name, value in (("strict", strict), ("dequantize", dequantize)):
        if not isinstance(value, bool):
            raise TypeError(f"{name}= is True or False, not {value!r}")
    if cross_store is not None and not isinstance(cross_store, bool | str | Iterable | Policy):
        raise TypeError(f"cross_store= is True, False, or prefixes of URLs, not {cross_store!r}")
    opening = {name: value for name in OPENING if (value := arguments.pop(name, None)) is not None}
    named = (name for name, one in signature(_open).parameters.items() if one.kind is one.KEYWORD_ONLY)
    how = AssemblyOptions(
        coords=coords,
        dequantize=dequantize,
        crs_index=True,
        decoding=arguments,
        drop=dropped(drop_variables),
        others=(*choice, *named, *OPENING),
    )
    hierarchy, path = open_hierarchy(
        what,
        group=group,
        opening=opening,
        consolidated=consolidated,
        zarr_format=zarr_format,
        fill_as_mask=use_zarr_fill_value_as_mask,
    )
    cross = CrossStores(hierarchy.url, allowed=cross_store, storage_options=cross_store_storage_options)
    return ZarrSource(hierarchy, cross, how, strict=strict), path


def _where_pyramids_are(source: ZarrSource, group: str) -> str:
    """A hint for the message that there is no pyramid here."""
    found = [path for path in source.hierarchy.walk(group) if "multiscales" in source.hierarchy.attributes(path)]
    if group in found:
        meaning = source.group_meaning(group)
        if meaning is not None and "multiscales" not in meaning.conventions and source.strict:
            return ", because its multiscales is not declared in zarr_conventions; strict=False uses it"
        return " that can be used; `periplus validate` shows why"
    return f"; group= {', '.join(found[:8])} does" if found else ""


def _level_attributes(source: ZarrSource, group: str, level: Level) -> dict[str, Any]:
    """Attributes of a level's group, and those of the pyramid's group that do not describe the pyramid itself."""
    own = source.hierarchy.attributes(group_of(level))
    if group_of(level) == group:
        return own
    shared = {
        key: value
        for key, value in source.hierarchy.attributes(group).items()
        if key != KEY and not any(belongs(key, name) for name in CONVENTIONS)
    }
    return {**shared, **own}


# --- all groups -----------------------------------------------------------------------------------------------------


def _groups(source: ZarrSource, root: str) -> dict[str, xr.Dataset]:
    """Every group from `root` down by its path from there; levels that share a group get a node each."""
    made: dict[str, xr.Dataset] = {}
    groups = source.hierarchy.walk(root)
    source.hierarchy.prepare(path for group in groups for path in source.hierarchy.arrays(group))
    for path in groups:
        below = ROOT if path == root else ROOT + relative(path, root)
        for name, arrays in _nodes(source, path).items():
            attributes = source.hierarchy.attributes(path) if name is None else {}
            made[below if name is None else join(below, name)] = assemble(source, arrays, attributes).dataset
    return made


def _nodes(source: ZarrSource, path: str) -> dict[str | None, dict[str, str]]:
    """Arrays of a group by the node they go to: those of each level by its name, the rest under None."""
    arrays = {one.rpartition("/")[2]: one for one in source.hierarchy.arrays(path)}
    meaning = source.group_meaning(path)
    pyramid = None if meaning is None else meaning.pyramid
    here = [] if pyramid is None else [level for level in pyramid.levels if level.arrays and group_of(level) == path]
    if pyramid is None or not here or len(pyramid.levels) == 1:
        return {None: arrays}
    nodes: dict[str | None, dict[str, str]] = {None: {}}
    in_levels = _paths_of_levels(pyramid)
    taken = set(source.hierarchy.children(path)) - {one.rpartition("/")[2] for one in in_levels}
    for level in here:
        name = level.asset.rstrip("/").rpartition("/")[2]
        name = BASE if name in ("", ".") else name
        while name in taken or name in nodes:
            name = f"{name}_level"
        nodes[name] = arrays_of(source, pyramid, level)
    assigned = {one for node in nodes.values() for one in node.values()}
    nodes[None] = {name: one for name, one in arrays.items() if one not in assigned and one not in in_levels}
    return nodes


def _paths_of_levels(pyramid: Pyramid) -> set[str]:
    return {path for level in pyramid.levels for path in level.arrays.values()}
