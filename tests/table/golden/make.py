"""Writes the golden index of the present version: run once, when a version is released, from this folder."""

import json
from pathlib import Path

import numpy as np

from periplus.fetch import Fetch
from periplus.model import (
    Array,
    Catalog,
    Coordinate,
    Encoding,
    Files,
    Georeference,
    Inline,
    Placements,
    Refs,
    Region,
)
from periplus.table import write_table
from periplus.table.document.document import VERSION
from periplus.testing.indexes import inline_list

HERE = Path(__file__).parent
NAN = float("nan")
BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
ZSTD = {"name": "zstd", "configuration": {"level": 0, "checksum": False}}
UNPACK = {"name": "periplus.unpack", "configuration": {"dtype": "<i2", "nodata": NAN, "scale": 0.5, "offset": None}}

COUNT = 64
"""Groups from which on a document shares what its arrays have in common."""


def level(group: str, number: int, x: float, y: float) -> Array:
    """A level of a scene."""
    size, pixel = 100 >> number, 10.0 * 2**number
    return Array(
        name=f"{group}/{number}/data",
        dims=("bands", "y", "x"),
        shape=(1, size, size),
        chunks=(1, 64, 64),
        dtype=np.dtype("float32"),
        fill=NAN,
        encodings=(Encoding((BYTES, ZSTD)), Encoding((UNPACK, BYTES))),
        attributes={"units": "K", "_FillValue": NAN},
        level=number,
        georeference=Georeference(crs="EPSG:32633", transform=(pixel, 0.0, x, 0.0, -pixel, y)),
    )


groups = [f"scenes/s{n:02d}" for n in range(COUNT)]
arrays = [level(group, k, 3e5 + 1000.5 * n, 52e5 - n / 3) for n, group in enumerate(groups) for k in range(2)]
odd = Array(
    name="odd/data",
    dims=("row",),
    shape=(7,),
    chunks=(4,),
    dtype=np.dtype("int16"),
    encodings=(
        Encoding((BYTES,), clipped=("row",)),
        Encoding((BYTES,), extent=(6,)),
        Encoding((BYTES,), extent=(4,), region=Region(begin=(1,), at=(0,), size=(2,), transparent=-1, layer=1)),
    ),
)
when = Array(
    name="odd/when", dims=("row",), shape=(7,), chunks=(7,), dtype=np.dtype("M8[s]"), encodings=(Encoding((BYTES,)),)
)
code = Array(
    name="store/code",
    dims=("row",),
    shape=(8,),
    chunks=(4,),
    dtype=np.dtype("S2"),
    fill=b"--",
    encodings=when.encodings,
)
label = Array(
    name="odd/label", dims=(), shape=(), chunks=(), dtype=np.dtype("U3"), fill="abc", encodings=when.encodings
)
catalog = Catalog(
    arrays={array.name: array for array in (*arrays, odd, label, when, code)},
    coordinates={
        "odd/row": Coordinate(name="row", dims=("row",), values=np.arange(7) * 0.5),
        "row": Coordinate(name="row", dims=("row",), values=np.array(["2021-01-01"] * 8, "M8[us]")),
    },
    attributes={
        "": {"title": "golden"},
        "empty": {"note": "no array"},
        **{group: {"sensor": "ab"[n % 2]} for n, group in enumerate(groups[1:])},
    },
    arrangement={"kind": "collect"},
)
TOTAL = COUNT + 2
files = Files(
    path=[*(f"s3://bucket/{group}.tif" for group in groups), "https://example.com/c.raw", "s3://bucket/store/c/{row}"],
    size=np.array([*[1_000_000] * (COUNT + 1), -1]),
    etag=[None] * TOTAL,
    last_modified=np.full(TOTAL, "NaT", "M8[us]"),
    datetime=np.full(TOTAL, "NaT", "M8[us]"),
    format=[*["tiff"] * COUNT, "raw", "zarr"],
    status=["ok"] * TOTAL,
    error=[None] * TOTAL,
    columns={
        "group": np.array([*groups, "odd", "store"], object),
        "template": np.array([*[False] * (COUNT + 1), True], object),
        "cloud_cover": np.linspace(0, 100, TOTAL),
    },
)


def scene(number: int) -> Refs:
    """The first chunk of a scene, in two parts in one of them."""
    parts = 2 if number == 5 else 1
    return Refs(
        chunk=np.zeros((3, parts), np.int32),
        offset=np.arange(parts) * 100 + number,
        length=np.full(parts, 50),
        file=np.full(parts, number, np.int32),
        part=np.arange(parts).astype(np.uint16),
        encoding=np.full(parts, number % 2, np.uint16),
    )


rows = {f"{group}/0/data": scene(n) for n, group in enumerate(groups)} | {
    "odd/data": Refs(
        chunk=np.array([[0, 0, 1]], np.int32),
        offset=np.array([9, 19, 29]),
        length=np.array([8, 8, 6]),
        file=np.full(3, COUNT, np.int32),
        part=np.array([0, 1, 0], np.uint16),
        encoding=np.array([2, 2, 0], np.uint16),
    ),
    "odd/when": Refs(
        chunk=np.zeros((1, 1), np.int32),
        offset=np.zeros(1, np.int64),
        length=np.array([56]),
        file=np.array([-1], np.int32),
        inline=Inline.of([np.arange(7, dtype="<i8").tobytes()]),
    ),
    "store/code": Refs(
        chunk=np.array([[0, 1]], np.int32),
        offset=np.zeros(2, np.int64),
        length=np.array([8, 8]),
        file=np.full(2, COUNT + 1, np.int32),
    ),
}
placements = Placements(
    file=np.array([COUNT], np.int32),
    description=np.array([0], np.int32),
    array=np.array([0], np.int32),
    origin=np.array([[3]]),
    extent=np.array([[4]]),
    order=np.array([7]),
    corner=np.array([[np.nan, np.nan]]),
    descriptions=[odd.renamed("data", shape=(4,))],
    arrays=["odd/data"],
)


def plain(refs):
    """Columns as lists, as the test compares them."""
    columns = {name: getattr(refs, name) for name in ("chunk", "offset", "length", "file", "part", "encoding")}
    answer = {name: None if value is None else value.tolist() for name, value in columns.items()}
    return {**answer, "data": None if refs.inline is None else [item and item.hex() for item in inline_list(refs)]}


if __name__ == "__main__":
    with Fetch() as fetch:
        for form in (f"v{VERSION}.parquet", f"v{VERSION}"):
            write_table(str(HERE / form), catalog, rows.items(), files, placements=placements, fetch=fetch)
    (HERE / f"v{VERSION}" / ".lock").unlink()
    said = {name: plain(refs) for name, refs in rows.items()}
    (HERE / f"v{VERSION}.json").write_text(json.dumps(said, indent=1) + "\n")
