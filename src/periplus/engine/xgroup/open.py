"""Open a group or a whole hierarchy: store, conventions, Datasets, and then what was found wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import xarray as xr

from periplus.conventions.identity import CONVENTIONS, KEY, belongs
from periplus.conventions.meaning import Level
from periplus.engine.place import COORDS
from periplus.engine.xgroup.dataset import assemble
from periplus.engine.xgroup.opening import Opening, Options
from periplus.engine.xgroup.pyramid import Wish, choose, crop, home, members
from periplus.engine.xgroup.stores import CrossStore, CrossStores, open_hierarchy
from periplus.engine.xgroup.tree import datasets
from periplus.errors import MissingError
from periplus.parse.json import walking

DECODING = frozenset(
    {"mask_and_scale", "decode_times", "concat_characters", "decode_coords", "use_cftime", "decode_timedelta"}
)
"""Arguments of xarray's own decoding."""


class Closing:
    """Closes the stores of an opening; a pickled copy has opened none, and carries nothing of them along."""

    def __init__(self, *endings: Callable[[], None]) -> None:
        self.endings = endings

    def __call__(self) -> None:
        for ending in self.endings:
            ending()

    def __reduce__(self) -> tuple[Any, ...]:
        return (Closing, ())


@walking("the metadata of the store")
def one_dataset(what: Any, wish: Wish, **options: Any) -> xr.Dataset:
    """The arrays of a group, or of the level of its pyramid that is wished for."""
    opening, group = _open(what, **options)
    try:
        said = opening.group_meaning(group)
        pyramid = None if said is None else said.pyramid
        arrays = {path.rpartition("/")[2]: path for path in opening.hierarchy.arrays(group)}
        attributes = opening.hierarchy.attributes(group)
        if pyramid is not None and any(level.arrays for level in pyramid.levels):
            level = choose(pyramid, wish)
            arrays = members(opening, pyramid, level)
            attributes = _of_level(opening, group, level)
        elif wish.level not in (None, 0):
            raise MissingError(f"no level {wish.level!r}: {group} holds no pyramid{_elsewhere(opening, group)}")
        made = assemble(opening, arrays, attributes)
        dataset = crop(made.dataset, made.grids, wish)
    except BaseException:
        opening.close()
        raise
    dataset.set_close(Closing(*opening.endings()))
    opening.conclude()
    return dataset


@walking("the metadata of the store")
def all_datasets(what: Any, **options: Any) -> dict[str, xr.Dataset]:
    """Every group of a hierarchy."""
    opening, group = _open(what, **options)
    try:
        groups = datasets(opening, group)
    except BaseException:
        opening.close()
        raise
    groups["/"].set_close(Closing(*opening.endings()))
    opening.conclude()
    return groups


@walking("the metadata of the store")
def pyramid_levels(what: Any, *, strict: bool = True, **options: Any) -> tuple[Level, ...]:
    """The levels of the pyramid that a group holds."""
    opening, group = _open(what, strict=strict, **options)
    try:
        said = opening.group_meaning(group)
    finally:
        opening.close()
    return () if said is None or said.pyramid is None else said.pyramid.levels


def _open(
    what: Any,
    *,
    group: str | None = None,
    drop_variables: str | Iterable[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    cross_store_storage_options: Mapping[str, Any] | None = None,
    cross_store: CrossStore = None,
    coords: str = "auto",
    strict: bool = True,
    dequantize: bool = False,
    consolidated: bool | None = None,
    zarr_format: int | None = None,
    use_zarr_fill_value_as_mask: bool | None = None,
    **decoding: Any,
) -> tuple[Opening, str]:
    """What is known of a store as it is opened, and the path of the group meant; options are those of the engine."""
    if unknown := decoding.keys() - DECODING:
        raise TypeError(f"the xgroup engine has no argument {', '.join(sorted(unknown))} here")
    if coords not in COORDS:
        raise ValueError(f"coords must be one of {', '.join(COORDS)}, not {coords!r}")
    hierarchy, path = open_hierarchy(
        what,
        group=group,
        storage_options=storage_options,
        consolidated=consolidated,
        zarr_format=zarr_format,
        fill_as_mask=use_zarr_fill_value_as_mask,
    )
    cross = CrossStores(hierarchy.url, allowed=cross_store, storage_options=cross_store_storage_options)
    drop = frozenset([drop_variables] if isinstance(drop_variables, str) else drop_variables or ())
    how = Options(coords=coords, strict=strict, dequantize=dequantize, decoding=decoding, drop=drop)
    return Opening(hierarchy, cross, how), path


def _elsewhere(opening: Opening, group: str) -> str:
    """Where pyramids are, for the message that there is none here."""
    found = [path for path in opening.hierarchy.walk(group) if "multiscales" in opening.hierarchy.attributes(path)]
    return f"; group= {', '.join(found[:8])} does" if found else ""


def _of_level(opening: Opening, group: str, level: Level) -> dict[str, Any]:
    """Attributes of a level: those of its group, over those of the pyramid's that are not about the pyramid itself."""
    own = opening.hierarchy.attributes(home(level))
    if home(level) == group:
        return own
    shared = {
        key: value
        for key, value in opening.hierarchy.attributes(group).items()
        if key != KEY and not any(belongs(key, name) for name in CONVENTIONS)
    }
    return {**shared, **own}
