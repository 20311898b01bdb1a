"""Open groups of an index as Datasets."""

from __future__ import annotations

import warnings

import xarray as xr

from periplus.engine.assemble.dataset import assemble
from periplus.engine.assemble.source import AssemblyOptions
from periplus.engine.index.array import OpenIndex
from periplus.engine.index.groups import parent, under
from periplus.engine.index.source import IndexSource, plain_attributes
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
        if finding.code == "proj.unknown":
            warnings.warn(finding.message, UserWarning, stacklevel=2)
    if url is not None:
        dataset.encoding["source"] = url
    return dataset
