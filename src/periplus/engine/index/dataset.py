"""Open groups of an index as Datasets, each chosen by the name of a level, an image or a file."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import xarray as xr

from periplus.engine.assemble.dataset import assemble
from periplus.engine.assemble.source import AssemblyOptions
from periplus.engine.index.array import OpenIndex
from periplus.engine.index.source import IndexSource, plain_attributes
from periplus.errors import MissingError, some
from periplus.model import Array, Catalog


def open_group(index: OpenIndex, group: str, options: AssemblyOptions, *, url: str | None = None) -> xr.Dataset:
    """The arrays of one group, with attributes of the groups that contain it (the image, the file).

    No chunk is read. `url` is noted as the source of the variables.
    """
    catalog = index.table.catalog
    dataset = _dataset(index, group, _by_group(catalog).get(group, []), options, url)
    above = group
    while above:
        above = parent(above)
        dataset.attrs = {**plain_attributes(catalog.attributes.get(above, {})), **dataset.attrs}
    return dataset


def open_groups(
    index: OpenIndex, root: str, options: AssemblyOptions, *, url: str | None = None
) -> dict[str, xr.Dataset]:
    """Every group from `root` down, by its path from there; the root is always included."""
    arrays = _by_group(index.table.catalog)
    groups = dict.fromkeys(under([root, *index.table.catalog.attributes, *arrays], root))
    return {"/" + g[len(root) :].strip("/"): _dataset(index, g, arrays.get(g, []), options, url) for g in groups}


def _by_group(catalog: Catalog) -> dict[str, list[Array]]:
    groups: dict[str, list[Array]] = {}
    for array in catalog.arrays.values():
        groups.setdefault(parent(array.name), []).append(array)
    return groups


def _dataset(
    index: OpenIndex, group: str, arrays: list[Array], options: AssemblyOptions, url: str | None
) -> xr.Dataset:
    source = IndexSource(index, arrays, options, url=url)
    attributes = plain_attributes(index.table.catalog.attributes.get(group, {}))
    dataset = assemble(source, source.paths, attributes, coords=set(source.labels)).dataset
    for finding in source.findings.findings.values():
        if finding.code in ("proj.unknown", "node.unreadable"):
            where = f"{finding.path}: " if finding.code == "node.unreadable" else ""
            warnings.warn(where + finding.message, UserWarning, stacklevel=2)
    if url is not None:
        dataset.encoding["source"] = url
    return dataset


# --- names of groups ----------------------------------------------------------------------------------------------


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
