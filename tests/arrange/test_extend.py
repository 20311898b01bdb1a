"""Back from an arrangement to its files, and on from a stored stack to a longer one."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from periplus.arrange import Entry, collect, extend, stack
from periplus.arrange.invert import is_stack, origins, undo, unstacked
from periplus.model import Catalog


def undone(result: Any) -> dict[tuple[int, str], tuple[Any, list[int]]]:
    """(file, name in the file) -> (array, offsets), from a finished arrangement."""
    catalog = result.catalog
    names = origins(catalog, result.files)
    assert names is not None
    found = {}
    for name, refs in result.blocks:
        block = undo(refs, stacked=is_stack(catalog))
        for k, file in enumerate(block.files.tolist()):
            local = names[name].name
            array = catalog.arrays[name]
            array = unstacked(array, local, block.codes[k]) if is_stack(catalog) else array.renamed(local)
            found[file, local] = array, block.refs.offset[block.starts[k] : block.starts[k + 1]].tolist()
    return found


def test_collect_is_undone(make: SimpleNamespace) -> None:
    entries = [
        make.entry("/d/a.tif", make.image(), make.image("1/data", size=32, level=1)),
        make.entry("/d/a/b.tif", make.image(dtype=np.uint8)),
    ]
    found = undone(collect(entries, make.lookup(entries)))
    assert found[0, "1/data"] == (entries[0].arrays[1], [100, 101, 102, 103])
    assert found[1, "0/data"] == (entries[1].arrays[0], [10000, 10001, 10002, 10003])


def test_stack_is_undone_with_its_packings(make: SimpleNamespace) -> None:
    codecs = ({"name": "transpose", "configuration": {"order": [1, 2, 0]}}, *make.codecs)
    a = make.packed(make.image(codecs=codecs), nodata=0, scale=[0.5])
    b = make.packed(make.image(), nodata=7)
    entries = [make.entry("/d/b.tif", b, day=2), make.entry("/d/a.tif", a, day=1)]
    found = undone(stack(entries, make.lookup(entries)))
    assert found[0, "0/data"] == (a, [10000, 10001, 10002, 10003])
    assert found[1, "0/data"] == (b, [0, 1, 2, 3])


def test_series_are_undone(make: SimpleNamespace) -> None:
    entries = [make.entry(f"/d/{s}.tif", make.image(), day=1, series=s) for s in ("red", "red/x")]
    result = stack(entries, make.lookup(entries))
    names = origins(result.catalog)
    assert names is not None
    assert {name: (o.prefix, o.name) for name, o in names.items()} == {
        "red/0/data": ("red", "0/data"),
        "red/x/0/data": ("red/x", "0/data"),
    }


def test_foreign_arrangements_are_not_guessed() -> None:
    assert origins(Catalog(arrays={}, arrangement={})) is None


def rows(*blocks: Any) -> list[tuple[int, ...]]:
    return sorted(
        row
        for _, refs in blocks
        for row in zip(
            *refs.chunk.tolist(),
            refs.file.tolist(),
            refs.offset.tolist(),
            (np.zeros(len(refs), int) if refs.encoding is None else refs.encoding).tolist(),
            strict=True,
        )
    )


def check_same_as_whole(make: SimpleNamespace, old: list[Entry], new: list[Entry], **options: Any) -> None:
    whole = stack([*old, *new], make.lookup([*old, *new]), **options)
    first = stack(old, make.lookup(old), **options)
    lookup = make.lookup([*old, *new])
    longer = extend(first.catalog, new, lambda i, k: lookup(i + len(old), k), first_file=len(old))
    assert longer is not None
    assert longer.catalog.arrays == whole.catalog.arrays
    assert longer.catalog.coordinates.keys() == whole.catalog.coordinates.keys()
    for dim, coordinate in longer.catalog.coordinates.items():
        assert coordinate.values.tolist() == whole.catalog.coordinates[dim].values.tolist()
    assert longer.catalog.attributes == whole.catalog.attributes
    assert [*first.files.path, *longer.files.path] == list(whole.files.path)
    assert rows(*first.blocks, *longer.blocks) == rows(*whole.blocks)


def test_a_longer_stack_is_the_same_as_one_laid_at_once(make: SimpleNamespace) -> None:
    a, b = (
        make.image(attributes={"units": "K", "n": 1}),
        make.image(codecs=({"name": "bytes"},), attributes={"units": "K"}),
    )
    old = [make.entry("/d/1.tif", a, day=1, attributes={"s": 1}), make.entry("/d/2.tif", a, day=2, attributes={"s": 1})]
    new = [make.entry("/d/4.tif", b, day=4, attributes={"s": 2}), make.entry("/d/3.tif", a, day=3, attributes={"s": 1})]
    check_same_as_whole(make, old, new)
    check_same_as_whole(make, old, new, pattern=r"(?P<n>\d+)\.tif")
    plain = [replace(e, datetime=None) for e in old], [replace(e, datetime=None) for e in new]
    check_same_as_whole(make, *plain)


def test_a_longer_stack_of_physical_values(make: SimpleNamespace) -> None:
    kinds = [make.packed(make.image(), nodata=k) for k in range(3)]
    old = [make.entry(f"/d/{k}.tif", kinds[k], day=k + 1) for k in range(2)]
    new = [make.entry("/d/2.tif", kinds[2], day=3), make.entry("/d/3.tif", kinds[0], day=4)]
    lookup = make.lookup([*old, *new])
    first = stack(old, lookup)
    longer = extend(first.catalog, new, lambda i, k: lookup(i + 2, k), first_file=2)
    assert longer is not None
    array = longer.catalog.arrays["0/data"]
    assert np.isnan(array.fill)
    assert [e[0]["configuration"]["nodata"] for e in array.encodings] == [0, 1, 2]
    ((_, refs),) = longer.blocks
    assert refs.encoding is not None
    assert refs.encoding.tolist() == [2] * 4 + [0] * 4
    sparse = make.lookup([*old, *new], missing=[(2, 0)])
    bare = [make.entry("/d/2.tif", make.image(), day=3)]
    assert extend(first.catalog, bare, lambda i, k: sparse(i + 2, k), first_file=2) is None


@pytest.mark.parametrize("case", ["earlier", "equal", "misfit", "packing", "no datetime", "series", "twice"])
def test_what_does_not_simply_follow_is_laid_again(make: SimpleNamespace, case: str) -> None:
    a = make.image()
    old = [make.entry("/d/1.tif", a, day=4), make.entry("/d/2.tif", a, day=5)]
    new = {
        "earlier": [make.entry("/d/3.tif", a, day=3)],
        "equal": [make.entry("/d/3.tif", a, day=5)],
        "misfit": [make.entry("/d/3.tif", make.image(size=32), day=6)],
        "packing": [make.entry("/d/3.tif", make.packed(a, nodata=1), day=6)],
        "no datetime": [make.entry("/d/3.tif", a)],
        "series": [make.entry("/d/3.tif", a, day=6, series="x")],
        "twice": [make.entry("/d/3.tif", a, day=6), make.entry("/d/4.tif", a, day=6)],
    }[case]
    first = stack(old, make.lookup(old))
    assert extend(first.catalog, new, make.lookup(new), first_file=2) is None
