"""The xarray engine `xgroup`: Zarr hierarchies with the coordinates that GeoZarr conventions give them."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, ClassVar

try:
    import xarray as xr
    from xarray.backends import BackendEntrypoint
except ImportError as error:
    raise ImportError('the xgroup engine needs xarray: pip install "periplus[xgroup]"') from error

from periplus.engine.assemble.source import DECODING
from periplus.engine.xgroup.warnings import (
    XGroupConflictWarning,
    XGroupConventionWarning,
    XGroupError,
    XGroupNoPrincipalWarning,
    XGroupPathError,
    XGroupPathWarning,
    XGroupReferenceError,
    XGroupReferenceWarning,
    XGroupStoreError,
    XGroupStoreWarning,
    XGroupWarning,
)

if TYPE_CHECKING:
    from periplus.conventions.meaning import Level
    from periplus.conventions.proj.crs import CrsLike
    from periplus.model import BBox

NEEDS = {"xarray": (2025, 12), "zarr": (3, 1)}
"""Oldest supported versions."""


class XGroupBackend(BackendEntrypoint):
    """Opens Zarr stores and our indexes with the coordinates of other groups and stores resolved; reads no chunk."""

    description: ClassVar[str] = "Open Zarr hierarchies with GeoZarr conventions resolved, with periplus"
    supports_groups: ClassVar[bool] = True
    open_dataset_parameters: ClassVar[tuple[str, ...] | None] = DECODING
    """Arguments that `decode_cf=False` switches off."""

    def guess_can_open(self, filename_or_obj: Any) -> bool:  # noqa: ARG002
        """Never: xarray's own engine opens Zarr stores unless engine="xgroup" is given."""
        return False

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        level: int | str | None = None,
        resolution: float | None = None,
        max_pixels: int | None = None,
        bbox: BBox | None = None,
        bbox_crs: CrsLike | None = None,
        **arguments: Any,
    ) -> xr.Dataset:
        """The arrays of one `group`, by default the root, or of one level of the pyramid it holds.

        `level` (0 is the finest, or the name of an asset), `resolution` (largest acceptable pixel size) and
        `max_pixels` choose a level, by default the finest; `bbox` crops arrays to a box, and `max_pixels` then applies
        to the cropped size. `coords` is how labels of regular axes are kept: `lazy`, in `memory`, `auto` (lazy where
        there are many) or `none`. `strict=False` uses attributes of conventions that are not declared; `dequantize`
        converts quantized embeddings to the numbers they represent. References may point to stores in the same folder;
        `cross_store` allows further prefixes, all with True, or none with False; `cross_store_storage_options` maps
        prefixes of such stores to their options, and allows them. `storage_options`, `consolidated`, `zarr_format`,
        `use_zarr_fill_value_as_mask` and the arguments of decoding are those of xarray. An index also takes the
        options of `periplus.open`: `allow`, `trust`, `keep_query`, `limits`, `document`, `template_overrides`,
        `skip_unsupported`, `branch`, `tag` and `snapshot`.
        """
        _ready()
        from periplus.conventions.proj.crs import crs_text
        from periplus.engine.xgroup.datasets import open_one
        from periplus.engine.xgroup.pyramid import LevelRequest

        request = LevelRequest(
            level=level, resolution=resolution, max_pixels=max_pixels, bbox=bbox, bbox_crs=crs_text(bbox_crs)
        )
        return open_one(filename_or_obj, request, **arguments)

    def open_groups_as_dict(self, filename_or_obj: Any, **arguments: Any) -> dict[str, xr.Dataset]:
        """Every group from `group` (default: the root) down, by its path from there.

        Arguments are those of `open_dataset` except for the choice of a level and a box. Levels of a pyramid that share
        a group get a node each, with their names or `base`.
        """
        _ready()
        from periplus.engine.xgroup.datasets import open_all

        return open_all(filename_or_obj, **arguments)

    def open_datatree(self, filename_or_obj: Any, **arguments: Any) -> xr.DataTree:
        """The groups of `open_groups_as_dict` as a tree; every node has its own coordinates."""
        from periplus.engine.assemble.tree import build_tree

        groups = self.open_groups_as_dict(filename_or_obj, **arguments)
        tree = build_tree(groups)
        tree.set_close(groups["/"].close)
        return tree


def levels(store: Any, **arguments: Any) -> tuple[Level, ...]:
    """The levels of the pyramid in a group, from fine to coarse; empty where it holds none. Reads metadata only.

    Arguments are those of `XGroupBackend.open_dataset`: `group`, `strict`, and the options of opening.
    """
    _ready()
    from periplus.engine.xgroup.datasets import pyramid_levels

    return pyramid_levels(store, **arguments)


@lru_cache(maxsize=1)
def _ready() -> None:
    require()  # once: finding versions takes as long as opening a small store


def require() -> None:
    """ImportError with guidance where a package is missing or too old.

    Checked when a store is opened and not when this module is loaded: xarray loads every engine to list them, and
    would warn users of other engines.
    """
    for name, oldest in NEEDS.items():
        wanted = ".".join(map(str, oldest))
        try:
            found = version(name)
        except PackageNotFoundError:
            raise ImportError(f'the xgroup engine needs {name}>={wanted}: pip install "periplus[xgroup]"') from None
        if _numbers(found) < oldest:
            advice = f'pip install --upgrade "periplus[xgroup]" "{name}>={wanted}"'
            raise ImportError(f"the xgroup engine needs {name}>={wanted}, and {found} is installed: {advice}")


def _numbers(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: (3, 1) of `3.1rc1`."""
    found = re.match(r"(\d+)(?:\.(\d+))?", text)
    return (0, 0) if found is None else (int(found[1]), int(found[2] or 0))


__all__ = [
    "XGroupBackend",
    "XGroupConflictWarning",
    "XGroupConventionWarning",
    "XGroupError",
    "XGroupNoPrincipalWarning",
    "XGroupPathError",
    "XGroupPathWarning",
    "XGroupReferenceError",
    "XGroupReferenceWarning",
    "XGroupStoreError",
    "XGroupStoreWarning",
    "XGroupWarning",
    "levels",
    "require",
]
