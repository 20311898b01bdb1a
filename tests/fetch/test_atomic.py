import ast
import fcntl
import os
import resource
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from periplus.errors import ConflictError, FetchError, FormatError, MissingError, PeriplusError
from periplus.fetch import Fetch
from periplus.fetch.local.atomic import replacing, write_file


def test_a_write_makes_folders_and_replaces_at_once(tmp_path, fetch):
    target = tmp_path / "new" / "folder" / "a.bin"
    source = fetch.run(fetch.write(target, b"one"))
    assert (source.url, source.size) == (str(target), 3)
    with target.open("rb") as old:
        fetch.run(fetch.write(target, memoryview(b"-two-")[1:4]))
        assert old.read() == b"one"
    assert target.read_bytes() == b"two"
    assert os.listdir(target.parent) == ["a.bin"]


def test_a_file_is_written_from_a_file(tmp_path, fetch):
    origin = tmp_path / "origin"
    origin.write_bytes(bytes(range(256)) * 10_000)
    fetch.run(fetch.write(tmp_path / "copy", origin))
    assert (tmp_path / "copy").read_bytes() == origin.read_bytes()


def test_new_files_have_the_usual_permissions(tmp_path, fetch):
    before = os.umask(0o027)
    try:
        fetch.run(fetch.write(tmp_path / "a", b""))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_a_link_keeps_pointing_at_the_file_it_names(tmp_path, fetch):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    fetch.run(fetch.write(tmp_path / "link", b"new"))
    assert (tmp_path / "real").read_bytes() == b"new"
    assert (tmp_path / "link").is_symlink()


def test_create_fails_where_a_file_is(tmp_path, fetch):
    fetch.run(fetch.write(tmp_path / "a", b"first", create=True))
    with pytest.raises(ConflictError):
        fetch.run(fetch.write(tmp_path / "a", b"second", create=True))
    assert (tmp_path / "a").read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["a"]


RACERS = """
import os, sys
from periplus.errors import ConflictError
from periplus.fetch.local.atomic import write_file
begin, go = os.pipe()
children = []
for number in range(8):
    child = os.fork()
    if child == 0:
        os.close(go)
        os.read(begin, 1)  # ends when the parent closes the pipe
        try:
            write_file(sys.argv[1], str(number).encode(), create=True)
        except ConflictError:
            os._exit(1)
        os._exit(0)
    children.append(child)
os.close(go)
print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
"""


def test_of_many_creating_processes_one_wins(tmp_path):
    command = [sys.executable, "-c", RACERS, str(tmp_path / "a")]
    codes = ast.literal_eval(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert sorted(codes) == [0] + [1] * 7
    assert (tmp_path / "a").read_bytes() == str(codes.index(0)).encode()
    assert os.listdir(tmp_path) == ["a"]


def test_concurrent_counters_lose_no_step(tmp_path):
    path = tmp_path / "count"
    write_file(str(path), b"000")

    def count():
        with Fetch() as fetch:
            done = 0
            while done < 25:
                data, source = fetch.run(fetch.read(path, 0, 10))
                try:
                    fetch.run(fetch.write(path, b"%03d" % (int(data) + 1), expect=source))
                    done += 1
                except ConflictError:
                    continue

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() == b"100"


def test_every_replacement_has_a_later_time(tmp_path):
    times = [write_file(str(tmp_path / "a"), b"x").last_modified for _ in range(50)]
    assert len(set(times)) == 50
    assert times == sorted(times)


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path):
    target = tmp_path / "a"
    target.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), replacing(str(target)) as file:  # noqa: PT012
        file.write(b"half")
        raise ZeroDivisionError
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_full_disk_is_a_fetch_error_and_leaves_the_old_file(tmp_path):
    target = tmp_path / "a"
    target.write_bytes(b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(FetchError, match="too large"):
            write_file(str(target), bytes(2 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_the_file_and_its_folder_are_synced(tmp_path, monkeypatch):
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")) or fsync(fd))
    write_file(str(tmp_path / "a"), b"x")
    assert synced[0].startswith(f"{tmp_path}/.a.periplus-")
    assert synced[1] == str(tmp_path)


WRITERS = """
import os, signal, sys, time
from pathlib import Path
from periplus.fetch.local.atomic import write_file
target = Path(sys.argv[1])
for round_ in range(6):
    child = os.fork()
    if child == 0:
        number = 0
        while True:
            number += 1
            write_file(str(target), bytes([number % 256]) * 300_000)
    time.sleep(0.01 + 0.006 * round_)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if target.exists():
        data = target.read_bytes()
        assert len(data) == 300_000
        assert len(set(data)) == 1
"""


def test_a_killed_writer_leaves_a_whole_file_and_the_next_one_cleans_up(tmp_path):
    target = tmp_path / "a.bin"
    subprocess.run([sys.executable, "-c", WRITERS, str(target)], check=True)
    (tmp_path / ".a.bin.periplus-0123456789abcdef").write_bytes(b"left by a run that died")
    write_file(str(target), b"done")
    assert os.listdir(tmp_path) == ["a.bin"]


def test_a_living_writers_temporary_file_is_left_alone(tmp_path):
    with replacing(str(tmp_path / "a")) as file:
        file.write(b"slow")
        write_file(str(tmp_path / "a"), b"quick")
        assert len(os.listdir(tmp_path)) == 2
    assert (tmp_path / "a").read_bytes() == b"slow"
    assert os.listdir(tmp_path) == ["a"]


def test_it_works_where_there_are_no_locks_and_no_links(tmp_path, monkeypatch):
    def refused(*_args, **_options):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refused)
    monkeypatch.setattr(os, "link", refused)
    write_file(str(tmp_path / "a"), b"one", create=True)
    write_file(str(tmp_path / "a"), b"two")
    with pytest.raises(ConflictError):
        write_file(str(tmp_path / "a"), b"three", create=True)
    assert (tmp_path / "a").read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["a"]


def test_long_names_are_written(tmp_path):
    for name in ("n" * 255, "é" * 127):
        write_file(str(tmp_path / name), b"x")
    with pytest.raises(PeriplusError):
        write_file(str(tmp_path / ("n" * 256)), b"x")
    assert len(os.listdir(tmp_path)) == 2


def test_where_no_file_can_be_the_error_is_ours(tmp_path, fetch):
    (tmp_path / "file").write_bytes(b"")
    for name in ("file/below", "."):
        with pytest.raises(PeriplusError):
            fetch.run(fetch.write(tmp_path / name, b"x"))
    with pytest.raises(MissingError):
        fetch.run(fetch.delete(tmp_path / "none"))
    fetch.run(fetch.delete(tmp_path / "file"))
    assert list(Path(tmp_path).iterdir()) == []


@pytest.mark.parametrize("below", ["file/a", "file/b/a"])
def test_a_target_below_a_file(tmp_path, fetch, below):
    (tmp_path / "file").touch()
    with pytest.raises(FormatError, match="file is not a folder, so that nothing can be written below it"):
        fetch.run(fetch.write(tmp_path / below, b""))


def test_folders_pipes_and_devices_are_not_replaced(tmp_path, fetch):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/null")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "device", "folder"):
        with pytest.raises(FormatError, match=r"the target is a .* not a file"):
            fetch.run(fetch.write(tmp_path / name, b""))
    assert sorted(os.listdir(tmp_path)) == ["device", "folder", "pipe"]
