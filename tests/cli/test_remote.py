"""The verbs over HTTP: what was indexed is read and checked there, and secrets stay where they were."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import rasterio

from periplus.testing.servers.archives import SignedArchive
from periplus.testing.servers.http import Fault, RangeServer

COMMAND = [sys.executable, "-m", "periplus.cli"]


@pytest.fixture
def server(made):
    with RangeServer(made) as running:
        yield running


@pytest.fixture
def listed(server, made, tmp_path):
    """A text file of the URLs of all scenes."""
    path = tmp_path / "scenes.txt"
    path.write_text("".join(f"{server.url}/{scene.name}\n" for scene in sorted(made.iterdir())))
    return path


def test_a_list_of_urls_is_indexed_read_and_checked(listed, server, made, periplus, tmp_path):
    index = tmp_path / "index.parquet"
    stack = ("--arrange", "stack", "--pattern", "scene_{time:%Y%m%d}")
    assert periplus("index", listed, "-o", index, *stack).code == 0
    reach = ("--allow", f"{server.url}/")
    done = periplus("read", index, *reach, "--time", "2023-02", "-o", tmp_path / "out.npy")
    assert done.code == 0
    with rasterio.open(made / "scene_20230210.tif") as truth:
        np.testing.assert_array_equal(np.load(tmp_path / "out.npy")[0], truth.read())
    assert periplus("check", index, *reach).out == "4 sources: 4 ok\n"


def test_a_read_outside_the_folder_is_denied_and_says_what_to_do(listed, server, periplus, tmp_path):
    index = tmp_path / "index.parquet"
    periplus("index", listed, "-o", index, "--arrange", "stack")
    before = len(server.log)
    done = periplus("read", index, "-o", tmp_path / "out.npy")
    assert done.code == 2
    assert done.err.startswith("periplus: denied: ")
    assert "--allow" in done.err
    assert len(done.err.splitlines()) == 1
    assert len(server.log) == before


def test_check_tells_changed_from_unreachable(listed, server, made, periplus, tmp_path):
    index = tmp_path / "index.parquet"
    periplus("index", listed, "-o", index)
    names = sorted(scene.name for scene in made.iterdir())
    server.folder = None
    server.files = {name: (made / name).read_bytes() for name in names[1:]}
    server.files[names[1]] = b"x" + server.files[names[1]][1:]
    server.faults = {f"/{names[2]}": [Fault(kind="status-403", times=-1)]}
    done = periplus("check", index, "--allow", f"{server.url}/", "--json")
    kinds = [finding["kind"] for finding in json.loads(done.out)["findings"]]
    assert done.code == 1
    assert kinds[:2] == ["missing", "stale"]
    assert kinds[2] in ("unreachable", "denied")


@pytest.mark.parametrize("verb", ["index", "info", "check"])
@pytest.mark.parametrize(
    "form",
    ["http://user:hunter2@{}/absent.tif", "http://{}/scene_20230101.tif?sig=hunter2", "s3://key:hunter2@bucket/a"],
)
def test_a_secret_in_a_url_is_neither_shown_nor_kept(server, periplus, tmp_path, verb, form):
    url = form.format(server.url.removeprefix("http://"))
    done = periplus(verb, url, *(("-o", tmp_path / "index.parquet") if verb == "index" else ()))
    assert done.code in (1, 2)
    assert "hunter2" not in done.out + done.err
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or b"hunter2" not in path.read_bytes()


def test_headers_and_queries_come_by_storage_options(server, periplus, tmp_path):
    url = f"{server.url}/scene_20230101.tif"
    options = ("--storage-option", "headers.X-Key=hunter2", "--storage-option", "query=sig=hunter3")
    done = periplus("index", url, "-o", tmp_path / "index.parquet", *options)
    assert done.code == 0
    assert server.log[-1].headers["x-key"] == "hunter2"
    assert b"hunter" not in (tmp_path / "index.parquet").read_bytes()


def test_a_signer_comes_by_its_name(periplus, made, tmp_path, monkeypatch):
    with RangeServer({"data/a.tif": (made / "scene_20230101.tif").read_bytes()}) as archive:
        SignedArchive(archive, uses=1)
        monkeypatch.setenv("http_proxy", archive.url)  # it plays the hosts of the web
        monkeypatch.setenv("no_proxy", "")
        monkeypatch.setenv("PC_SDK_SAS_URL", f"{archive.url}/token")
        url, index = "http://account.blob.core.windows.net/data/a.tif", tmp_path / "index.parquet"
        signer = ("--storage-option", "signer=planetary-computer")
        assert periplus("index", url, "-o", index, *signer).code == 0
        assert periplus("check", index, "--allow", "http://account.blob.core.windows.net/", *signer).code == 0
        wrong = periplus("index", url, "-o", index, "--storage-option", "signer=nobody")
    assert (wrong.code, "one of these names: planetary-computer" in wrong.err) == (2, True)
    assert b"s3cret" not in index.read_bytes()


def test_an_interrupt_leaves_no_index_and_the_next_run_completes_it(listed, server, periplus, tmp_path):
    server.latency = 3
    index = tmp_path / "index.parquet"
    process = subprocess.Popen([*COMMAND, "index", str(listed), "-o", str(index)], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while server.open_connections == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err.strip()) == (130, "periplus: interrupted")
    assert not index.exists()
    server.latency = 0
    assert periplus("index", listed, "-o", index).code == 0
    assert index.exists()


def test_a_person_sees_a_bar_and_a_pipe_does_not(archive, tmp_path):
    command = [*COMMAND, "index", f"{archive}/*.tif", "-o", str(tmp_path / "out.parquet")]
    plain = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "\x1b" not in plain.stderr
    assert plain.stdout == ""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stderr=theirs, stdout=subprocess.DEVNULL, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    shown = b""
    try:
        while block := os.read(ours, 65536):
            shown += block
    except OSError:  # the other side is closed
        pass
    assert process.wait() == 0
    assert re.search(rb"indexing.*4/4", shown)
