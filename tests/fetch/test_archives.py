"""Archives as they give access: requester pays, signed URLs, tokens and logins, against servers that behave so."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from periplus.errors import DeniedError, FormatError
from periplus.fetch import Fetch
from periplus.fetch.objects.options import store_config
from periplus.testing.servers.http import RangeServer
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
    return None if paid else Response(status=403, headers=["Content-Length: 0"])


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
