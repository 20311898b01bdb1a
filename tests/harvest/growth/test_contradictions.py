"""Placements that contradict the array they are in are refused, or what the array itself tells counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tifffile

import periplus
from periplus.errors import FormatError

ARRANGEMENTS: dict[str, tuple[dict[str, Any], int]] = {
    "stack": ({"arrange": "stack", "pattern": "x_{time:%Y%m%d}"}, 0),
    "packed": ({"arrange": "stack", "pattern": "x_{time:%Y%m%d}"}, 0),
    "mosaic": ({"arrange": "mosaic"}, 48),
    "overlaps": ({"arrange": "mosaic", "duplicates": "last", "order": "name"}, 20),
}
"""Options, and columns from one file to the next; those of `packed` have different nodata."""
Forgery = Callable[[dict[str, Any]], Any]
KEY = b"array_references_descriptions"


def codec(description: dict[str, Any], name: str) -> dict[str, Any]:
    codecs = [each for encoding in description["encodings"] for each in encoding]
    return next(each for each in codecs if each["name"] == name)


CONTRADICTIONS: dict[str, Forgery] = {
    "byte order": lambda d: codec(d, "bytes").update(configuration={"endian": "big"}),
    "codecs": lambda d: d["encodings"][0].append({"name": "numcodecs.zlib", "configuration": {"level": 6}}),
    "type": lambda d: d.update(dtype="int16"),
    "chunks": lambda d: d.update(chunks=[1, 8, 16]),
    "crs": lambda d: d.update(crs="EPSG:32632"),
    "pixels": lambda d: d.update(transform=[20.0, 0.0, 0.0, 0.0, -20.0, 0.0]),
    "registration": lambda d: d.update(registration="point"),
}
"""Changes of a description that no array can agree with."""
IGNORED: dict[str, Forgery] = {
    "fill": lambda d: d.update(fill=9),
    "packing": lambda d: d.setdefault("attributes", {}).update(scale_factor=2.0, _FillValue=3),
}
"""Changes of what the array itself tells."""


def forge(index: Path, descriptions: Forgery | None = None, column: tuple[str, list[int]] | None = None) -> None:
    """Change all descriptions, or a column, of the placements of a dataset."""
    files = index / "files.parquet"
    document = json.loads(pq.read_metadata(files).metadata[b"array_references"])
    path = index / document["placements"][0]["path"]
    table, described = pq.read_table(path), json.loads(pq.read_metadata(path).metadata[KEY])
    for description in described["arrays"].values() if descriptions is not None else ():
        descriptions(description)
    if column is not None:
        name, values = column
        at = table.column_names.index(name)
        table = table.set_column(at, name, pa.array(values, table.schema.field(name).type))
    pq.write_table(table.replace_schema_metadata({KEY: json.dumps(described).encode()}), path)
    document["placements"][0]["bytes"] = path.stat().st_size
    footer = {b"array_references": json.dumps(document).encode()}
    pq.write_table(pq.read_table(files).replace_schema_metadata(footer), files)


class Archive:
    """Three files that an index has, one that is new, and what a user may do with them."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.options, shift = ARRANGEMENTS[kind]
        self.paths = [folder / f"x_202101{n + 1:02d}.tif" for n in range(4)]
        for n, path in enumerate(self.paths):
            x, y = 500000.0 + 10 * shift * n, 5000000.0 - (10 * (n % 2) if kind == "overlaps" else 0)
            tags = [
                (33550, "d", 3, (10.0, 10.0, 0.0), True),
                (
                    33922,
                    "d",
                    6,
                    (0.0, 0.0, 0.0, x, y, 0.0),
                    True,
                ),
                (34735, "H", 16, (1, 1, 0, 3, 1024, 0, 1, 1, 1025, 0, 1, 1, 3072, 0, 1, 32633), True),
                (42113, "s", 0, str(n % 2 if kind == "packed" else 0), True),
            ]
            values = np.random.default_rng(n).integers(0, 9, (40, 48), dtype=np.uint16)
            tifffile.imwrite(path, values, tile=(16, 16), photometric="minisblack", extratags=tags, metadata=None)
        self.to = folder / "index"
        periplus.index(self.paths[1:], to=self.to, **self.options).close()

    def grow(self, how: str) -> periplus.Index:
        if how == "append":
            return periplus.index(self.paths[0], to=self.to, append=True)
        if how == "remove":
            return periplus.index(self.paths[2:], to=self.to, **self.options)
        return periplus.index(self.paths[1:], to=self.to, arrange="collect")


@pytest.mark.parametrize("how", ["append", "remove", "collect"])
@pytest.mark.parametrize("kind", ["stack", "packed", "mosaic", "overlaps"])
def test_a_description_that_contradicts_the_array_is_refused(tmp_path: Path, kind: str, how: str) -> None:
    archive = Archive(tmp_path, kind)
    kept = {path: path.read_bytes() for path in archive.to.rglob("*.parquet")}
    for change in CONTRADICTIONS.values():
        for path, content in kept.items():
            path.write_bytes(content)
        forge(archive.to, change)
        with pytest.raises(FormatError, match="'0/data'"):
            archive.grow(how).close()


@pytest.mark.parametrize("kind", ["stack", "mosaic"])
@pytest.mark.parametrize("change", IGNORED)
def test_what_the_array_tells_counts(tmp_path: Path, kind: str, change: str) -> None:
    archive = Archive(tmp_path, kind)
    forge(archive.to, IGNORED[change])
    with archive.grow("append") as index, periplus.index(archive.paths, **archive.options) as whole:
        ours, theirs = index.table.catalog.arrays["0/data"], whole.table.catalog.arrays["0/data"]
        assert (ours.fill, ours.attributes, ours.dtype) == (theirs.fill, theirs.attributes, theirs.dtype)
        np.testing.assert_array_equal(index["0/data"][...], whole["0/data"][...])


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("stack", ("time_origin", [1, 0, 2])),
        ("stack", ("file_id", [1, 0, 2])),
        ("mosaic", ("x_origin", [0, 0, 0])),
        ("overlaps", ("y_origin", [0, 0, 0])),
    ],
)
def test_a_placement_elsewhere_than_its_rows_is_refused(
    tmp_path: Path, kind: str, column: tuple[str, list[int]]
) -> None:
    archive = Archive(tmp_path, kind)
    forge(archive.to, column=column)
    with pytest.raises(FormatError, match="'0/data'"):
        archive.grow("append").close()


@pytest.mark.parametrize("kind", ["stack", "mosaic", "collect"])
def test_a_file_with_an_error_that_has_values_is_refused(tmp_path: Path, kind: str) -> None:
    archive = Archive(tmp_path, "stack" if kind == "collect" else kind)
    if kind == "collect":
        archive.grow("collect").close()
    files = archive.to / "files.parquet"
    stored, keys = pq.read_table(files), pq.read_metadata(files).metadata
    for status, why in (("error", "gives it the status 'error'"), ("OK", "not 'ok' or 'error'")):
        values = pa.array([status, "ok", "ok"])
        forged = stored.set_column(stored.column_names.index("status"), "status", values)
        pq.write_table(forged.replace_schema_metadata(keys), files)
        for how in ("append", "remove"):
            with pytest.raises(FormatError, match=why):
                archive.grow(how)
        (problem, *_) = periplus.open(archive.to).check_index().problems
        assert problem.kind == ("files" if status == "OK" else "file")
        assert why in problem.message or "file 0, which has the status 'error'" in problem.message
    again = {"arrange": "collect"} if kind == "collect" else archive.options
    with periplus.index(archive.paths[1:], to=archive.to, refresh="always", **again) as index:
        assert index.check_index().ok
