"""An output file appears whole or not at all."""

import os
import shutil
import socket
import stat

import pytest

from periplus.cli.output.target import opened


def test_a_file_takes_its_name_only_when_complete(tmp_path):
    target = tmp_path / "out.npy"
    with opened(str(target)) as file:
        file.write(b"abc")
        assert not target.exists()
    assert target.read_bytes() == b"abc"
    assert os.listdir(tmp_path) == ["out.npy"]


def test_a_failure_leaves_the_previous_file_and_nothing_else(tmp_path):
    target = tmp_path / "out.npy"
    target.write_bytes(b"before")

    def interrupted():
        with opened(str(target)) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert target.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["out.npy"]


def test_permissions_are_those_of_any_new_file(tmp_path):
    with opened(str(tmp_path / "out")) as file:
        file.write(b"x")
    (tmp_path / "plain").write_bytes(b"x")
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_dash_is_standard_output(capfdbinary):
    with opened("-") as file:
        file.write(b"1234")
        file.seek(0)
        file.write(b"0")
    assert capfdbinary.readouterr().out == b"0234"


SPELLINGS = {
    "itself": lambda folder, name: folder / name,
    "dots": lambda folder, name: folder / ".." / folder.name / name,
    "link": lambda folder, name: linked(folder / f"link-{name}", folder / name),
    "link of a folder": lambda folder, name: linked(folder.parent / f"to-{name}", folder) / name,
    "hard link": lambda folder, name: linked(folder / f"hard-{name}", folder / name, hard=True),
}


def linked(link, to, *, hard=False):
    os.link(to, link) if hard else link.symlink_to(to)
    return link


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_what_is_read_is_not_replaced(made, tmp_path, periplus, spelling):
    folder = tmp_path / "here"
    folder.mkdir()
    name = next(iter(sorted(made.glob("*.tif")))).name
    shutil.copy(made / name, folder / name)
    (folder / "scene.tif").symlink_to(folder / name)  # a source whose own name is a link
    index = folder / "i.parquet"
    assert periplus("index", folder / "scene.tif", "-o", index).code == 0
    before = contents(folder)
    image, itself = (SPELLINGS[spelling](tmp_path / "here", each) for each in (name, "i.parquet"))
    for target, said, command in (
        (image, "is a source", ("read", index, "--max-size", 50)),
        (image, "that is read", ("read", folder / name, "--bands", 1)),
        (image, "is a source", ("query", index, "--format", "csv")),
        (image, "that is read", ("query", folder / name, "--format", "csv")),
        (itself, "that is read", ("query", index, "--format", "parquet")),
        (itself, "that is read", ("query", index, "--sql", "select 1", "--format", "csv")),
    ):
        done = periplus(*command, "-o", target)
        assert done.code == 2, command
        assert said in done.err
        assert "nothing was written: choose another name" in done.err
    after = contents(folder)
    assert {path: after[path] for path in before} == before


@pytest.mark.parametrize("target", ["index", "link-index"])
@pytest.mark.parametrize("form", ["dataset", "kerchunk", "icechunk"])
def test_files_of_an_index_in_a_folder_are_not_replaced(archive, index, tmp_path, periplus, form, target):
    assert periplus("convert", index, tmp_path / "index", "--form", form).code == 0
    (tmp_path / "link-index").symlink_to(tmp_path / "index")
    before = contents(tmp_path)
    url = tmp_path / "index"
    parts = [path for path in before if url in path.parents]
    for path in (parts[0], parts[-1], url / "new.csv"):
        output = tmp_path / target / path.relative_to(url)
        done = periplus("query", url, "--allow", archive, "--format", "csv", "-o", output)
        assert (done.code, "the target is inside the index" in done.err) == (2, True), done.err
    if form == "dataset":
        done = periplus("query", url / "files.parquet", "--allow", archive, "-o", next((url / "chunks").iterdir()))
        assert (done.code, "the target is inside the index" in done.err) == (2, True)
    assert contents(tmp_path) == before


def test_pipes_and_devices_are_written_to_and_kept(index, tmp_path, periplus):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    ends = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)  # so that neither end waits
    done = periplus("query", index, "--sql", "select 42 as a", "--format", "csv", "-o", pipe)
    assert (done.code, os.read(ends, 100)) == (0, b'"a"\n42\n')
    done = periplus("read", index, "--window", "0:1,0:4", "--array", "0/data", "--quiet", "-o", pipe)
    assert done.code == 0
    assert os.read(ends, 6) == b"\x93NUMPY"
    os.close(ends)
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    for command in (("query", index), ("read", index, "--max-size", 10)):
        assert periplus(*command, "-o", "/dev/null").code == 0
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert (
        periplus("query", index, "--sql", "select 42 as a", "--format", "csv", "-o", "/dev/stdout").out == '"a"\n42\n'
    )


def test_sockets_and_folders_are_no_outputs(index, tmp_path, periplus):
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "s"))
        (tmp_path / "folder").mkdir()
        for name, kind in (("s", "a socket"), ("folder", "a folder")):
            done = periplus("query", index, "-o", tmp_path / name)
            assert (done.code, kind in done.err) == (2, True)
        assert stat.S_ISSOCK((tmp_path / "s").lstat().st_mode)
