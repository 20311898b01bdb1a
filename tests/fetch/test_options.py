"""Storage options mean the same however they are spelt."""

from typing import Any

import pytest

from periplus.errors import FormatError
from periplus.fetch import Fetch
from periplus.fetch.objects.options import options_for, store_config


@pytest.mark.parametrize("value", [True, 1, "true", "True", " yes ", "1", "on"])
def test_yes_is_yes(value: object) -> None:
    assert store_config("s3", {"anon": value, "allow_http": value}) == ({"skip_signature": True}, {"allow_http": True})
    assert store_config("s3", {"use_ssl": value}) == ({}, {"allow_http": False})


@pytest.mark.parametrize("value", [False, 0, "false", "False", "no", "0", "off"])
def test_no_is_no(value: object) -> None:
    assert store_config("s3", {"anon": value, "allow_http": value}) == (
        {"skip_signature": False},
        {"allow_http": False},
    )
    assert store_config("gs", {"use_ssl": value}) == ({}, {"allow_http": True})


def test_what_is_neither_is_refused_without_repeating_it() -> None:
    with pytest.raises(FormatError, match="anon") as caught:
        store_config("s3", {"anon": "AKIASECRET"})
    assert "AKIASECRET" not in str(caught.value)


def test_names_of_fsspec_become_those_of_the_store() -> None:
    config, client = store_config("s3", {"key": "k", "secret": "s", "client_kwargs": {"endpoint_url": "http://h:1"}})
    assert config == {"access_key_id": "k", "secret_access_key": "s", "endpoint": "http://h:1"}
    assert client == {"allow_http": True}


def test_options_of_a_place_hold_there_only() -> None:
    options = {"region": "a", "s3://bucket/": {"region": "b"}, "s3://bucket/deep": {"region": "c"}}
    assert options_for("s3://bucket/x", options) == {"region": "b"}
    assert options_for("s3://bucket/deep/x", options) == {"region": "c"}
    assert options_for("s3://bucket/deeper", options) == {"region": "b"}
    assert options_for("s3://buckets/x", options) == {"region": "a"}


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3"])
def test_an_endpoint_of_the_environment_may_be_plain_http(monkeypatch, variable):
    monkeypatch.setenv(variable, "http://127.0.0.1:9000")
    assert store_config("s3", {}) == ({}, {"allow_http": True})
    assert store_config("s3", {"endpoint": "https://other"})[1] == {}
    assert store_config("gs", {}) == ({}, {})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("x", "storage_options is a dict of names and values, not str"),
        ({"headers": "x"}, "headers is a dict of names and values, not str"),
        ({"query": ["a"]}, "query is text, not list"),
        ({"https://h/": {"query": 3}}, "query is text, not int"),
    ],
)
def test_options_of_other_types_are_refused(options: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Fetch(storage_options=options)
