"""Object stores under faults: a range server plays an S3 endpoint, a proxy loses answers of a real one."""

import asyncio
import contextlib
import secrets
import threading

import pytest

from periplus.errors import ConflictError, DeniedError, FetchError, FormatError, MissingError, StaleError
from periplus.fetch import Fetch
from periplus.testing.servers.http import Fault


@pytest.fixture
def fake(server, payload):
    """(Fetch, URL) of an object in a bucket that the range server plays."""
    server.files["bucket/a.bin"] = payload
    options = {"endpoint": server.url, "anon": True, "region": "us-east-1", "virtual_hosted_style_request": False}
    with Fetch(storage_options=options, retries=4, stall=5.0, deadline=15.0) as fetch:
        yield fetch, "s3://bucket/a.bin"


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        ("status-503", None),
        ("status-429", None),
        ("status-500", None),
        ("reset", None),
        ("reset-body", None),
        ("truncate", None),
        ("short-range", FetchError),
        ("lie-start", FetchError),
        ("lie-length", FetchError),
        ("lie-total", StaleError),
        ("no-total", FetchError),
        ("ignore-range", FetchError),
        ("no-etag", None),
        ("garbage", FetchError),
        ("stall", None),
        ("trickle", None),
        ("status-403", DeniedError),
    ],
)
def test_a_fault_gives_right_bytes_or_an_error(fake, server, payload, kind, outcome):
    fetch, url = fake
    source = fetch.run(fetch.head(url))
    start = len(payload) - 20_000
    server.faults["/bucket/a.bin"] = [Fault(kind=kind, seconds=0.05, times=1 if outcome is None else -1)]
    if outcome is None:
        assert fetch.run(fetch.read(url, start, 20_000, expect=source))[0] == payload[start:]
    else:
        with pytest.raises(outcome) as caught:
            fetch.run(fetch.read(url, start, 20_000, expect=source))
        assert caught.value.url == url


def test_the_deadline_is_kept(server, payload):
    server.files["bucket/a.bin"] = payload
    server.faults["/bucket/a.bin"] = [Fault(kind="stall", seconds=30.0, times=-1)]
    options = {"endpoint": server.url, "anon": True, "region": "us-east-1"}
    with Fetch(storage_options=options, deadline=0.5) as fetch, pytest.raises(FetchError):
        fetch.run(fetch.read("s3://bucket/a.bin", 0, 10))


def test_cancelling_leaves_no_task(fake, server):
    fetch, url = fake
    server.latency = 3.0

    async def cancelled():
        tasks = [asyncio.create_task(fetch.read(url, i, 10)) for i in range(10)]
        await asyncio.sleep(0.2)
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        return results, len(asyncio.all_tasks())

    results, tasks = fetch.run(cancelled())
    assert all(isinstance(result, asyncio.CancelledError) for result in results)
    assert tasks == 1


@contextlib.contextmanager
def losing_answers(target: str):
    """A TCP proxy before `target` that carries requests there and, while `lose` is set, loses the answers."""
    host, _, port = target.removeprefix("http://").partition(":")
    loop = asyncio.new_event_loop()
    lose = threading.Event()
    ready = threading.Event()
    state = {}

    async def serve(reader, writer):
        there, back = await asyncio.open_connection(host, int(port))

        async def forward():
            while data := await reader.read(65536):
                back.write(data)
            back.close()

        task = loop.create_task(forward())
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            while data := await there.read(65536):
                if lose.is_set():
                    break
                writer.write(data)
        task.cancel()
        writer.close()
        back.close()

    async def main():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        state["url"] = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        state["stop"] = asyncio.Event()
        ready.set()
        await state["stop"].wait()
        server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def run():
        loop.run_until_complete(main())
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait()
    try:
        yield state["url"], lose
    finally:
        loop.call_soon_threadsafe(state["stop"].set)
        thread.join()


@pytest.mark.s3
def test_our_own_creation_is_known_again_when_its_answer_was_lost(s3):
    with losing_answers(s3.endpoint) as (endpoint, lose):
        options = {**s3.storage_options, "endpoint": endpoint}
        url = f"{s3.url}/{secrets.token_hex(6)}"
        with Fetch(storage_options=options, retries=8, deadline=30.0) as fetch:

            async def create():
                lose.set()
                asyncio.get_running_loop().call_later(0.4, lose.clear)
                return await fetch.write(url, b"ours", create=True)

            source = fetch.run(create())
            assert source.size == 4
            assert fetch.run(fetch.read(url, 0, 4, expect=source))[0] == b"ours"
            with pytest.raises(ConflictError):
                fetch.run(fetch.write(url, b"ours", create=True))


def test_an_object_that_is_not_there_is_missing(fake):
    fetch, _ = fake
    with pytest.raises(MissingError):
        fetch.run(fetch.read("s3://bucket/none", 0, 1))


# --- what nobody configured ----------------------------------------------------------------------------------------


@pytest.fixture
def bare(monkeypatch):
    """A machine without cloud variables."""
    import os

    for name in list(os.environ):
        if name.startswith(("AWS_", "GOOGLE_")):
            monkeypatch.delenv(name)
    return monkeypatch


def test_without_credentials_objects_are_asked_for_as_by_the_public(bare, fake, server, payload, tmp_path):
    from periplus.fetch.objects import options as room
    from periplus.fetch.objects.options import nobody

    bare.setattr(room, "VENDOR", tmp_path / "vendor")
    assert not nobody("s3", {})  # an unknown machine: the library looks for itself
    (tmp_path / "vendor").write_text("Amazon EC2\n")
    assert not nobody("s3", {})
    (tmp_path / "vendor").write_text("A desk\n")
    assert not nobody("s3", {"access_key_id": "a"})
    assert not nobody("s3", {"skip_signature": False})
    bare.setenv("AWS_ACCESS_KEY_ID", "a")
    assert not nobody("s3", {})
    bare.delenv("AWS_ACCESS_KEY_ID")
    options = {"endpoint": server.url, "region": "us-east-1"}
    assert nobody("s3", options)
    with Fetch(storage_options=options) as fetch:
        assert fetch.run(fetch.read("s3://bucket/a.bin", 0, 9))[0] == payload[:9]
    assert "authorization" not in server.log[-1].headers


def test_a_buckets_region_is_asked_for_only_where_nothing_says_it(bare, server, monkeypatch):
    from periplus.fetch.http import client as http
    from periplus.fetch.objects.options import wants_region

    assert wants_region({})
    assert not wants_region({"region": "x"})
    assert not wants_region({"endpoint": "x"})
    monkeypatch.setattr(http, "S3_ADDRESS", server.url + "/{bucket}")
    server.headers = ["x-amz-bucket-region: eu-central-1"]
    with Fetch() as fetch:
        remote = fetch._connected()
        assert fetch.run(remote.web.bucket_region("some-bucket")) == "eu-central-1"
        server.headers = []
        assert fetch.run(remote.web.bucket_region("some-bucket")) is None
    assert [(r.method, r.path) for r in server.log] == [("HEAD", "/some-bucket")] * 2


def test_a_metadata_service_that_fails_is_explained():
    from periplus.fetch.errors import translate

    text = "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 2s - timed out"
    error = translate(RuntimeError(text), "s3://bucket/a")
    assert isinstance(error, DeniedError)
    assert "anon" in str(error)


def test_a_bucket_that_is_not_there_and_an_option_that_nobody_knows_are_named():
    from periplus.fetch.errors import translate

    text = "Generic S3 error: 404 Not Found: <Error><Code>NoSuchBucket</Code><Message>no</Message></Error>"
    error = translate(RuntimeError(text), "s3://bucket/")
    assert isinstance(error, MissingError)
    assert str(error) == "there is no such bucket (s3://bucket/)"
    with Fetch(storage_options={"regoin": "a-secret"}) as fetch, pytest.raises(FormatError) as raised:
        fetch.run(fetch.read("s3://bucket/a", 0, 1))
    assert "it has no 'regoin'" in str(raised.value)
    assert "a-secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "name", "options"),
    [
        ("gs://bucket/a/b.bin", "bucket/a/b.bin", {"token": "anon"}),
        ("az://box/a/b.bin", "box/a/b.bin", {"account_name": "account", "anon": True}),
        ("abfs://box@account.dfs.core.windows.net/a/b.bin", "box/a/b.bin", {"sas_token": "sv=1&sig=SECRET"}),
    ],
)
def test_google_and_azure_are_read_by_ranges_too(server, payload, url, name, options):
    server.files[name] = payload
    with Fetch(storage_options={"endpoint": server.url, **options}, retries=1) as fetch:
        data, source = fetch.run(fetch.read(url, 100, 50))
        assert data == payload[100:150]
        assert fetch.run(fetch.tail(url, 10, expect=source))[0] == payload[-10:]
        server.files[name] = payload[::-1]
        with pytest.raises(StaleError) as caught:
            fetch.run(fetch.read(url, 100, 50, expect=source))
        with pytest.raises(MissingError):
            fetch.run(fetch.head(url + "x"))
    assert "SECRET" not in f"{source} {caught.value}"


def test_google_replaces_an_object_on_condition_of_its_number(server, monkeypatch):
    server.files["bucket/a.bin"] = b"old"
    server.headers.append("x-goog-generation: 17")
    put = []

    async def watched(*args, mode, **more):
        put.append(mode)
        return {"e_tag": "new", "version": "18"}

    monkeypatch.setattr("obstore.put_async", watched)
    with Fetch(storage_options={"endpoint": server.url, "token": "anon"}, retries=1) as fetch:
        source = fetch.run(fetch.head("gs://bucket/a.bin"))
        fetch.run(fetch.write("gs://bucket/a.bin", b"new", expect=source))
        assert put == [{"e_tag": source.etag, "version": "17"}]
        server.files["bucket/a.bin"] = b"another's"
        with pytest.raises(ConflictError, match="another writer"):
            fetch.run(fetch.write("gs://bucket/a.bin", b"new", expect=source))
    assert len(put) == 1
