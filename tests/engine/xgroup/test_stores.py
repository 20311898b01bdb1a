"""Other stores in the engine `xgroup`: references access only what the policy allows, and indexes are stores too."""

import base64
import json
import warnings

import fsspec
import numpy as np
import pyarrow.parquet as pq
import pytest
import xarray as xr
from zarr.storage import FsspecStore, MemoryStore

import periplus
from periplus.engine.index import array as lazyarray
from periplus.engine.xgroup.backend import XGroupStoreWarning, levels
from periplus.policy import Policy
from periplus.read import read_array
from periplus.testing.hierarchies import StoredArray, declared, write_hierarchy
from periplus.testing.servers.responses import Fault

DAYS = {"time": StoredArray(dims=("time",), values=np.array([0.0, 2.0, 8.0]))}
LAST = np.datetime64("2000-01-09")


def series(uri, node="/time"):
    clock = {"unit": "days", "epoch": "2000-01-01", "calendar": "standard"}
    coordinates = {"time": clock, "values": {"external": {"ref": {"uri": uri, "node": node}}}}
    crs = {"type": "temporal", "axes": {"time": {"abbreviation": "T", "coordinates": [coordinates]}}}
    return {"v": StoredArray(dims=("time",), shape=(3,), attributes={**declared("cs", "ref"), "cs": {"crs": [crs]}})}


def opened(store, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return xr.open_dataset(store, engine="xgroup", **options)


def refused(store, match, **options):
    with pytest.warns(XGroupStoreWarning, match=match) as caught:
        dataset = xr.open_dataset(store, engine="xgroup", **options)
    assert "XGroupStoreError: /v, attribute 'cs.crs[0]" in str(caught[0].message)
    assert "time" not in dataset.coords
    assert dataset.v.values.tolist() == [0, 1, 2]
    return str(caught[0].message)


def serve(server, nodes, prefix="other.zarr"):
    store = write_hierarchy(MemoryStore(), nodes, consolidated=True)
    for key, value in store._store_dict.items():
        server.files[f"{prefix}/{key}"] = value.to_bytes()
    return f"{server.url}/{prefix}"


def test_a_store_in_the_same_folder_is_accessed(tmp_path):
    write_hierarchy(tmp_path / "other.zarr", DAYS)
    for n, uri in enumerate(("other.zarr", str(tmp_path / "other.zarr"), (tmp_path / "other.zarr").as_uri())):
        store = write_hierarchy(tmp_path / f"{n}.zarr", series(uri))
        assert opened(store).time.values[-1] == LAST
        assert opened(f"{store}/").time.values[-1] == LAST


def test_local_stores_elsewhere_are_accessed_only_if_allowed(tmp_path):
    other = write_hierarchy(tmp_path / "secret" / "other.zarr", DAYS)
    store = write_hierarchy(tmp_path / "public" / "this.zarr", series(str(other)))
    message = refused(store, "access is not allowed")
    assert "cross_store=" in message
    assert opened(store, cross_store=[str(tmp_path / "secret")]).time.values[-1] == LAST
    assert opened(store, cross_store=str(other)).time.values[-1] == LAST
    assert opened(store, cross_store=True).time.values[-1] == LAST
    assert opened(store, cross_store=Policy.everything()).time.values[-1] == LAST
    assert opened(store, cross_store_storage_options={str(other): None}).time.values[-1] == LAST
    refused(store, "access is not allowed", cross_store=[str(tmp_path / "sec")])


def test_the_environment_allows_prefixes_too(tmp_path, monkeypatch):
    other = write_hierarchy(tmp_path / "secret" / "other.zarr", DAYS)
    monkeypatch.setenv("PERIPLUS_ALLOW", str(other))
    assert opened(write_hierarchy(tmp_path / "this.zarr", series(str(other)))).time.values[-1] == LAST
    assert opened(write_hierarchy(MemoryStore(), series(str(other)))).time.values[-1] == LAST


def test_none_is_accessed_with_cross_store_false(tmp_path):
    write_hierarchy(tmp_path / "other.zarr", DAYS)
    store = write_hierarchy(tmp_path / "this.zarr", series("other.zarr"))
    refused(store, "access is not allowed", cross_store=False)


@pytest.mark.parametrize(
    "uri", ["../other.zarr", "a/../../other.zarr", "//host/other.zarr", "sub%2e%2e/x", "..\\other"]
)
def test_relative_addresses_do_not_climb(tmp_path, uri):
    write_hierarchy(tmp_path / "other.zarr", DAYS)
    store = write_hierarchy(tmp_path / "in" / "this.zarr", series(uri))
    refused(store, "XGroupStoreError")


def test_a_symbolic_link_is_no_way_out(tmp_path):
    other = write_hierarchy(tmp_path / "secret" / "other.zarr", DAYS)
    (tmp_path / "public").mkdir()
    (tmp_path / "public" / "link.zarr").symlink_to(other)
    store = write_hierarchy(tmp_path / "public" / "this.zarr", series("link.zarr"))
    refused(store, "access is not allowed")


def test_a_store_in_memory_accesses_nothing_unless_allowed(tmp_path):
    other = write_hierarchy(tmp_path / "other.zarr", DAYS)
    refused(write_hierarchy(MemoryStore(), series(str(other))), "access is not allowed")
    refused(write_hierarchy(MemoryStore(), series("other.zarr")), "relative")
    store = write_hierarchy(MemoryStore(), series(other.as_uri()))
    assert opened(store, cross_store=[str(other)]).time.values[-1] == LAST


def test_other_hosts_are_accessed_only_if_allowed(server, tmp_path):
    url = serve(server, DAYS)
    store = write_hierarchy(tmp_path / "this.zarr", series(url))
    refused(store, "access is not allowed")
    assert server.log == []
    dataset = opened(store, cross_store=[url])
    assert dataset.time.values[-1] == LAST
    headed = {url: {"headers": {"x-key": "k"}}}
    assert opened(store, cross_store_storage_options=headed).time.values[-1] == LAST
    assert {name.lower(): value for name, value in server.log[-1].headers.items()}["x-key"] == "k"


def test_a_redirect_leads_nowhere_a_reference_may_not(server, tmp_path):
    serve(server, DAYS, "secret.zarr")
    allowed = server.url + "/open.zarr"
    for key in list(server.files):
        moved = Fault(kind="redirect", location=f"{server.url}/{key}", times=-1)
        server.faults[f"/{key.replace('secret', 'open')}"] = [moved]
    store = write_hierarchy(tmp_path / "this.zarr", series(allowed))
    refused(store, "XGroupStoreError", cross_store=[f"{allowed}/"])
    assert not any(request.path.startswith("/secret") for request in server.log)
    assert opened(store, cross_store=[server.url]).time.values[-1] == LAST


def test_a_store_that_is_not_there_is_a_warning(server, tmp_path):
    gone = server.url + "/none.zarr"
    store = write_hierarchy(tmp_path / "this.zarr", series(gone))
    refused(store, "cannot be opened", cross_store=[gone])
    near = write_hierarchy(tmp_path / "near.zarr", series("none.zarr"))
    refused(near, "there is no Zarr group")


def test_unknown_schemes_are_refused(tmp_path):
    for n, uri in enumerate(("ftp://host/a.zarr", "javascript:1", "file://host/a.zarr", "http://user:secret@host/a")):
        store = write_hierarchy(tmp_path / f"{n}.zarr", series(uri))
        assert "secret" not in refused(store, "XGroupStoreError")


def test_bounds_of_labels_of_another_store_come_from_there(tmp_path):
    edges = StoredArray(dims=("time", "nv"), values=np.array([[0.0, 1.0], [2.0, 3.0], [8.0, 9.0]]))
    time = StoredArray(dims=("time",), values=np.array([0.0, 2.0, 8.0]), attributes={"bounds": "time_bnds"})
    write_hierarchy(tmp_path / "other.zarr", {"/": {"Conventions": "CF-1.11"}, "time": time, "time_bnds": edges})
    dataset = opened(write_hierarchy(tmp_path / "this.zarr", series("other.zarr")))
    assert dataset.time_bnds.dims == ("time", "nv")
    assert dataset.time_bnds.values[-1, 0] == LAST


# --- indexes --------------------------------------------------------------------------------------------------------


def test_an_index_opens_as_any_store(archive, tmp_path):
    index = periplus.index(str(archive["reflectance"]), to=str(tmp_path / "i.parquet"))
    ours = opened(index)
    theirs = xr.open_dataset(index, engine="periplus")
    np.testing.assert_array_equal(ours.x, theirs.x)
    np.testing.assert_array_equal(ours.y, theirs.y)
    np.testing.assert_allclose(ours.data, theirs.data)
    assert ours.x.encoding == {}  # computed from the grid, though the index has it as an array too
    by_url = opened(str(tmp_path / "i.parquet"), level=1)
    np.testing.assert_array_equal(by_url.x, xr.open_dataset(index, engine="periplus", level=1).x)
    tree = xr.open_datatree(index, engine="xgroup")
    assert {"/0", "/1", "/2"} <= set(tree.groups)


def test_an_index_is_opened_with_the_options_of_open(archive, tmp_path):
    index = periplus.index(str(archive["reflectance"]))
    index.write(tmp_path / "i.duckdb")
    with pytest.raises(periplus.DeniedError, match="trust=True"):
        opened(tmp_path / "i.duckdb")
    values = xr.open_dataset(index, engine="periplus").data.values
    allow = str(archive["reflectance"].parent)
    np.testing.assert_allclose(opened(tmp_path / "i.duckdb", trust=True, allow=allow).data, values)
    assert "/1" in xr.open_datatree(tmp_path / "i.duckdb", engine="xgroup", trust=True).groups
    assert len(levels(tmp_path / "i.duckdb", trust=True)) == 3

    index.write(tmp_path / "i.parquet")
    with pytest.raises(periplus.DeniedError, match="allow"):
        opened(tmp_path / "i.parquet").data.values  # noqa: B018
    np.testing.assert_allclose(opened(tmp_path / "i.parquet", allow=[allow]).data, values)
    with pytest.raises(periplus.LimitError):
        opened(tmp_path / "i.parquet", allow=allow, limits=periplus.Limits(read_bytes=1)).data.values  # noqa: B018


def test_a_branch_of_icechunk_is_opened(archive, tmp_path):
    icechunk = pytest.importorskip("icechunk")
    allow = str(archive["reflectance"].parent)
    index = periplus.index(str(archive["reflectance"]))
    index.write(tmp_path / "i.icechunk")
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path / "i.icechunk")))
    repository.create_branch("dev", repository.lookup_branch("main"))
    other = periplus.index(str(archive["height"]))
    other.write(tmp_path / "i.icechunk", branch="dev")
    for options, expected in (({}, index), ({"branch": "dev"}, other)):
        ours = opened(tmp_path / "i.icechunk", allow=allow, **options)
        np.testing.assert_allclose(ours.data, xr.open_dataset(expected, engine="periplus").data)


@pytest.mark.parametrize("engine", ["periplus", "xgroup"])
def test_a_table_without_a_document_is_opened_with_one(archive, tmp_path, engine):
    path = archive["reflectance"].parent / f"{engine}.parquet"
    index = periplus.index(str(archive["reflectance"]), to=str(path))
    expected = xr.open_dataset(index, engine="periplus").data.values
    footer = pq.read_metadata(path).metadata
    with pq.ParquetWriter(path, (rows := pq.read_table(path)).schema) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata({key: value for key, value in footer.items() if key != b"array_references"})
    document = json.loads(footer[b"array_references"])
    np.testing.assert_allclose(xr.open_dataset(path, engine=engine, document=document).data, expected)


def test_options_of_an_index_are_refused_for_other_stores(archive, tmp_path):
    store = write_hierarchy(tmp_path / "this.zarr", DAYS)
    with pytest.raises(TypeError, match=r"\(allow, trust\) have no effect: this store is not an index"):
        opened(store, trust=True, allow="/data")
    index = periplus.index(str(archive["reflectance"]))
    for engine in ("periplus", "xgroup"):
        with pytest.raises(TypeError, match=r"\(limits\) have no effect: this index is already open"):
            xr.open_dataset(index, engine=engine, limits=periplus.Limits(read_bytes=1))


def test_an_index_is_read_by_selections_and_not_chunk_by_chunk(archive, monkeypatch):
    read = []
    monkeypatch.setattr("periplus.zarr.store.chunks.ChunkReader.decoded", None)
    monkeypatch.setattr(lazyarray, "read_array", lambda *a, **k: read.append(a[3]) or read_array(*a, **k))
    with periplus.index(str(archive["reflectance"])) as index:
        ours = opened(index, chunks={})
        assert ours.data.data.npartitions == 1
        part = opened(index).data[:, 10:140, 5:200]
        np.testing.assert_allclose(part, xr.open_dataset(index, engine="periplus").data[:, 10:140, 5:200])
    assert len(read) == 2


def test_a_store_of_byte_references_opens_and_accesses_nothing_else(tmp_path):
    other = write_hierarchy(tmp_path / "other.zarr", DAYS)
    stored = write_hierarchy(MemoryStore(), series(str(other)), consolidated=True)
    texts = {key: base64.b64encode(value.to_bytes()).decode() for key, value in stored._store_dict.items()}
    references = {key: f"base64:{text}" for key, text in texts.items()}
    files = fsspec.filesystem("reference", fo=references, asynchronous=True)
    store = FsspecStore(files, read_only=True, path="")
    refused(store, "access is not allowed")
    assert opened(store, cross_store=[str(other)]).time.values[-1] == LAST
