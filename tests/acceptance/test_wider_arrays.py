"""One index of arrays of every kind through every form and exit, compared with NumPy."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

import periplus
from periplus.fetch import Fetch
from periplus.model import Array, Catalog, Coordinate, Encoding, Inline, Refs, chunk_positions
from periplus.table import write_table
from periplus.testing.indexes import files_of
from periplus.zarr.virtualizarr import manifest_store

FORMS = ("i.parquet", "i_dataset", "i.duckdb")
LITTLE = ({"name": "bytes", "configuration": {"endian": "little"}},)
TIMES = {
    "utm33": np.array(["2021-01-01", "2021-02-01", "2021-03-01"], "datetime64[us]"),
    "utm34": np.array(["2022-05-01", "2022-06-01"], "datetime64[us]"),
}
VALUES: dict[str, np.ndarray[Any, Any]] = {
    "utm33/data": np.arange(3 * 4 * 6, dtype="u2").reshape(3, 4, 6),
    "utm34/data": np.arange(2 * 4 * 6, dtype="u2").reshape(2, 4, 6) + 500,
    "other/scalar": np.array(7.5, "f4"),
    "utm33/held": np.array(-3, "i2"),
    "other/codes": np.array([b"ab", b"", b"c\xff3"], "S3"),
    "other/words": np.array([["äöü", ""], ["x", "漢字😀"]], "U3"),
    "other/moments": np.array(["2021-01-01", "NaT", "1969-12-31T23:59:59"], "M8[s]"),
    "other/days": np.array(["1900-01-01", "2100-02-03"], "M8[D]"),
    "other/spans": np.array([1, -5, 7], "m8[ns]"),
}
INLINE = ("utm33/held",)
"""Arrays of one chunk, which the index holds."""
CHUNKS = {"utm33/data": (1, 4, 4), "utm34/data": (1, 4, 4)}
DIMS = {"utm33/data": ("time", "y", "x"), "utm34/data": ("time", "y", "x")}

pytestmark = [
    pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning"),
    pytest.mark.filterwarnings("ignore:The data type"),
]


def arrays_of(values=None) -> dict[str, Array]:
    return {
        name: Array(
            name=name,
            dims=DIMS.get(name, tuple(f"d{d}n{size}" for d, size in enumerate(each.shape))),
            shape=each.shape,
            chunks=CHUNKS.get(name, each.shape),
            dtype=each.dtype,
            encodings=(Encoding(codecs=LITTLE),),
        )
        for name, each in (values or VALUES).items()
    }


def stored(folder: Path) -> tuple[Catalog, dict[str, Refs], Any]:
    """The catalog, every other chunk in a file and the others inline, and the files table."""
    arrays, refs, body = arrays_of(), {}, bytearray(b"head")
    for name, array in arrays.items():
        chunk = chunk_positions(array.grid)
        pieces = [encoded(VALUES[name], array, place) for place in chunk.T.tolist()]
        inline = [piece if row % 2 or name in INLINE else None for row, piece in enumerate(pieces)]
        offset = []
        for piece, held in zip(pieces, inline, strict=True):
            offset.append(0 if held is not None else len(body))
            body += b"" if held is not None else piece
        refs[name] = Refs(
            chunk=chunk,
            offset=np.array(offset, np.int64),
            length=np.array([len(piece) for piece in pieces], np.int64),
            file=np.array([0 if held is None else -1 for held in inline], np.int32),
            inline=Inline.of(inline),
        )
    (folder / "data.bin").write_bytes(body)
    coordinates = {
        f"{group}/time": Coordinate(name="time", dims=("time",), values=values) for group, values in TIMES.items()
    }
    catalog = Catalog(arrays=arrays, coordinates=coordinates, attributes={"empty/inner": {"title": "no array"}})
    files = files_of([str(folder / "data.bin")], size=len(body))
    return catalog, refs, replace(files, etag=[None], last_modified=np.array(["NaT"], "datetime64[us]"))


def encoded(values: np.ndarray[Any, Any], array: Array, place: list[int]) -> bytes:
    """A whole chunk, with zeros beyond the array."""
    whole = np.zeros(array.chunks, array.dtype)
    held = values[tuple(slice(p * c, (p + 1) * c) for p, c in zip(place, array.chunks, strict=True))]
    whole[tuple(slice(n) for n in held.shape)] = held
    return whole.astype(array.dtype.newbyteorder("<")).tobytes()


@pytest.fixture(scope="module")
def forms(tmp_path_factory) -> dict[str, str]:
    """The index in every form of ours, and as kerchunk and Icechunk have it."""
    folder = tmp_path_factory.mktemp("wider")
    catalog, refs, files = stored(folder)
    with Fetch() as fetch:
        for form in FORMS:
            write_table(str(folder / form), catalog, refs.items(), files, fetch=fetch)
    index = periplus.open(folder / FORMS[0], trust=True)
    index.write(folder / "k2.json", form="kerchunk", codecs="all")
    index.write(folder / "k3.json", form="kerchunk", zarr_format=3, codecs="all")
    index.write(folder / "k.parq", form="kerchunk", codecs="all")
    index.write(folder / "i.icechunk")
    return {path.name: str(path) for path in folder.iterdir() if path.name != "data.bin"}


ALL = (*FORMS, "k2.json", "k3.json", "k.parq", "i.icechunk")


@pytest.mark.parametrize("form", ALL)
def test_every_array_is_read_from_every_form(form, forms):
    with periplus.open(forms[form], trust=True) as index:
        for name, values in VALUES.items():
            found = index[name][...]
            assert found.dtype == values.dtype
            np.testing.assert_array_equal(found, values)
        for group, times in TIMES.items():
            found = index.table.catalog.coordinates_of(index.table.array(f"{group}/data"))
            np.testing.assert_array_equal(found["time"].values, times)
        assert index.check_index().ok
        for name, refs in index.table.blocks():
            assert len(refs) == len(index.select(array=name))


@pytest.mark.parametrize("form", ALL)
def test_times_of_a_group_select_its_rows(form, forms):
    with periplus.open(forms[form], trust=True) as index:
        assert index.select(time="2022-06").column("array").unique().to_pylist() == ["utm34/data"]
        found = index.select(array=["utm33/data", "utm34/data"])
        moments = dict(zip(found["array"].to_pylist(), found["time"].to_pylist(), strict=True))
        assert str(moments["utm33/data"]).startswith("2021-03")
        assert str(moments["utm34/data"]).startswith("2022-06")
        raster = index.read(array="utm34", time="2022-05")
        np.testing.assert_array_equal(raster.values, VALUES["utm34/data"][:1])


@pytest.mark.parametrize("form", ALL)
def test_xarray_opens_each_group_with_its_own_labels(form, forms):
    with periplus.open(forms[form], trust=True) as index:
        for group, times in TIMES.items():
            dataset = xr.open_dataset(index, engine="periplus", group=group)
            np.testing.assert_array_equal(dataset["time"].values, times.astype("datetime64[ns]"))
            np.testing.assert_array_equal(dataset["data"].values, VALUES[f"{group}/data"])
        other = xr.open_dataset(index, engine="periplus", group="other")
        for name in ("scalar", "codes", "words", "moments", "days", "spans"):
            np.testing.assert_array_equal(other[name].values, VALUES[f"other/{name}"])
        tree = xr.open_datatree(index, engine="periplus")
        assert (tree["utm33"]["time"].size, tree["utm34"]["time"].size) == (3, 2)
        assert tree["empty/inner"].attrs["title"] == "no array"


@pytest.mark.parametrize("codecs", ["none", "standard", "all"])
def test_stock_zarr_reads_the_store(codecs, forms):
    with periplus.open(forms[FORMS[0]], trust=True) as index:
        check_zarr(zarr.open_group(index.store(codecs=codecs), mode="r"))
        check_zarr(zarr.open_group(manifest_store(index), mode="r"))


def check_zarr(root) -> None:
    for name, values in VALUES.items():
        np.testing.assert_array_equal(root[name][...], values)
        assert root[name].dtype == values.dtype
    assert root["empty/inner"].attrs["title"] == "no array"


@pytest.mark.parametrize("form", ["k2.json", "k3.json"])
def test_stock_zarr_reads_kerchunk_by_fsspec(form, forms):
    import fsspec
    from zarr.storage import FsspecStore

    fs = fsspec.filesystem("reference", fo=json.loads(Path(forms[form]).read_text()), asynchronous=True)
    check_zarr(zarr.open_group(FsspecStore(fs, read_only=True), mode="r", zarr_format=3 if form == "k3.json" else 2))


def test_icechunk_itself_reads_the_repository(forms):
    import icechunk

    storage = icechunk.local_filesystem_storage(forms["i.icechunk"])
    folder = f"file://{Path(forms['i.icechunk']).parent}/"
    session = icechunk.Repository.open(storage, authorize_virtual_chunk_access={folder: None}).readonly_session("main")
    check_zarr(zarr.open_group(session.store, mode="r"))


def test_arrays_without_rows_and_columns_are_not_images(forms):
    with periplus.open(forms[FORMS[0]], trust=True) as index:
        with pytest.raises(periplus.PeriplusError, match="is not an image"):
            index.read(array="other/scalar")
        with pytest.raises(TypeError, match="without dimensions"):
            len(index["other/scalar"])
        assert index["other/scalar"][()] == np.asarray(index["other/scalar"]) == 7.5
        query = 'select "array", length from chunks where "array" = \'other/scalar\''
        assert index.sql(query).to_pylist() == [{"array": "other/scalar", "length": 4}]
