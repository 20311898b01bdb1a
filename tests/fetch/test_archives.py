"""Archives as they give access: requester pays, signed URLs, tokens and logins, against servers that behave so."""

import asyncio
import pickle
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
import tifffile
import xarray as xr

import periplus
from periplus.errors import DeniedError, FetchError, FormatError
from periplus.fetch import Fetch
from periplus.fetch.http.credentials import Credentials
from periplus.fetch.http.hosts import kind, leads
from periplus.fetch.http.signing import expiry, token_url
from periplus.fetch.objects.options import store_config
from periplus.policy import Policy
from periplus.testing.servers.archives import LoginArchive, SignedArchive, refuse
from periplus.testing.servers.http import Fault, RangeServer
from periplus.testing.servers.responses import Response

KEYS = {"region": "us-east-1", "access_key_id": "k", "secret_access_key": "s3cret"}


@pytest.fixture
def server(payload):
    with RangeServer({"bucket/a.bin": payload, "a.bin": payload}) as one:
        yield one


# --- requester pays -------------------------------------------------------------------------------------------------


def billed(method: str, target: str, headers: Mapping[str, str]) -> Response | None:
    """As S3: a bucket whose requester pays refuses who does not accept that, and who is not known."""
    del method, target
    paid = headers.get("x-amz-request-payer") == "requester" and "authorization" in headers
    return None if paid else refuse(403)


@pytest.mark.parametrize(
    "option",
    [{"requester_pays": True}, {"requester_pays": "true"}, {"request_payer": True}, {"RequestPayer": "requester"}],
)
def test_the_requester_pays_where_an_option_says_so(server, payload, option):
    server.guard = billed
    with Fetch(storage_options={**KEYS, "endpoint": server.url, **option}) as fetch:
        assert fetch.run(fetch.read("s3://bucket/a.bin", 5, 10))[0] == payload[5:15]


def test_the_requester_pays_where_the_environment_says_so_as_with_gdal(server, payload, monkeypatch):
    server.guard = billed
    monkeypatch.setenv("AWS_REQUEST_PAYER", "requester")
    options = {**KEYS, "endpoint": server.url}
    with Fetch(storage_options=options) as fetch:
        assert fetch.run(fetch.read("s3://bucket/a.bin", 5, 10))[0] == payload[5:15]
        assert fetch.settings("s3://bucket/a.bin")["request_payer"] is True  # for Icechunk, which reads by itself
    with Fetch(storage_options={**options, "requester_pays": "false"}) as fetch:
        with pytest.raises(DeniedError, match="requester_pays"):
            fetch.run(fetch.read("s3://bucket/a.bin", 5, 10))
        assert fetch.settings("s3://bucket/a.bin")["request_payer"] is False


def test_nobody_cannot_pay(server):
    options = {"region": "us-east-1", "endpoint": server.url, "anon": True, "requester_pays": True}
    with Fetch(storage_options=options) as fetch, pytest.raises(DeniedError, match="requester pays needs credentials"):
        fetch.run(fetch.read("s3://bucket/a.bin", 5, 10))
    assert server.log == []


def test_google_bills_a_project(server, payload):
    server.files["bucket%2Fa.bin"] = payload
    options = {"endpoint": server.url, "anon": True, "requester_pays": "my-project"}
    with Fetch(storage_options=options) as fetch:
        fetch.run(fetch.read("gs://bucket/a.bin", 5, 10))
    assert server.log[-1].headers["x-goog-user-project"] == "my-project"
    with pytest.raises(FormatError, match="the project to be billed"):
        store_config("gs", {"requester_pays": True})


# --- credentials that expire ----------------------------------------------------------------------------------------


def test_a_credential_provider_is_asked_again_when_its_credentials_expire(server, payload):
    given = []

    def provider():
        given.append(f"key{len(given)}")
        until = datetime.now(UTC) + timedelta(hours=1 if len(given) > 2 else -1)
        return {"access_key_id": given[-1], "secret_access_key": "s3cret", "token": None, "expires_at": until}

    options = {"region": "us-east-1", "endpoint": server.url, "credential_provider": provider}
    with Fetch(storage_options=options) as fetch:
        for offset in range(4):
            assert fetch.run(fetch.read("s3://bucket/a.bin", offset, 10))[0] == payload[offset : offset + 10]
        with pytest.raises(FormatError, match="cannot use a credential_provider"):
            fetch.settings("s3://bucket/a.bin")
    used = [request.headers["authorization"].partition("Credential=")[2][:4] for request in server.log]
    assert used == ["key0", "key1", "key2", "key2"]
    with pytest.raises(TypeError, match="credential_provider is a callable"):
        Fetch(storage_options={"credential_provider": "x"})


# --- signed URLs ----------------------------------------------------------------------------------------------------


def read(fetch: Fetch, url: str, offset: int = 0) -> bytes:
    return fetch.run(fetch.read(url, offset, 10))[0]


def test_a_refused_signature_is_made_again(server, payload):
    archive = SignedArchive(server, uses=3)
    with Fetch(storage_options={"signer": archive.sign}) as fetch:
        for offset in range(10):
            assert read(fetch, f"{server.url}/a.bin", offset) == payload[offset : offset + 10]
    assert (len(archive.left), archive.refused) == (4, 3)


def test_a_signature_is_not_used_to_the_end_of_its_life(server, monkeypatch):
    times = iter(datetime(2030, 1, 1, tzinfo=UTC) + timedelta(hours=2 * n) for n in range(9))
    archive = SignedArchive(server)

    def signer(url: str) -> str:
        archive.fields = f"se={next(times):%Y-%m-%dT%H:%M:%SZ}&"
        return archive.sign(url)

    now = [datetime(2029, 12, 31, 23, tzinfo=UTC).timestamp()]
    monkeypatch.setattr("periplus.fetch.http.signing.time.time", lambda: now[0])
    with Fetch(storage_options={"signer": signer}) as fetch:
        for made, minutes in [(1, 0), (1, 50), (2, 5), (2, 100), (3, 15)]:
            now[0] += 60 * minutes
            read(fetch, f"{server.url}/a.bin")
            assert len(archive.left) == made
    assert archive.refused == 0


def test_requests_at_once_share_a_signature(server):
    archive = SignedArchive(server)
    url = f"{server.url}/a.bin"
    with Fetch(storage_options={"signer": archive.sign}) as fetch:

        async def many() -> None:
            await asyncio.gather(*(fetch.read(url, offset, 10) for offset in range(40)))

        fetch.run(many())
    assert len(archive.left) == 1


def test_a_signature_that_is_refused_when_it_is_new_is_a_denied_error_that_does_not_show_it(server):
    archive = SignedArchive(server, uses=0)
    with Fetch(storage_options={"signer": archive.sign}) as fetch:
        with pytest.raises(DeniedError) as caught:
            read(fetch, f"{server.url}/a.bin")
        assert "s3cret" not in str(caught.value) + repr(caught.value) + repr(fetch)
    assert len(server.log) == 1


def failing(url: str) -> str:
    raise LookupError(f"{url}?sig=s3cret")


@pytest.mark.parametrize(
    ("signer", "error", "message"),
    [
        (failing, FetchError, r"the signer failed \(LookupError\)"),
        (lambda _: b"x", TypeError, "returns the signed URL as text, not bytes"),
        (lambda _: "s3://b/k", DeniedError, "no http or https URL"),
        (lambda url: url.replace("127.0.0.1", "127.0.0.2"), DeniedError, "may not access"),
    ],
)
def test_what_a_signer_must_not_do(server, signer, error, message):
    policy = Policy.beside(f"{server.url}/index.parquet")
    with (
        Fetch(policy=policy, storage_options={"signer": signer}) as fetch,
        pytest.raises(error, match=message) as caught,
    ):
        read(fetch, f"{server.url}/a.bin")
    shown = "".join(traceback.format_exception(caught.value))
    assert "sig=s3cret" not in shown
    assert server.log == []


def test_a_signer_may_be_async_and_belong_to_a_prefix(server, payload):
    archive = SignedArchive(server)

    async def signer(url: str) -> str:
        return archive.sign(url)

    with Fetch(storage_options={f"{server.url}/": {"signer": signer}}) as fetch:
        assert read(fetch, f"{server.url}/a.bin") == payload[:10]
    with Fetch(storage_options={"http://other/": {"signer": signer}}) as fetch, pytest.raises(DeniedError):
        read(fetch, f"{server.url}/a.bin")


@pytest.mark.parametrize(
    ("query", "when"),
    [
        ("se=2030-01-01T00%3A00%3A00Z&sig=x", 1893456000),
        ("X-Amz-Date=20291231T230000Z&X-Amz-Expires=3600&X-Amz-Signature=x", 1893456000),
        ("X-Goog-Date=20291231T230000Z&X-Goog-Expires=3600&X-Goog-Signature=x", 1893456000),
        ("Expires=1893456000&Signature=x&Key-Pair-Id=y", 1893456000),
        ("sig=x", None),
        ("se=soon&sig=x", None),
        ("X-Amz-Expires=3600", None),
    ],
)
def test_when_a_signature_expires(query, when):
    assert expiry(f"https://h/a?{query}") == expiry(query) == when


def test_the_planetary_computer_is_asked_for_one_token_per_container(server, payload, monkeypatch):
    SignedArchive(server, uses=3)
    server.files["data/a.bin"] = server.files["data/b.bin"] = payload
    for name, value in {
        "http_proxy": server.url,
        "no_proxy": "",
        "PC_SDK_SAS_URL": f"{server.url}/token",
        "PC_SDK_SUBSCRIPTION_KEY": "k3y",
    }.items():
        monkeypatch.setenv(name, value)
    blobs = "http://account.blob.core.windows.net/data"
    with Fetch(storage_options={"signer": "planetary-computer"}) as fetch:
        for offset in range(4):
            assert read(fetch, f"{blobs}/a.bin", offset) == payload[offset : offset + 10]
        data, source = fetch.run(fetch.read(f"{blobs}/b.bin", 3, 10))
    assert (data, source.url) == (payload[3:13], f"{blobs}/b.bin")
    tokens = [request for request in server.log if "/token/" in request.path]
    assert [request.path for request in tokens] == ["/token/account/data"] * 2
    assert all(request.headers["ocp-apim-subscription-key"] == "k3y" for request in tokens)
    assert not any("ocp-apim-subscription-key" in r.headers for r in server.log if r not in tokens)
    assert token_url("https://other.example.org/data/a.bin") is None
    assert token_url("https://account.blob.core.windows.net.evil.org/data/a.bin") is None


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"signer": "planetary"}, ValueError, "one of these names: planetary-computer"),
        ({"signer": 3}, TypeError, "a function from URL to signed URL"),
        ({"bearer_token": 3}, TypeError, "bearer_token is text"),
        ({"netrc": 3}, TypeError, "netrc is true, or the path"),
    ],
)
def test_wrong_options_are_refused_at_once(options, error, message):
    with pytest.raises(error, match=message):
        Fetch(storage_options=options)


ARCHIVES: list[SignedArchive] = []


def by_reference(url: str) -> str:
    """A signer as a module has it, which is pickled by its name."""
    return ARCHIVES[-1].sign(url)


def test_an_index_keeps_the_plain_url_and_its_reads_sign_again(server, tmp_path):
    pixels = np.random.default_rng(1).integers(0, 255, (256, 256), dtype=np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", pixels, tile=(32, 32))
    server.files["a.tif"] = (tmp_path / "a.tif").read_bytes()
    ARCHIVES.append(SignedArchive(server, uses=1))
    url, options = f"{server.url}/a.tif", {"signer": by_reference}
    index = periplus.index(url, to=tmp_path / "index.parquet", storage_options=options)
    assert index.files.to_pandas()["path"].tolist() == [url]
    for one in (index, pickle.loads(pickle.dumps(index))):
        np.testing.assert_array_equal(np.squeeze(one.read().values), pixels)
    opened = xr.open_dataset(
        tmp_path / "index.parquet", engine="periplus", allow=server.url + "/", storage_options=options
    )
    np.testing.assert_array_equal(np.squeeze(next(iter(opened.data_vars.values())).values), pixels)
    assert len(ARCHIVES[-1].left) > 3
    for stored in [pickle.dumps(index), *(path.read_bytes() for path in tmp_path.rglob("index*") if path.is_file())]:
        assert b"s3cret" not in stored
    assert pickle.loads(pickle.dumps(Fetch(storage_options={"signer": "planetary-computer"}))) is not None


# --- tokens and logins ----------------------------------------------------------------------------------------------


@pytest.fixture
def login():
    with RangeServer({}, host="127.0.0.2") as one:
        yield one


@pytest.fixture
def netrc(tmp_path):
    path = tmp_path / "netrc"
    path.write_text("machine 127.0.0.2 login user password p4ssword\ndefault login anyone password anything\n")
    return path


def test_a_bearer_token_goes_to_its_own_host_only(server, login, payload, monkeypatch):
    login.files["a.bin"] = payload
    server.faults["/moved"] = [Fault(kind="redirect", location=f"{login.url}/a.bin", times=-1)]
    monkeypatch.setenv("EARTHDATA_TOKEN", "s3cret")
    with Fetch(storage_options={server.url + "/": {"bearer_token": "env:EARTHDATA_TOKEN"}}) as fetch:
        assert read(fetch, f"{server.url}/moved") == payload[:10]
        assert read(fetch, f"{login.url}/a.bin") == payload[:10]
        assert b"s3cret" not in pickle.dumps(fetch)
    assert [request.headers["authorization"] for request in server.log] == ["Bearer s3cret"]
    assert not any("authorization" in request.headers for request in login.log)


def test_netrc_has_the_password_of_a_server(server, payload, tmp_path, monkeypatch):
    def guard(method: str, target: str, headers: Mapping[str, str]) -> Response | None:
        del method, target
        return None if headers.get("authorization") == "Basic dXNlcjpwNHNzd29yZA==" else refuse(401)

    server.guard = guard
    path = tmp_path / "netrc"
    path.write_text("machine 127.0.0.1 login user password p4ssword\n")
    monkeypatch.setenv("NETRC", str(path))
    for value in (path, str(path), True, "true"):
        with Fetch(storage_options={"netrc": value}) as fetch:
            assert read(fetch, f"{server.url}/a.bin") == payload[:10]
            assert b"p4ssword" not in pickle.dumps(fetch)
    for options in ({}, {"netrc": False}, {"netrc": "no"}):
        with Fetch(storage_options=options) as fetch, pytest.raises(DeniedError):
            read(fetch, f"{server.url}/a.bin")
    for content in (None, "machine 127.0.0.1 login user passw0rd p4ssword\n"):
        path.unlink() if content is None else path.write_text(content)
        with Fetch(storage_options={"netrc": path}) as fetch, pytest.raises(FormatError, match="netrc file") as caught:
            read(fetch, f"{server.url}/a.bin")
        assert "p4ssword" not in "".join(traceback.format_exception(caught.value))


def test_a_login_on_another_host_with_netrc_and_a_cookie(server, login, netrc, payload):
    LoginArchive(server, login, uses=3)
    with Fetch(storage_options={"netrc": netrc}) as fetch:
        for offset in range(7):
            assert read(fetch, f"{server.url}/a.bin", offset) == payload[offset : offset + 10]
        assert fetch.run(fetch.head(f"{server.url}/a.bin")).url == f"{server.url}/a.bin"
    assert len(login.log) == 3
    assert not any("authorization" in request.headers for request in server.log)
    assert not any("cookie" in request.headers for request in login.log)


def test_requests_at_once_log_in_once(server, login, netrc):
    LoginArchive(server, login)
    server.latency = login.latency = 0.01
    url = f"{server.url}/a.bin"
    with Fetch(storage_options={"netrc": netrc}) as fetch:

        async def many() -> None:
            await asyncio.gather(*(fetch.read(url, offset, 10) for offset in range(30)))

        fetch.run(many())
    assert len([request for request in login.log if "authorization" in request.headers]) == 1


@pytest.mark.parametrize("page", [False, True])
def test_a_login_that_fails_is_a_denied_error_that_names_its_host(server, login, tmp_path, page):
    LoginArchive(server, login, page=page)
    (tmp_path / "netrc").write_text("machine 127.0.0.2 login user password wr0ng\n")
    for options in ({}, {"netrc": tmp_path / "netrc"}):
        with Fetch(storage_options=options) as fetch:
            for work in (lambda: fetch.read(f"{server.url}/a.bin", 0, 10), lambda: fetch.head(f"{server.url}/a.bin")):
                with pytest.raises(DeniedError, match=r"a login at 127\.0\.0\.2") as caught:
                    fetch.run(work())
                assert "wr0ng" not in str(caught.value)


def test_a_login_is_under_the_policy(server, login, netrc):
    LoginArchive(server, login)
    policy = Policy.beside(f"{server.url}/index.parquet")
    with (
        Fetch(policy=policy, storage_options={"netrc": netrc}) as fetch,
        pytest.raises(DeniedError, match="may not access"),
    ):
        read(fetch, f"{server.url}/a.bin")
    assert login.log == []
    with Fetch(policy=policy.including(f"{login.url}/"), storage_options={"netrc": netrc}) as fetch:
        read(fetch, f"{server.url}/a.bin")


@pytest.mark.parametrize(
    ("start", "at", "sent"),
    [
        ("https://data.org/a", "https://login.org/b", True),
        ("https://data.org/a", "http://login.org/b", False),
        ("http://data.org/a", "http://login.org/b", False),
        ("http://login.org/a", "http://login.org/b", True),
        ("https://login.org/a", "http://login.org/b", False),
        ("https://data.org/a", "https://data.org/b", False),
        ("https://data.org/a", "https://sub.login.org/b", False),
    ],
)
def test_a_password_of_netrc_is_not_sent_in_the_clear_by_a_redirect(tmp_path, start, at, sent):
    (tmp_path / "netrc").write_text("machine login.org login user password p4ssword\ndefault login a password b\n")
    found = Credentials().headers(start, at, {"netrc": tmp_path / "netrc"})
    assert ("Authorization" in found) is sent


# --- redirects into private networks --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("8.8.8.8", "public"),
        ("2606:4700::1111", "public"),
        ("10.1.2.3", "private"),
        ("100.100.100.200", "private"),
        ("fd00:ec2::254", "private"),
        ("127.0.0.9", "loopback"),
        ("0.0.0.0", "loopback"),
        ("::1", "loopback"),
        ("169.254.169.254", "link-local"),
        ("::ffff:169.254.169.254", "link-local"),
        ("fe80::1%eth0", "link-local"),
    ],
)
def test_kinds_of_addresses(address, expected):
    assert kind(address) == expected
    assert leads("public", expected) is (expected == "public")
    assert leads("private", expected) is (expected in ("public", "private"))
    assert leads("loopback", expected) is (expected != "link-local")


@pytest.mark.parametrize(
    "target",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://[fd00:ec2::254]/latest/meta-data/",
        "http://2852039166/latest/meta-data/",
        "http://10.0.0.1/a.bin",
        "http://127.0.0.1:{port}/a.bin",
        "http://localhost:{port}/a.bin",
    ],
)
def test_a_public_server_cannot_redirect_into_a_private_network(server, monkeypatch, target):
    monkeypatch.setenv("http_proxy", server.url)  # it plays every host of the web
    monkeypatch.setenv("no_proxy", "")
    server.faults["/moved"] = [Fault(kind="redirect", location=target.format(port=server.port), times=-1)]
    with Fetch() as fetch:
        for work in (fetch.read("http://data.example.org/moved", 0, 10), fetch.head("http://data.example.org/moved")):
            with pytest.raises(DeniedError, match="leads into a private network"):
                fetch.run(work)
    assert {request.path for request in server.log} == {"http://data.example.org/moved"}


def test_a_server_of_this_machine_cannot_redirect_to_the_metadata_of_a_cloud(server):
    server.faults["/moved"] = [Fault(kind="redirect", location="http://169.254.169.254/latest/", times=-1)]
    with Fetch() as fetch, pytest.raises(DeniedError, match="leads into a private network"):
        read(fetch, f"{server.url}/moved")
