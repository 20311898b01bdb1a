"""Writes the golden index of the present version: run once, when a version is released, from this folder."""

import json
from pathlib import Path

import numpy as np

from periplus.fetch import Fetch
from periplus.model import Array, Catalog, Coordinate, Files, Georeference, GroundControlPoint, Refs
from periplus.table import write_table
from periplus.table.document import VERSION

HERE = Path(__file__).parent
NAN = float("nan")
BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
ZSTD = {"name": "zstd", "configuration": {"level": 0, "checksum": False}}
UNPACK = {"name": "periplus.unpack", "configuration": {"dtype": "<i2", "nodata": NAN, "scale": 0.5, "offset": None}}

stack = Array(
    name="0/data",
    dims=("time", "y", "x"),
    shape=(3, 100, 130),
    chunks=(1, 64, 64),
    dtype=np.dtype("float32"),
    fill=NAN,
    encodings=((BYTES, ZSTD), (UNPACK, BYTES)),
    attributes={"units": "K", "_FillValue": NAN, "valid_range": [0, 400], "nested": {"a": [1, None, "NaN"]}},
    georeference=Georeference(crs="EPSG:32633", transform=(10.0, 0.0, 3e5, 0.0, -10.0, 52e5), registration="point"),
)
varied = Array(
    name="images/1/0/data",
    dims=("bands", "row"),
    shape=(2, 7),
    chunks=(1, 4),
    dtype=np.dtype("complex64"),
    fill=complex(1, NAN),
    edges=(None, (4, 1, 2)),
    level=2,
    georeference=Georeference(gcps=(GroundControlPoint(column=0, row=1, x=2.5, y=3.5, z=4.5),), rpc={"LINE_OFF": 1.5}),
)
catalog = Catalog(
    arrays={array.name: array for array in (stack, varied)},
    coordinates={
        "time": Coordinate(name="time", dims=("time",), values=np.array(["2021-01-01", "NaT", "2021-03-01"], "M8[us]")),
        "row": Coordinate(name="row", dims=("row",), values=np.arange(7) * 0.5 - 1, attributes={"units": "m"}),
    },
    attributes={"": {"title": "golden"}, "images": {"note": "a group"}},
    arrangement={"kind": "stack", "dim": "time"},
)
files = Files(
    path=[str(HERE / "tiles" / "a.tif"), "s3://bucket/b.tif", "https://example.com/c.tif"],
    size=np.array([100_000, -1, 5_000_000_000]),
    etag=['"abc"', None, 'W/"x"'],
    last_modified=np.array(["2021-05-05T01:02:03.000004", "NaT", "2022-01-01"], "M8[us]"),
    datetime=np.array(["2021-01-01", "NaT", "2021-03-01"], "M8[us]"),
    format=["tiff", "tiff", ""],
    status=["ok", "ok", "error"],
    error=[None, None, "it was not a TIFF"],
)
rows = {
    "0/data": Refs(
        chunk=np.array([[0, 0, 0, 1, 2, 2], [0, 0, 1, 1, 0, 1], [0, 1, 2, 0, 0, 2]], np.int32),
        offset=np.array([500, 1500, 90_000, 4_000_000_000, 7, 11]),
        length=np.array([1000, 0, 10_000, 5, 2, 3]),
        file=np.array([0, 0, 0, 1, 2, 2], np.int32),
        encoding=np.array([0, 0, 0, 0, 1, 1], np.uint16),
    ),
    "images/1/0/data": Refs(
        chunk=np.array([[0, 0, 1], [2, 2, 0]], np.int32),
        offset=np.array([0, 300, 400]),
        length=np.array([4, 20, 30]),
        file=np.array([-1, 0, 0], np.int32),
        part=np.array([0, 1, 0], np.uint16),
        data=[b"\x00\xffab", None, None],
    ),
}


def plain(refs):
    """Columns as lists, as the test compares them."""
    columns = {name: getattr(refs, name) for name in ("chunk", "offset", "length", "file", "part", "encoding")}
    answer = {name: None if value is None else value.tolist() for name, value in columns.items()}
    return {**answer, "data": None if refs.data is None else [item and item.hex() for item in refs.data]}


if __name__ == "__main__":
    with Fetch() as fetch:
        for form in (f"v{VERSION}.parquet", f"v{VERSION}"):
            write_table(str(HERE / form), catalog, rows.items(), files, fetch=fetch)
    (HERE / f"v{VERSION}" / ".lock").unlink()
    said = {name: plain(refs) for name, refs in rows.items()}
    (HERE / f"v{VERSION}.json").write_text(json.dumps(said, indent=1) + "\n")
