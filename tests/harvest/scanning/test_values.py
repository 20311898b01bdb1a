"""Values of small arrays, read while indexing: the same as those of an index, bounded, counted, errors by file."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tifffile

from periplus.errors import DeniedError, FormatError, LimitError, MissingError, PeriplusError, StaleError
from periplus.fetch import Fetch
from periplus.harvest.inputs import Input
from periplus.harvest.scanning.drive import Harvested, harvest_local, harvest_remote
from periplus.harvest.scanning.head import HeadSize
from periplus.harvest.scanning.values import ValueReader
from periplus.harvest.summary import Summary
from periplus.limits import Limits
from periplus.model import Array, Encoding, Found, Inline, Refs, Source
from periplus.policy import Policy
from periplus.testing.formats import nitf as nitfs
from periplus.testing.servers.http import RangeServer


def scanned(path: Path) -> Harvested:
    result = harvest_local(Input(url=str(path)), str(path), HeadSize(), Limits())
    assert result.error is None
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Twelve images of one shape in two compressions and two tile shapes, and one of another shape."""
    place, values = tmp_path_factory.mktemp("values"), []
    for k in range(12):
        values.append(np.random.default_rng(k).integers(0, 4000, (70, 90)).astype("u2"))
        layout: Any = {"tile": (32, 32)} if k % 3 else {"rowsperstrip": 16}
        tifffile.imwrite(place / f"{k}.tif", values[k], compression=("zlib", None)[k % 2], **layout)
    values.append(np.arange(48, dtype="f4").reshape(6, 8))
    tifffile.imwrite(place / "12.tif", values[12])
    return SimpleNamespace(paths=[place / f"{k}.tif" for k in range(13)], values=values)


def test_the_values_of_many_files_are_read_together(folder: SimpleNamespace, fetch: Fetch) -> None:
    reader = ValueReader(fetch, Limits())
    found = reader.read([scanned(path) for path in folder.paths], "0/data")
    for ours, theirs in zip(found, folder.values, strict=True):
        np.testing.assert_array_equal(np.asarray(ours)[0], theirs)
    assert reader.arrays == 13
    assert reader.bytes == sum(values.nbytes for values in folder.values)


def test_remote_files_cost_no_more_than_their_bytes(server: RangeServer, fetch: Fetch, folder: SimpleNamespace) -> None:
    server.files.update({path.name: path.read_bytes() for path in folder.paths})
    urls = [f"{server.url}/{path.name}" for path in folder.paths]
    files = [fetch.run(harvest_remote(Input(url=url), url, fetch, HeadSize(), Limits())) for url in urls]
    server.log.clear()
    server.latency = 0.05
    found = ValueReader(fetch, Limits()).read(files, "0/data")
    for ours, theirs in zip(found, folder.values, strict=True):
        np.testing.assert_array_equal(np.asarray(ours)[0], theirs)
    assert len(server.log) == 13
    assert server.most_waiting > 4, "at the same time"


def test_a_file_that_fails_takes_nothing_from_the_others(folder: SimpleNamespace, fetch: Fetch, tmp_path: Path) -> None:
    paths = [tmp_path / path.name for path in folder.paths]
    for path, original in zip(paths, folder.paths, strict=True):
        path.write_bytes(original.read_bytes())
    files = [scanned(path) for path in paths]
    paths[4].unlink()
    paths[8].write_bytes(b"something else")
    (tmp_path / "text").write_text("hello")
    files.append(harvest_local(Input(url=str(tmp_path / "text")), str(tmp_path / "text"), HeadSize(), Limits()))
    reader = ValueReader(fetch, Limits())
    found = reader.read(files, "0/data")
    kinds = {k: type(value) for k, value in enumerate(found) if isinstance(value, PeriplusError)}
    assert kinds == {4: MissingError, 8: StaleError, 13: FormatError}
    assert reader.arrays == 11
    for k, values in enumerate(found):
        if isinstance(values, np.ndarray):
            np.testing.assert_array_equal(values[0], folder.values[k])
    assert isinstance(found[8], StaleError)
    assert found[8].url == str(paths[8])


def test_a_name_that_a_file_lacks_is_missing(folder: SimpleNamespace, fetch: Fetch) -> None:
    (error,) = ValueReader(fetch, Limits()).read([scanned(folder.paths[0])], "latitude")
    assert isinstance(error, MissingError)
    assert error.url == str(folder.paths[0])


def test_what_is_read_is_limited_by_array_and_by_file(folder: SimpleNamespace, fetch: Fetch) -> None:
    files = [scanned(path) for path in folder.paths[:2]]
    size = 96 * 96 * 2  # of all that is decoded for it, at most
    small = ValueReader(fetch, Limits(coordinate_bytes=10_000)).read(files, "0/data")
    assert all(isinstance(value, LimitError) for value in small)
    reader = ValueReader(fetch, Limits(file_coordinate_bytes=size + 5000))
    assert all(isinstance(value, np.ndarray) for value in reader.read(files, "0/data"))
    again = reader.read(files, "0/data")
    assert all(isinstance(value, LimitError) for value in again), "both count"


def test_a_small_array_of_a_huge_chunk_is_refused(fetch: Fetch, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(100))
    array = Array(
        name="lat",
        dims=("x",),
        shape=(4,),
        chunks=(1 << 40,),
        dtype=np.dtype("f8"),
        encodings=(Encoding(({"name": "bytes"},)),),
    )
    refs = Refs(chunk=np.zeros((1, 1), np.int32), offset=np.array([0]), length=np.array([32]))
    file = Harvested(input=Input(url=str(path)), source=Source(url=str(path), size=100), founds=(Found(array, refs),))
    (error,) = ValueReader(fetch, Limits()).read([file], "lat")
    assert isinstance(error, LimitError)


def test_inline_bytes_and_missing_chunks_are_read(fetch: Fetch) -> None:
    array = Array(
        name="time",
        dims=("time",),
        shape=(6,),
        chunks=(2,),
        dtype=np.dtype("<i4"),
        fill=-1,
        encodings=(Encoding(({"name": "bytes", "configuration": {"endian": "little"}},)),),
    )
    files = []
    for k in range(3):
        refs = Refs(
            chunk=np.array([[2, 0]], np.int32),
            offset=np.zeros(2, np.int64),
            length=np.full(2, 8),
            inline=Inline.of([np.array([k, 2], "<i4").tobytes(), np.array([7, 8], "<i4").tobytes()]),
        )
        files.append(Harvested(input=Input(url=f"/{k}"), source=Source(url=f"/{k}"), founds=(Found(array, refs),)))
    found = ValueReader(fetch, Limits()).read(files, "time")
    assert [np.asarray(each).tolist() for each in found] == [[7, 8, -1, -1, k, 2] for k in range(3)]


def test_an_array_in_a_sidecar_is_read_from_there(fetch: Fetch, tmp_path: Path) -> None:
    values = nitfs.values_of("u16", 1, (64, 80))
    for name, step in {"a.ntf": 1, "a.ntf.r1": 2}.items():
        picture = nitfs.ImageSegment(values=values[:, ::step, ::step], kind="u16")
        (tmp_path / name).write_bytes(nitfs.nitf(picture))
    (found,) = ValueReader(fetch, Limits()).read([scanned(tmp_path / "a.ntf")], "1/data")
    np.testing.assert_array_equal(np.asarray(found), values[:, ::2, ::2])


def test_policy_holds(folder: SimpleNamespace, tmp_path: Path) -> None:
    with Fetch(policy=Policy(prefixes=(f"{tmp_path}/",))) as fetch:
        (error,) = ValueReader(fetch, Limits()).read([scanned(folder.paths[0])], "0/data")
    assert isinstance(error, DeniedError)


def test_a_summary_tells_what_was_read() -> None:
    assert "coordinate" not in str(Summary(files=3, ok=3))
    text = str(Summary(files=3, ok=3, arrays_read=6, bytes_read=12_000))
    assert "6 coordinate arrays read (12.0 kB)" in text
