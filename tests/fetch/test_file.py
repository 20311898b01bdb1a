import io
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from periplus.errors import FormatError, StaleError
from periplus.fetch import RangeFile

CONTENT = np.random.default_rng(1).integers(0, 256, 50_000, np.uint8).tobytes()


def ranged(content=CONTENT, **options):
    asked = []

    def read_range(offset, length):
        assert offset >= 0
        assert offset + length <= len(content)
        asked.append((offset, length))
        return content[offset : offset + length]

    return RangeFile(read_range, len(content), name="test", **options), asked


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(-1, 9_000)),
        st.tuples(st.just("readinto"), st.integers(0, 9_000)),
        st.tuples(st.just("set"), st.integers(0, 60_000)),
        st.tuples(st.just("end"), st.integers(-50_000, 10)),
        st.tuples(st.just("current"), st.integers(0, 5_000)),
    ),
    max_size=30,
)


@given(STEPS, st.sampled_from([256, 1000, 4096, 65_536]), st.sampled_from([1024, 8192, 10**6]))
@settings(max_examples=80, deadline=None)
def test_it_behaves_like_a_file_in_memory(steps, block, cache):
    file, _ = ranged(block=block, cache_bytes=cache, ahead=4 * block)
    model = io.BytesIO(CONTENT)
    for step, n in steps:
        if step == "read":
            assert file.read(n) == model.read(n)
        elif step == "readinto":
            one, two = bytearray(n), bytearray(n)
            assert file.readinto(one) == model.readinto(two)
            assert one == two
        else:
            whence = {"set": io.SEEK_SET, "end": io.SEEK_END, "current": io.SEEK_CUR}[step]
            assert file.seek(n, whence) == model.seek(n, whence)
        assert file.tell() == model.tell()


def test_neighbouring_blocks_come_in_one_request():
    file, asked = ranged(block=1000, ahead=1000)
    assert file.read_at(500, 5_000) == CONTENT[500:5_500]
    assert asked == [(0, 6_000)]
    assert file.read_at(700, 4_000) == CONTENT[700:4_700]
    assert len(asked) == 1


def test_a_sequential_reader_gets_ever_more_ahead():
    file, asked = ranged(block=1000, ahead=16_000)
    while file.read(1000):
        pass
    assert len(asked) < 10
    assert sum(length for _, length in asked) == len(CONTENT)


def test_the_cache_is_bounded():
    file, _ = ranged(block=1000, cache_bytes=8000, ahead=1000)
    for offset in range(0, 50_000, 1000):
        file.read_at(offset, 10)
    assert len(file._blocks) <= 8


def test_the_usual_file_questions_are_answered():
    file, _ = ranged()
    assert file.readable()
    assert file.seekable()
    assert not file.writable()
    assert not file.closed
    assert file.size() == len(CONTENT)
    assert io.BufferedReader(file).read(5) == CONTENT[:5]
    with pytest.raises(FormatError):
        ranged()[0].seek(-1)
    file.close()
    assert file.closed
    with pytest.raises(ValueError, match="closed"):
        file.read(1)


@pytest.fixture
def parquet(tmp_path):
    table = pa.table({"a": np.arange(200_000), "b": np.random.default_rng(0).random(200_000)})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=20_000, compression="none")
    return table, (tmp_path / "t.parquet").read_bytes()


def test_arrow_reads_a_remote_parquet_file_by_ranges(fetch, server, parquet):
    table, content = parquet
    server.files["t.parquet"] = content
    with fetch.open_file(f"{server.url}/t.parquet") as file, pq.ParquetFile(pa.PythonFile(file, mode="r")) as opened:
        assert len(server.log) == 1  # the tail: size and footer at once
        assert opened.metadata.num_rows == 200_000
        group = opened.read_row_group(4, columns=["b"])
        assert group.equals(table.slice(80_000, 20_000).select(["b"]))
        assert sum(r.sent for r in server.log) < len(content) / 4
        assert opened.read().equals(table)


def test_a_known_file_opens_without_a_request(fetch, server, parquet):
    server.files["t.parquet"] = parquet[1]
    source = fetch.run(fetch.head(f"{server.url}/t.parquet"))
    server.log.clear()
    with fetch.open_file(source.url, expect=source) as file:
        assert server.log == []
        assert file.read(4) == b"PAR1"
        server.files["t.parquet"] = parquet[1][::-1]
        with pytest.raises(StaleError):
            file.read_at(100_000, 10)
    with pytest.raises(StaleError):
        fetch.open_file(source.url, expect=source.__class__(url=source.url, etag='"other"'))


def test_local_and_empty_files_open_too(fetch, tmp_path):
    (tmp_path / "a").write_bytes(b"hello")
    (tmp_path / "empty").write_bytes(b"")
    with fetch.open_file(tmp_path / "a") as file:
        assert file.read() == b"hello"
        assert os.fspath(tmp_path / "a") in repr(file)
    with fetch.open_file(tmp_path / "empty") as file:
        assert file.read() == b""
