"""Requests of writers to an object store fail, or their answers are lost: the index is the old or the new one."""

import os
import random
from dataclasses import replace

import numpy as np
import pytest

from periplus.errors import DeniedError, FetchError, MissingError, PeriplusError
from periplus.fetch import Fetch
from periplus.fetch.objects import stores
from periplus.policy import Policy
from periplus.table import append_table, lock, open_table, write_table
from periplus.testing.indexes import files_of, stacked
from periplus.testing.servers.proxies import KINDS, FaultyProxy

ALL = os.environ.get("PERIPLUS_FAULTS") == "all"
SEED = os.environ.get("PERIPLUS_FUZZ_SEED", "0")
SAMPLE = 2
OLD, NEW = 48, 72

pytestmark = [pytest.mark.s3, pytest.mark.timeout(3600 if ALL else 600)]


def nothing(_url, _fetch):
    return None


def written(url, fetch, steps=2):
    catalog, refs, files = stacked(steps=steps)
    write_table(url, catalog, refs.items(), files, fetch=fetch)


def replaced(url, fetch):
    written(url, fetch, steps=3)


def continued(url, fetch):
    """A write on condition that the index is still the one that was opened."""
    catalog, refs, files = stacked(steps=3)
    before = open_table(url, fetch=fetch, policy=Policy.everything())
    write_table(url, catalog, refs.items(), files, fetch=fetch, continues=before)


def appended(url, fetch):
    catalog, refs, _ = stacked(steps=3)
    blocks = [(name, one.take(one.chunk[0] == 2)) for name, one in refs.items()]
    blocks = [(name, replace(one, file=np.zeros(len(one), np.int32))) for name, one in blocks]
    append_table(url, catalog, blocks, files_of(["s3://bucket/new.tif"]), fetch=fetch)


WRITERS = {
    "flat": ("index.parquet", written, replaced),
    "flat-continued": ("index.parquet", written, continued),
    "dataset-new": ("index", nothing, replaced),
    "dataset": ("index", written, replaced),
    "append": ("index", written, appended),
}


@pytest.fixture(scope="module")
def proxy(s3):
    with FaultyProxy(s3.endpoint) as running:
        yield running


@pytest.fixture
def shaky(s3, proxy, monkeypatch):
    """A Fetch whose requests pass the proxy."""
    monkeypatch.setattr(stores, "PAUSES", (0.0,))
    monkeypatch.setattr(lock, "PATIENCE", 0.5)
    with Fetch(storage_options={**s3.storage_options, "endpoint": proxy.endpoint}, retries=1, deadline=10) as fetch:
        yield fetch
    proxy.set()


def rows(url, fetch) -> int | None:
    try:
        table = open_table(url, fetch=fetch, policy=Policy.everything())
    except MissingError:
        return None
    assert sum(len(refs) for _, refs in table.blocks()) == table.rows
    return len(table.refs("0/data"))


@pytest.mark.parametrize("name", WRITERS)
def test_a_failing_request_leaves_the_old_or_the_new(name, s3, shaky, proxy, monkeypatch):
    tail, begin, write = WRITERS[name]
    with Fetch(storage_options=s3.storage_options) as good:
        begin(f"s3://bucket/{name}/count/{tail}", good)
        proxy.set()
        write(f"s3://bucket/{name}/count/{tail}", shaky)
        every = [(kind, at, last) for kind in KINDS for at in range(1, len(proxy.log) + 1) for last in (False, True)]
        assert every
        for number, (kind, at, lasting) in enumerate(
            every if ALL else random.Random(f"{name} {SEED}").sample(every, SAMPLE)
        ):
            url, error = f"s3://bucket/{name}/{number}/{tail}", None
            begin(url, good)
            proxy.set(at=at, kind=kind, lasting=lasting)
            try:
                write(url, shaky)
            except PeriplusError as raised:
                error = raised
            where = f"{kind} of {proxy.log[at - 1]}{', lasting' if lasting else ''}: {error}"
            found = rows(url, good)
            assert found in ({NEW} if error is None else {NEW, None if begin is nothing else OLD}), where
            if error is None:  # tried again, or a deletion that the index does not depend on
                assert kind != "status-403" or "?delete" in where, where
            else:
                assert isinstance(error, DeniedError if kind == "status-403" else FetchError), where
            proxy.set()
            if found == NEW:
                continue
            with monkeypatch.context() as patch:
                patch.setattr(lock, "LIFE", -5.0)  # a lock that could not be removed is taken over when it is old
                write(url, good)
            assert rows(url, good) == NEW, where


@pytest.mark.parametrize("kind", ["reset", "lost"])
def test_a_broken_connection_neither_keeps_a_lock_nor_fails_a_commit(kind, s3, shaky, proxy):
    with Fetch(storage_options=s3.storage_options) as good:
        written("s3://bucket/once/count", good)
        proxy.set()
        appended("s3://bucket/once/count", shaky)
        for at in range(1, len(proxy.log) + 1):
            url = f"s3://bucket/once/{kind}/{at}"
            written(url, good)
            proxy.set(at=at, kind=kind)
            appended(url, shaky)
            assert rows(url, good) == NEW
            with pytest.raises(MissingError):
                good.run(good.head(f"{url}/.lock"))


def test_the_error_of_a_commit_is_not_hidden_by_that_of_its_lock(s3, shaky, proxy):
    url = "s3://bucket/hidden"
    with Fetch(storage_options=s3.storage_options) as good:
        written(url, good)
    proxy.set(at=3, kind="status-403", lasting=True)  # the part and the lock are written, the files table is not
    with pytest.raises(DeniedError) as caught:
        appended(url, shaky)
    assert caught.value.url == f"{url}/files.parquet"


def test_a_lock_that_cannot_be_removed_is_told_with_the_fate_of_the_index(s3, shaky, proxy):
    url = "s3://bucket/locked"
    with Fetch(storage_options=s3.storage_options) as good:
        written(url, good)
        proxy.set(at=4, kind="status-403", lasting=True)
        with pytest.raises(DeniedError, match="the index was written, but its lock could not be removed"):
            appended(url, shaky)
        assert rows(url, good) == NEW


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_upload_that_fails_leaves_the_old_or_the_new(kind, s3, shaky, proxy, tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "PART", 5 << 20)
    for name in "ab":
        (tmp_path / name).write_bytes(name.encode() * (6 << 20))
    url = f"s3://bucket/large-{kind}"
    with Fetch(storage_options=s3.storage_options) as good:
        good.run(good.write(url, tmp_path / "a"))
        at = random.Random(f"{kind} {SEED}").randint(1, 4)  # begin, two parts, complete
        proxy.set(at=at, kind=kind)
        error = None
        try:
            shaky.run(shaky.write(url, tmp_path / "b"))
        except PeriplusError as raised:
            error = raised
        assert error is None or isinstance(error, DeniedError if kind == "status-403" else FetchError)
        assert len(proxy.log) >= at
        data, source = good.run(good.read(url, 0, 1 << 30))
        assert data[:1] in ((b"b",) if error is None else (b"a", b"b"))
        assert source.size == 6 << 20
        assert data == data[:1] * (6 << 20)
