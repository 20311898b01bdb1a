"""Errors of the system and a lack of memory become errors of ours at each door, and name what to do."""

import errno
import os

import numpy as np
import pytest

import periplus
from periplus.errors import DeniedError, FetchError, LimitError, PeriplusError
from periplus.fetch import Fetch
from periplus.fetch.errors import mapped, system_error, system_errors, translate
from periplus.table import open_table, write_table
from periplus.testing.failing_disk import ERRORS
from periplus.testing.formats import tiff as tiffs
from periplus.testing.indexes import stacked


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.ENOSPC, FetchError, "the disk is full"),
        (errno.EDQUOT, FetchError, "quota"),
        (errno.EFBIG, FetchError, "too large"),
        (errno.EMFILE, FetchError, "too many open files in this process"),
        (errno.ENFILE, FetchError, "too many open files on this machine"),
        (errno.EIO, FetchError, "input/output error"),
        (errno.EROFS, DeniedError, "read-only"),
        (errno.EACCES, DeniedError, "refuses access"),
        (errno.ENOMEM, LimitError, "not enough memory"),
    ],
)
def test_errors_of_the_system_say_what_to_do_and_keep_their_cause(number, kind, words):
    for door in (mapped, system_errors):
        with pytest.raises(kind, match=words) as caught, door("/data/index.parquet"):
            raise OSError(number, os.strerror(number))
        assert caught.value.url == "/data/index.parquet"
        assert caught.value.__cause__.errno == number


def test_a_lack_of_memory_is_a_limit_error_with_its_cause():
    for door in (mapped, system_errors):
        with pytest.raises(LimitError, match="memory_bytes") as caught, door("x"):
            raise MemoryError
        assert isinstance(caught.value.__cause__, MemoryError)


def test_errors_of_our_own_code_are_not_hidden_as_those_of_the_system():
    with pytest.raises(ZeroDivisionError), system_errors("x"):
        raise ZeroDivisionError


def test_libraries_that_report_the_system_by_text_are_understood():
    for text in ('IO Error: Could not write file "x": No space left on device', "storage error (os error 28)"):
        assert isinstance(translate(RuntimeError(text), "x"), FetchError)
        assert "the disk is full" in str(translate(RuntimeError(text), "x"))
    assert system_error("the magic bytes are wrong (os error 99999)") is None
    assert system_error("a corrupt file") is None


def test_the_cause_of_an_error_with_secrets_is_not_kept():
    class ClientError(OSError):
        pass

    with pytest.raises(FetchError) as caught, mapped("https://host/x"):
        raise ClientError("GET https://host/x?X-Amz-Signature=SECRET failed")
    assert caught.value.__cause__ is None
    assert "SECRET" not in str(caught.value)


@pytest.fixture
def index(tmp_path):
    catalog, refs, files = stacked(steps=2)
    with Fetch() as fetch:
        for name in ("index.parquet", "index.duckdb"):
            write_table(str(tmp_path / name), catalog, refs.items(), files, fetch=fetch)
    return tmp_path


@pytest.mark.parametrize(
    ("number", "step"),
    list(zip(ERRORS.values(), 2 * ("create table", "insert into", "checkpoint"), strict=True)),
    ids=list(ERRORS),
)
def test_a_full_disk_under_duckdb_is_no_format_error(number, step, index, monkeypatch):
    from periplus.table.duckdb import database as module

    real = module.duckdb.connect
    text = f'IO Error: Could not write file "{index}/x": {os.strerror(number)}'

    class Connection:
        def __init__(self, *args, **options):
            self._real = real(*args, **options)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self._real.close()

        def __getattr__(self, name):
            return getattr(self._real, name)

        def execute(self, query, *args):
            if query.startswith(step):
                raise module.duckdb.IOException(text)
            return self._real.execute(query, *args)

    before = sorted(index.iterdir())
    catalog, refs, files = stacked(steps=3)
    with Fetch() as fetch, monkeypatch.context() as patch:
        patch.setattr(module.duckdb, "connect", Connection)
        with pytest.raises(FetchError if number != errno.EACCES else DeniedError) as caught:
            write_table(str(index / "index.duckdb"), catalog, refs.items(), files, fetch=fetch)
    assert isinstance(caught.value.__cause__, module.duckdb.IOException)
    assert str(index / "index.duckdb") in str(caught.value)
    assert sorted(index.iterdir()) == before


def test_a_query_without_enough_memory_is_a_limit_error(index, monkeypatch):
    from periplus.table.duckdb import sql as module

    with Fetch() as fetch:
        table = open_table(str(index / "index.parquet"), fetch=fetch, allow=["s3://"])
        for error in (module.duckdb.OutOfMemoryException("could not allocate block"), MemoryError()):
            with pytest.raises(LimitError, match="select fewer") as caught, module.sql_errors(table.url):
                raise error
            assert caught.value.__cause__ is error


def test_a_failing_disk_or_memory_under_arrow_is_no_format_error():
    import pyarrow as pa

    from periplus.table.parquet.ranges import arrow_errors

    with pytest.raises(FetchError, match="input/output"), arrow_errors("a row group", "x"):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    with pytest.raises(LimitError, match="not enough memory"), arrow_errors("a row group", "x"):
        raise pa.ArrowMemoryError("malloc of size 1099511627776 failed")
    with pytest.raises(periplus.FormatError), arrow_errors("a row group", "x"):
        raise OSError("Couldn't deserialize thrift")


def test_a_lack_of_memory_while_decoding_names_the_chunk(tmp_path, monkeypatch):
    from periplus.decode.pipeline import Decoder

    (tmp_path / "a.tif").write_bytes(tiffs.written(np.ones((1, 40, 50), "u2"), compression="zstd"))
    with periplus.index(tmp_path / "a.tif") as index:

        def starved(*_args):
            raise MemoryError

        real = Decoder.__call__

        def called(self, *args, **options):
            object.__setattr__(self, "_run", starved)
            return real(self, *args, **options)

        from periplus.decode import pipeline

        pipeline._prepared.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(Decoder, "__call__", called)
            with pytest.raises(LimitError, match=r"decoding a chunk of \d+ bytes.*memory_bytes"):
                index["0/data"][...]
        pipeline._prepared.cache_clear()
        assert index["0/data"][...].all()


def test_a_lack_of_memory_while_reading_names_the_selection(tmp_path, monkeypatch):
    from periplus.read import reader

    (tmp_path / "a.tif").write_bytes(tiffs.written(np.ones((1, 40, 50), "u2"), compression="zstd"))

    def starved(*_args, **_options):
        raise MemoryError

    with periplus.index(tmp_path / "a.tif") as index:
        monkeypatch.setattr(reader, "split_axes", starved)
        with pytest.raises(LimitError, match=r"0/data in a selection of shape \(1, 40, 50\)"):
            index["0/data"][...]


def test_a_file_whose_scan_lacks_memory_is_one_failed_file(tmp_path, monkeypatch):
    from periplus.harvest.scanning import drive

    for name in "ab":
        (tmp_path / f"{name}.tif").write_bytes(tiffs.written(np.ones((1, 40, 50), "u2"), compression="zstd"))
    real = drive.scanned

    def starved(item, *args, **options):
        if item.url.endswith("a.tif"):
            raise MemoryError
        return real(item, *args, **options)

    monkeypatch.setattr(drive, "scanned", starved)
    with periplus.index(f"{tmp_path}/*.tif", arrange="collect") as index:
        assert index.summary.failed == 1
        assert index.files.error[0].startswith("limit: not enough memory for the headers")


def test_too_many_open_files_while_reading_is_said(tmp_path):
    import resource

    (tmp_path / "a.tif").write_bytes(tiffs.written(np.ones((1, 40, 50), "u2"), compression="zstd"))
    with periplus.index(tmp_path / "a.tif") as index:
        index["0/data"][...]
        index.close()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        held = []
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 8, hard))
            with pytest.raises(OSError, match="Too many"):  # noqa: PT012
                while True:
                    held.append(os.open(os.devnull, os.O_RDONLY))
            with pytest.raises(PeriplusError, match="too many open files"):
                index["0/data"][...]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for fd in held:
                os.close(fd)
