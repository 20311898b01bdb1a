"""The xarray engine `periplus`: an index, or imagery indexed on the fly, as Dataset or DataTree."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike, fspath
from typing import Any, ClassVar

try:
    import xarray as xr
    from xarray.backends import BackendEntrypoint
except ImportError as error:
    raise ImportError('the periplus engine needs xarray: pip install "periplus[xarray]"') from error

from periplus.engine.assemble.source import DECODING, AssemblyOptions, dropped
from periplus.engine.assemble.tree import aligned, build_tree
from periplus.engine.index.array import OpenIndex
from periplus.engine.index.dataset import choose, open_group, open_groups, under
from periplus.errors import MissingError, PeriplusError
from periplus.forms import is_index
from periplus.forms.location import open_or_index
from periplus.policy import is_local

OPENING = (
    "allow",
    "trust",
    "storage_options",
    "keep_query",
    "limits",
    "document",
    "template_overrides",
    "skip_unsupported",
    "branch",
    "tag",
    "snapshot",
)
"""Arguments that are those of `periplus.open`."""
ALREADY_OPEN = "this index is already open; pass them to periplus.open"


class PeriplusBackend(BackendEntrypoint):
    """Opens indexes made by `periplus.index`, and whatever that can index, without reading a pixel."""

    description: ClassVar[str] = "Open array indexes, and imagery indexed on the fly, with periplus"
    supports_groups: ClassVar[bool] = True
    open_dataset_parameters: ClassVar[tuple[str, ...] | None] = DECODING
    """Arguments that `decode_cf=False` switches off."""

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Whether this is an Index, or a local file or folder that contains one; imagery needs engine="periplus"."""
        if not isinstance(filename_or_obj, str | PathLike):
            return isinstance(filename_or_obj, OpenIndex)
        url = fspath(filename_or_obj)
        try:
            return isinstance(url, str) and is_local(url) and is_index(url) is True
        except PeriplusError:
            return False

    def open_dataset(
        self, filename_or_obj: Any, *, group: str | None = None, level: int | None = None, **arguments: Any
    ) -> xr.Dataset:
        """One level of one image.

        `group` is an image or file of the index, or a level of it (`images/1`, `scene`, `scene/2`); `level` is the
        level, by default 0, full resolution. `coords` is how labels of x and y are kept: `lazy` (computed when they
        are used), in `memory`, `auto` (lazy where there are many) or `none`. `allow`, `trust`, `storage_options`,
        `keep_query`, `limits`, `document`, `template_overrides`, `skip_unsupported`, `branch`, `tag` and `snapshot` are
        those of `periplus.open`, `drop_variables` and the arguments of decoding those of xarray.
        """
        index, url, options = _open(filename_or_obj, ("group", "level"), **arguments)
        dataset = open_group(index, choose(index.table.catalog.arrays, group, level), options, url=url)
        if index is not filename_or_obj:
            dataset.set_close(index.close)
        return dataset

    def open_groups_as_dict(
        self, filename_or_obj: Any, *, group: str | None = None, **arguments: Any
    ) -> dict[str, xr.Dataset]:
        """Every level of every image from `group` (default: the root) down, by path; arguments as of `open_dataset`."""
        index, url, options = _open(filename_or_obj, ("group",), **arguments)
        root = (group or "").strip("/")
        if not under(index.table.catalog.arrays, root):
            raise MissingError(f"no group {root!r} in this index")
        groups = aligned(open_groups(index, root, options, url=url))
        if index is not filename_or_obj:
            groups["/"].set_close(index.close)
        return groups

    def open_datatree(self, filename_or_obj: Any, **arguments: Any) -> xr.DataTree:
        """The groups of `open_groups_as_dict` as a tree; every node has its own coordinates."""
        groups = self.open_groups_as_dict(filename_or_obj, **arguments)
        tree = build_tree(groups)
        tree.set_close(groups["/"].close)
        return tree


def _open(
    what: Any,
    choice: tuple[str, ...],
    /,
    *,
    drop_variables: str | Iterable[str] | None = None,
    coords: str = "auto",
    **arguments: Any,
) -> tuple[OpenIndex, str | None, AssemblyOptions]:
    """The index, opened or made, its URL, and how its groups are to be opened; `choice` names further arguments."""
    opening = {name: value for name in OPENING if (value := arguments.pop(name, None)) is not None}
    others = (*choice, "coords", "drop_variables", *OPENING)
    options = AssemblyOptions(coords=coords, decoding=arguments, drop=dropped(drop_variables), others=others)
    if isinstance(what, OpenIndex):
        if opening:
            raise TypeError(
                f"options for opening an index ({', '.join(sorted(opening))}) have no effect: {ALREADY_OPEN}"
            )
        return what, what.table.url, options
    if not isinstance(what, str | PathLike):
        raise TypeError(f"the periplus engine opens an Index, a path or a URL, not {type(what).__name__}")
    url = fspath(what)
    return open_or_index(url, **opening), url, options
