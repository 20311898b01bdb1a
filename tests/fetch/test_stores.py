"""Object stores: one battery for the memory store and a real S3-compatible server."""

import asyncio
import hashlib
import secrets
from pathlib import Path

import pytest

from periplus.errors import ConflictError, DeniedError, FetchError, FormatError, MissingError, PeriplusError, StaleError
from periplus.fetch import Fetch, client, merge
from periplus.fetch.errors import mapped, translate
from periplus.fetch.objects import stores
from periplus.policy import Policy


@pytest.fixture(params=["memory", pytest.param("s3", marks=pytest.mark.s3)])
def store(request):
    """(Fetch, a fresh prefix) in a store."""
    room = secrets.token_hex(6)
    if request.param == "memory":
        with Fetch() as fetch:
            yield fetch, f"memory://{room}"
        return
    s3 = request.getfixturevalue("s3")
    with Fetch(storage_options=s3.storage_options) as fetch:
        yield fetch, f"{s3.url}/{room}"


def test_what_is_written_is_read(store, payload):
    fetch, root = store
    written = fetch.run(fetch.write(f"{root}/a b/é.bin", payload))
    data, source = fetch.run(fetch.read(f"{root}/a b/é.bin", 1000, 500))
    assert data == payload[1000:1500]
    assert isinstance(data, bytes)
    assert (source.url, source.size, source.etag) == (f"{root}/a b/é.bin", len(payload), written.etag)
    assert written.size == len(payload)
    assert source == fetch.run(fetch.head(source.url))


def test_a_range_is_cut_at_the_end_and_empty_past_it(store, payload):
    fetch, root = store
    fetch.run(fetch.write(f"{root}/a", payload))
    assert fetch.run(fetch.read(f"{root}/a", len(payload) - 5, 100))[0] == payload[-5:]
    for offset in (len(payload), len(payload) + 5, 2**40, 2**62):
        data, source = fetch.run(fetch.read(f"{root}/a", offset, 100))
        assert (data, source.size) == (b"", len(payload))
    assert fetch.run(fetch.read(f"{root}/a", 3, 0))[0] == b""
    for offset, length in ((-1, 5), (5, -1), (2**63, 1), (2**63 - 1, 1)):
        with pytest.raises(FormatError):
            fetch.run(fetch.read(f"{root}/a", offset, length))


def test_tails(store, payload):
    fetch, root = store
    fetch.run(fetch.write(f"{root}/a", payload))
    data, source = fetch.run(fetch.tail(f"{root}/a", 100))
    assert (data, source.size) == (payload[-100:], len(payload))
    assert fetch.run(fetch.tail(f"{root}/a", 10**7))[0] == payload
    fetch.run(fetch.write(f"{root}/empty", b""))
    assert fetch.run(fetch.tail(f"{root}/empty", 10))[0] == b""


@pytest.mark.parametrize("change", ["same size", "smaller", "larger", "deleted"])
def test_a_replaced_object_is_stale(store, payload, change):
    fetch, root = store
    url = f"{root}/a"
    fetch.run(fetch.write(url, payload))
    source = fetch.run(fetch.head(url))
    spans = merge([0], [len(payload) - 10], [10], gap=0, largest=100, sources=[source])
    assert [bytes(view) for _, view in fetch.stream(spans, in_flight_bytes=100)] == [payload[-10:]]
    new = {"same size": payload[::-1], "smaller": payload[:1000], "larger": payload + b"x"}.get(change)
    fetch.run(fetch.delete(url) if new is None else fetch.write(url, new))
    error = MissingError if new is None else StaleError
    with pytest.raises(error):
        fetch.run(fetch.read(url, 0, 10, expect=source))
    with pytest.raises(error):
        list(fetch.stream(spans, in_flight_bytes=100))
    without_tag = source.__class__(url=url, size=source.size)
    if change != "same size":
        with pytest.raises(error):
            fetch.run(fetch.read(url, 0, 10, expect=without_tag))


def test_a_range_past_the_end_of_what_was_indexed_is_stale_not_short(store, payload):
    fetch, root = store
    source = fetch.run(fetch.write(f"{root}/a", payload))
    for offset in (len(payload) - 5, len(payload) + 5):
        with pytest.raises(StaleError):
            fetch.run(fetch.read(f"{root}/a", offset, 10, expect=source))


def test_a_missing_object_is_missing(store):
    fetch, root = store
    for attempt in (fetch.head(f"{root}/none"), fetch.read(f"{root}/none", 0, 5), fetch.tail(f"{root}/none", 5)):
        with pytest.raises(MissingError):
            fetch.run(attempt)


def test_create_fails_where_an_object_is(store, payload):
    fetch, root = store
    fetch.run(fetch.write(f"{root}/a", b"first", create=True))
    for again in (b"second", b"first"):
        with pytest.raises(ConflictError):
            fetch.run(fetch.write(f"{root}/a", again, create=True))
    assert fetch.run(fetch.read(f"{root}/a", 0, 10))[0] == b"first"


def test_of_many_creators_one_wins(store):
    fetch, root = store

    async def race():
        tries = (fetch.write(f"{root}/a", str(i).encode(), create=True) for i in range(8))
        return await asyncio.gather(*tries, return_exceptions=True)

    results = fetch.run(race())
    assert sum(not isinstance(result, Exception) for result in results) == 1
    assert sum(isinstance(result, ConflictError) for result in results) == 7


def test_a_replacement_is_conditional_on_what_is_replaced(store):
    fetch, root = store
    first = fetch.run(fetch.write(f"{root}/a", b"first"))
    second = fetch.run(fetch.write(f"{root}/a", b"second", expect=first))
    with pytest.raises(ConflictError):
        fetch.run(fetch.write(f"{root}/a", b"third", expect=first))
    assert fetch.run(fetch.read(f"{root}/a", 0, 6, expect=second))[0] == b"second"
    fetch.run(fetch.delete(f"{root}/a"))
    with pytest.raises((ConflictError, MissingError)):
        fetch.run(fetch.write(f"{root}/a", b"third", expect=second))


def test_a_large_file_goes_up_in_parts_and_comes_down_whole(store, tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "PART", 5 << 20)  # the least of S3
    monkeypatch.setattr(client, "DOWNLOAD_PART", 1 << 20)
    fetch, root = store
    big = tmp_path / "big"
    big.write_bytes(secrets.token_bytes(1 << 20) * 6 + b"end")
    fetch.run(fetch.write(f"{root}/big", big))
    source = fetch.run(fetch.copy_out(f"{root}/big", tmp_path / "down"))
    assert source.size == big.stat().st_size
    assert hashlib.sha256((tmp_path / "down").read_bytes()).digest() == hashlib.sha256(big.read_bytes()).digest()
    with pytest.raises(MissingError):
        fetch.run(fetch.copy_out(f"{root}/none", tmp_path / "none"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["big", "down"]


def test_many_reads_at_once_are_right(store, payload):
    fetch, root = store
    source = fetch.run(fetch.write(f"{root}/a", payload))

    async def many():
        return await asyncio.gather(*(fetch.read(f"{root}/a", 1000 * i, 900, expect=source) for i in range(300)))

    for i, (data, _) in enumerate(fetch.run(many())):
        assert data == payload[1000 * i : 1000 * i + 900]


def test_the_memory_store_is_shared_by_the_process():
    name = f"memory://shared/{secrets.token_hex(4)}"
    with Fetch() as one, Fetch() as two:
        one.run(one.write(name, b"x"))
        assert two.run(two.read(name, 0, 1))[0] == b"x"


# --- the door ------------------------------------------------------------------------------------------------------


def test_a_panic_of_the_library_is_a_fetch_error(payload):
    import obstore
    from obstore.store import MemoryStore

    memory = MemoryStore()
    obstore.put(memory, "a", b"0123456789")
    with pytest.raises(FetchError, match="panic"), mapped("memory://a", 5):
        obstore.get_ranges(memory, "a", starts=[0, 100], ends=[5, 110], coalesce=1 << 20)


def test_interrupts_and_cancellation_pass_the_door():
    for error in (KeyboardInterrupt, SystemExit, asyncio.CancelledError, GeneratorExit):
        with pytest.raises(error), mapped("x"):
            raise error


def test_foreign_messages_lose_their_secrets():
    text = (
        "Generic S3 error: GET https://user:SECRET@h/k?X-Amz-Signature=SECRET failed: <?xml version='1'?>"
        "<Error><Code>SlowDown</Code><AWSAccessKeyId>SECRET</AWSAccessKeyId></Error>\nsource: SECRET"
    )
    error = translate(RuntimeError(text), "https://h/k")
    assert "SECRET" not in str(error)
    assert "SlowDown" in str(error)


def test_wrong_storage_options_are_a_clear_error_without_their_values():
    for options in ({"no_such_option": "SECRET"}, {"client_options": {"timeout": "SECRET"}}):
        with Fetch(storage_options=options) as fetch, pytest.raises(FormatError, match="storage options") as caught:
            fetch.run(fetch.head("s3://bucket/a"))
        assert "SECRET" not in str(caught.value)


@pytest.mark.s3
def test_wrong_credentials_are_denied_and_never_shown(s3):
    options = {**s3.storage_options, "secret_access_key": "SECRETSECRET"}
    with Fetch(storage_options=options, retries=1, deadline=10.0) as fetch:
        with pytest.raises(DeniedError) as caught:
            fetch.run(fetch.head(f"{s3.url}/a"))
        assert "SECRET" not in f"{caught.value!r}{caught.value}{fetch!r}"

        async def listed():
            return [source async for source in fetch.find(f"{s3.url}/folder/")]

        with pytest.raises(DeniedError, match="check the key, secret and token in storage_options") as caught:
            fetch.run(listed())
        assert "SignatureDoesNotMatch" in str(caught.value)
        assert "GenericError" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "Generic S3 error: GET https://h/ - Server returned non-2xx status code: 403 Forbidden",
        "Generic S3 error: non-2xx status code: 400 Bad Request: <Error><Code>ExpiredToken</Code></Error>",
    ],
)
def test_refusals_that_a_library_reports_as_text_are_denied(text):
    error = translate(RuntimeError(text), "s3://b/k")
    assert isinstance(error, DeniedError)
    assert "storage_options" in str(error)


@pytest.mark.s3
def test_usual_option_names_are_understood(s3):
    options = {
        "key": s3.access_key,
        "secret": s3.secret_key,
        "client_kwargs": {"endpoint_url": s3.endpoint, "region_name": "us-east-1"},
    }
    prefixed = {"s3://other/": {"region": "x"}, f"{s3.url}/": options}
    for given in (options, prefixed):
        with Fetch(storage_options=given) as fetch:
            fetch.run(fetch.write(f"{s3.url}/named", b"x"))
            assert fetch.run(fetch.read(f"{s3.url}/named", 0, 1))[0] == b"x"


@pytest.mark.s3
def test_another_bucket_is_out_of_an_indexs_reach(s3):
    policy = Policy.beside(f"{s3.url}/idx/index.parquet")
    with Fetch(policy=policy, storage_options=s3.storage_options) as fetch:
        for url in ("s3://other/a", f"{s3.url}/a", f"{s3.url}/idx/../a", "memory://a"):
            with pytest.raises(DeniedError):
                fetch.run(fetch.read(url, 0, 1))


def test_nobody_listening_is_a_fetch_error_in_time():
    options = {"endpoint": "http://127.0.0.1:1", "anon": True, "region": "us-east-1"}
    with Fetch(storage_options=options, retries=2, deadline=5.0) as fetch, pytest.raises(PeriplusError) as caught:
        fetch.run(fetch.head("s3://bucket/a"))
    assert isinstance(caught.value, FetchError)


def test_a_path_that_is_not_there_cannot_be_uploaded(tmp_path):
    with Fetch() as fetch:
        for target in ("memory://x", tmp_path / "x"):
            with pytest.raises(MissingError):
                fetch.run(fetch.write(target, Path(tmp_path / "none")))
    assert list(tmp_path.iterdir()) == []
