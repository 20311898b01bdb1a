import os
import pickle
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from periplus.errors import DeniedError, FormatError, MissingError, StaleError
from periplus.fetch import Fetch
from periplus.fetch.local.files import OpenFiles


@pytest.fixture
def file(tmp_path, payload):
    path = tmp_path / "a.bin"
    path.write_bytes(payload)
    return path


def test_a_range_and_the_files_facts_come_together(fetch, file, payload):
    data, source = fetch.run(fetch.read(file, 100, 50))
    assert data == payload[100:150]
    assert (source.url, source.size, source.etag) == (str(file), len(payload), None)
    assert source.last_modified.timestamp() == pytest.approx(file.stat().st_mtime, abs=1e-5)
    assert source == fetch.run(fetch.head(file))


def test_a_range_is_cut_at_the_end_and_empty_past_it(fetch, file, payload):
    assert fetch.run(fetch.read(file, len(payload) - 5, 100))[0] == payload[-5:]
    assert fetch.run(fetch.read(file, len(payload) + 5, 100))[0] == b""
    assert fetch.run(fetch.read(file, 5, 0))[0] == b""


def test_file_urls_and_relative_paths_name_the_same_file(fetch, file, payload, monkeypatch):
    monkeypatch.chdir(file.parent)
    for name in ("a.bin", "./a.bin", f"file://{file}", f"file://localhost{file}", file):
        assert fetch.run(fetch.read(name, 0, 4))[1].url == str(file)


@pytest.mark.parametrize("change", ["same size", "smaller", "larger", "deleted"])
def test_a_replaced_file_is_stale(fetch, file, payload, change):
    source = fetch.run(fetch.head(file))
    opened = fetch.local(source)
    assert opened.read(0, 10) == payload[:10]
    new = {"same size": payload[::-1], "smaller": payload[:1000], "larger": payload + b"x"}.get(change)
    if new is None:
        file.unlink()
    else:
        fetch.run(fetch.write(file, new))
    for attempt in (lambda: fetch.local(source), lambda: fetch.run(fetch.read(file, 0, 10, expect=source))):
        with pytest.raises(MissingError if new is None else StaleError):
            attempt()


def test_a_file_overwritten_in_place_is_stale_even_while_open(fetch, file, payload):
    source = fetch.run(fetch.head(file))
    opened = fetch.local(source)
    time.sleep(0.02)  # past the grain of file times
    with file.open("r+b") as stream:
        stream.write(b"other")
    with pytest.raises(StaleError):
        opened.read(0, 10)
    with pytest.raises(StaleError):
        opened.fill(0, memoryview(bytearray(10)))


def test_memory_is_filled_with_exactly_the_bytes_of_its_place(fetch, file, payload, monkeypatch):
    opened = fetch.local(fetch.run(fetch.head(file)))
    room = bytearray(70)
    # One call may move less than is asked for.
    whole = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, at: whole(fd, [buffers[0][:16]], at))
    opened.fill(100, memoryview(room)[10:60])
    assert room == bytes(10) + payload[100:150] + bytes(10)
    opened.fill(5, memoryview(b""))
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, at: 0)
    with pytest.raises(StaleError):
        opened.fill(100, memoryview(room))


def test_a_file_that_shrank_is_stale_not_short(fetch, file, payload):
    source = fetch.run(fetch.head(file))
    opened = fetch.local(source)
    with pytest.raises(StaleError):
        opened.read(len(payload) - 5, 10)
    with pytest.raises(StaleError):
        opened.fill(len(payload) - 5, memoryview(bytearray(10)))
    with pytest.raises(StaleError):
        fetch.run(fetch.read(file, len(payload) - 5, 10, expect=source))


def test_what_is_no_regular_file_is_refused_at_once(fetch, tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(tmp_path)  # socket names are short
        listener.bind("sock")
        for name in (tmp_path, tmp_path / "fifo", "/dev/zero", "/dev/null"):
            with pytest.raises(FormatError):
                fetch.run(fetch.read(name, 0, 10))
        with pytest.raises(FormatError):
            fetch.run(fetch.read(tmp_path / "sock", 0, 10))


def test_missing_files_and_impossible_names_are_missing(fetch, tmp_path):
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("nothing", "a/b", "n" * 300, "loop"):
        with pytest.raises(MissingError):
            fetch.run(fetch.read(tmp_path / name, 0, 1))
        with pytest.raises(KeyError):
            fetch.run(fetch.head(tmp_path / name))
    with pytest.raises(DeniedError):
        fetch.run(fetch.read("a\x00b", 0, 1))


def test_a_folder_that_may_not_be_listed_is_one_thing_that_cannot_be_read(fetch, tmp_path, monkeypatch):
    """As `lost+found` at the root of a disk: all else is found."""
    for name in ("a/x.tif", "b/x.tif", "c/x.tif"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"x")
    listed = os.scandir

    def scandir(place):
        if str(place) in denied:
            raise PermissionError(13, "Permission denied", place)
        return listed(place)

    monkeypatch.setattr("periplus.fetch.local.files.os.scandir", scandir)
    denied = {str(tmp_path / "b")}

    async def found():
        return [(source.url, source.size) async for source in fetch.find(f"{tmp_path}/**/*.tif")]

    expected = [("a/x.tif", 1), ("b", None), ("c/x.tif", 1)]
    assert fetch.run(found()) == [(str(tmp_path / name), size) for name, size in expected]
    denied.add(str(tmp_path))
    with pytest.raises(DeniedError):
        fetch.run(found())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_denied(fetch, file):
    file.chmod(0)
    with pytest.raises(DeniedError):
        fetch.run(fetch.read(file, 0, 1))


def test_many_threads_read_one_open_file(fetch, file, payload):
    opened = fetch.local(fetch.run(fetch.head(file)))
    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda i: opened.read(i * 1000, 1000), range(300)))
    assert b"".join(parts) == payload


def test_open_files_are_bounded_and_closed(tmp_path, payload):
    names = [tmp_path / f"{i}.bin" for i in range(300)]
    for name in names:
        name.write_bytes(payload[:10])
    before = len(os.listdir("/proc/self/fd"))
    with Fetch() as fetch:
        for name in names:
            fetch.local(fetch_head(name)).read(0, 5)
        assert len(os.listdir("/proc/self/fd")) - before <= 140
    assert len(os.listdir("/proc/self/fd")) <= before


def fetch_head(path):
    from periplus.fetch.local import files as local

    return local.head(str(path))


def test_readers_never_see_wrong_bytes_while_a_file_is_replaced(fetch, tmp_path):
    path = tmp_path / "a.bin"
    fetch.run(fetch.write(path, b"\x00" * 4096))
    stop = threading.Event()

    def replace():
        with Fetch() as other:
            value = 0
            while not stop.is_set():
                value = (value + 1) % 256
                other.run(other.write(path, bytes([value]) * 4096))

    thread = threading.Thread(target=replace)
    thread.start()
    good = stale = 0
    try:
        while not good or stale < 10:
            first, source = fetch.run(fetch.read(path, 0, 16))
            for _ in range(50):
                try:
                    data = fetch.local(source).read(2048, 1024)
                except StaleError:
                    stale += 1
                    break
                assert data == first[:1] * 1024
                good += 1
    finally:
        stop.set()
        thread.join()


def test_files_used_last_stay_open(tmp_path):
    files = OpenFiles(most=2)
    a, b, c = (str(tmp_path / name) for name in "abc")
    for path in (a, b, c):
        Path(path).write_bytes(b"x")
    first, second = files.get(a), files.get(b)
    assert files.get(a) is first
    files.get(c)
    assert files.get(a) is first
    assert files.get(b) is not second


def test_pickling_drops_what_is_open(fetch, file, payload):
    fetch.local(fetch.run(fetch.head(file)))
    with pickle.loads(pickle.dumps(fetch)) as other:
        assert other.patience == fetch.patience
        assert other.run(other.read(file, 0, 3))[0] == payload[:3]


@pytest.mark.parametrize(("limit", "kept"), [(16, 4), (2, 1), (4096, 6), (-1, 6)])
def test_no_more_files_stay_open_than_the_process_can_spare(limit, kept, tmp_path, monkeypatch):
    monkeypatch.setattr("periplus.fetch.local.files.getrlimit", lambda _: (limit, limit))
    files = OpenFiles()
    for number in range(6):
        (tmp_path / str(number)).write_bytes(b"x")
        files.get(str(tmp_path / str(number)))
    assert len(files._files) == kept


def test_the_collector_forgets_files_without_waiting_for_the_lock(tmp_path):
    """It runs in any thread at any time, also in one that holds the lock."""
    (tmp_path / "a").write_bytes(b"x")
    files, user = OpenFiles(), object()
    files.get(str(tmp_path / "a"), user=user)
    with files._lock:
        files.drop(user)
    assert len(files._files) == 1
    files.drop(object())
    assert not files._files


@pytest.mark.parametrize("shift", [-3600, 3600])
def test_a_changed_time_is_reported_with_the_time_before(fetch, file, shift):
    before = fetch.run(fetch.head(file))
    os.utime(file, (1_600_000_000 + shift, 1_600_000_000 + shift))
    now = fetch.run(fetch.head(file))
    times = f"{before.last_modified.isoformat()} when it was indexed, and at {now.last_modified.isoformat()} now"
    with pytest.raises(StaleError, match=re.escape(f"was last modified at {times}")):
        fetch.run(fetch.read(file, 0, 4, expect=before))
