import os

import pytest

from periplus.errors import DeniedError
from periplus.fetch import Fetch
from periplus.policy import Policy, canonical, folder_of, resolve, without_secrets
from periplus.testing.servers.http import RangeServer

SAME = [
    ("HTTP://Example.COM:80/a", "http://example.com/a"),
    ("https://example.com:443/a", "https://example.com/a"),
    ("https://example.com.:443", "https://example.com/"),
    ("https://example.com/%7Euser/%c3%a9?x=1#part", "https://example.com/~user/%C3%A9?x=1"),
    ("https://example.com/a b/é", "https://example.com/a%20b/%C3%A9"),
    ("https://bücher.example/a", "https://xn--bcher-kva.example/a"),
    ("http://2130706433/a", "http://127.0.0.1/a"),
    ("http://0177.0.0.1/a", "http://127.0.0.1/a"),
    ("http://0x7f.1/a", "http://127.0.0.1/a"),
    ("http://127.1/a", "http://127.0.0.1/a"),
    ("http://[::FFFF:127.0.0.1]/a", "http://127.0.0.1/a"),
    ("http://[0:0:0:0:0:0:0:1]:8080/a", "http://[::1]:8080/a"),
    ("https://name:pass@example.com/a", "https://example.com/a"),
    ("s3://bucket", "s3://bucket/"),
    ("S3A://bucket/a//", None),
    ("s3a://bucket/a", "s3://bucket/a"),
    ("s3://bucket/a?b#c%41", "s3://bucket/a?b#c%41"),
    ("gcs://bucket/a", "gs://bucket/a"),
    ("abfss://box@account.dfs.core.windows.net/a", "abfs://box@account.dfs.core.windows.net/a"),
    ("memory:///a/b", "memory://a/b"),
    ("file:///data/a%20b.tif", "/data/a b.tif"),
    ("file:/data/a.tif", "/data/a.tif"),
    ("FILE://LOCALHOST/data/a.tif", "/data/a.tif"),
    ("/data/./x/../a.tif", "/data/a.tif"),
    ("//data/a.tif", "/data/a.tif"),
    ("/data/", "/data/"),
    ("/data/a:b.tif", "/data/a:b.tif"),
]


@pytest.mark.parametrize(("given", "expected"), SAME)
def test_every_url_has_one_spelling(given, expected):
    if expected is None:
        with pytest.raises(DeniedError):
            canonical(given)
        return
    assert canonical(given) == expected
    assert canonical(expected) == expected


def test_relative_paths_become_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert canonical("a/b.tif") == f"{tmp_path}/a/b.tif"
    assert canonical(tmp_path / "b.tif") == f"{tmp_path}/b.tif"
    assert canonical("a:b.tif") == f"{tmp_path}/a:b.tif"


MALFORMED = [
    "", "http:/evil/x", "http:evil", "http://", "http:///x", "https://exa mple/x", "http://a:port/x", "http://a:99999/x",
    "http://[::1/x", "http://[fe80::1%25eth0]/x", "http://256.256.256.256/x", "http://1.2.3.4.5/x", "http://ex%61mple/x",
    "http://h/a\\b", "http://h\\@evil/x", "http://h/a\x00b", "http://h/a\nb", " http://h/a", "http://h/a ", "http://h/../x",
    "http://h/%2e%2e/x", "http://h/%2E./x", "http://h/%252e%252e/x", "http://h/a/..%2f..%2fx", "http://h/a/..%5cx",
    "http://h/a%00b", "ftp://h/a", "gopher://h/a", "data://x", "jar:file:///a!/b", "file://other/etc/passwd",
    "file:///a%00b", "/a\x00b", "s3://", "s3:///key", "s3://k:s@bucket/a", "s3://bucket/../other/a", "s3://bucket//a",
    "s3://bu cket/a", "memory://a//b", "memory://../a", "az://c@x@y/a", "http://-h-/a", "javascript://x",
]  # fmt: skip


@pytest.mark.parametrize("url", MALFORMED)
def test_what_is_malformed_or_tricky_is_denied(url):
    with pytest.raises(DeniedError):
        canonical(url)


@pytest.mark.parametrize(
    ("base", "path", "expected"),
    [
        ("https://h/d/i.parquet", "a/b.tif", "https://h/d/a/b.tif"),
        ("https://h/d/i.parquet?v=a/b", "b%20c.tif", "https://h/d/b%20c.tif"),
        ("s3://b/d/i.parquet", "a.tif", "s3://b/d/a.tif"),
        ("/data/idx/", "a.tif", "/data/idx/a.tif"),
        ("/data/i.parquet", "a.tif", "/data/a.tif"),
        ("/data/i.parquet", "a:b.tif", "/data/a:b.tif"),
        ("/data/i.parquet", "/other/a.tif", "/other/a.tif"),
        ("/data/i.parquet", "s3://b/a.tif", "s3://b/a.tif"),
        ("memory://x/i.parquet", "a.tif", "memory://x/a.tif"),
    ],
)
def test_references_resolve_against_the_indexs_folder(base, path, expected):
    assert resolve(base, path) == expected


@pytest.mark.parametrize(
    "path",
    ["", ".", "..", "../a", "a/../b", "a/./b", "a//b", "%2e%2e/a", "a\\b", "a\x00", "a\nb", "//evil/x", "a/", "http:x"],
)
@pytest.mark.parametrize("base", ["https://h/d/i.parquet", "s3://b/d/i", "/data/i"])
def test_relative_references_cannot_climb(base, path):
    with pytest.raises(DeniedError):
        resolve(base, path)


def test_the_folder_of_an_index():
    assert folder_of("https://h/d/i.parquet?x=/y") == "https://h/d/"
    assert folder_of("https://h/d/") == "https://h/d/"
    assert folder_of("s3://b/i") == "s3://b/"
    assert folder_of("/data/i.parquet") == "/data/"


# --- what an index may reach ---------------------------------------------------------------------------------------

# {h} is the allowed host with its port, {c} the canary's, {p} the canary's port, {f} a local canary file.
HOSTILE = [
    "http://{c}/secret",
    "HTTP://{c}/secret",
    "http://{h}@{c}/secret",
    "http://user:pass@{h}/data/a",
    "http://{c}#@{h}/data/a",
    "http://{c}?@{h}/data/a",
    "http://{h}.evil.example/data/a",
    "http://localhost:{p}/secret",
    "http://2130706433:{p}/secret",
    "http://0177.0.0.1:{p}/secret",
    "http://0x7f000001:{p}/secret",
    "http://127.1:{p}/secret",
    "http://[::ffff:127.0.0.1]:{p}/secret",
    "http://[::1]:{p}/secret",
    "http://0.0.0.0:{p}/secret",
    "https://{h}/data/a",
    "http://{h}/datas/a",
    "http://{h}/data",
    "http://{h}/",
    "http://{h}/data/../secret",
    "http://{h}/data/%2e%2e/secret",
    "http://{h}/data/%2E%2E%2Fsecret",
    "http://{h}/data/..%5c..%5csecret",
    "http://{h}/data/%252e%252e/secret",
    "http://{h}//data/a",
    "http://{h}/data/a\\..\\..\\secret",
    "http://{h}\\@{c}/secret",
    "http://{h}/data/a\x00",
    "http://{h}/data/a\r\nHost: evil",
    "http://169.254.169.254/latest/meta-data/",
    "http://2852039166/latest/meta-data/",
    "http://[fd00:ec2::254]/latest/meta-data/",
    "http://metadata.google.internal/",
    "s3://other-bucket/secret",
    "gs://other-bucket/secret",
    "az://other/secret",
    "memory://secret",
    "ftp://{c}/secret",
    "gopher://{c}/secret",
    "file://{f}",
    "FILE://{f}",
    "file:{f}",
    "file://localhost{f}",
    "file://{c}{f}",
    "{f}",
    "//{c}/secret",
    "/proc/self/environ",
    "/dev/zero",
    "~/secret",
    "relative/secret",
    "jar:http://{c}/secret!/x",
    "data:text/plain,secret",
]


@pytest.fixture
def places(tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"canary")
    os.utime(secret, ns=(1, 10**18))
    with RangeServer({"data/a": b"good", "secret": b"bad"}) as home, RangeServer({"secret": b"canary"}) as canary:
        yield home, canary, secret


@pytest.mark.parametrize("template", HOSTILE)
def test_a_remote_index_reaches_nothing_outside_its_prefix(places, template):
    home, canary, secret = places
    host, other = (s.url.removeprefix("http://") for s in (home, canary))
    url = template.format(h=host, c=other, p=canary.port, f=secret)
    policy = Policy.beside(f"{home.url}/data/index.parquet")
    with pytest.raises(DeniedError):
        policy.check(url)
    with Fetch(policy=policy, deadline=5.0) as fetch:
        for attempt in (lambda: fetch.read(url, 0, 10), lambda: fetch.head(url), lambda: fetch.tail(url, 5)):
            with pytest.raises(DeniedError):
                fetch.run(attempt())
        with pytest.raises(DeniedError):
            fetch.run(fetch.write(url, b"overwritten"))
    assert canary.log == []
    assert home.log == []
    assert secret.read_bytes() == b"canary"
    assert secret.stat().st_mtime_ns == 10**18


def test_there_are_at_least_forty_hostile_urls():
    assert len(set(HOSTILE)) >= 40


def test_what_lies_under_the_prefix_is_reached(places):
    home, _, _ = places
    with Fetch(policy=Policy.beside(f"{home.url}/data/index.parquet")) as fetch:
        assert fetch.run(fetch.read(f"{home.url.upper().replace('HTTP', 'http')}/data/a", 0, 10))[0] == b"good"


def test_allowed_prefixes_open_more_and_no_more():
    policy = Policy.beside("s3://a/idx/i.parquet", allow=["s3://b/tiles/", "https://h/one.tif", "gs://"])
    for url in ("s3://a/idx/x", "s3://b/tiles/x/y", "https://h/one.tif", "gs://any/x"):
        assert policy.check(url) == url
    for url in ("s3://a/x", "s3://b/tilesets/x", "s3://b/tiles", "https://h/one.tif.bak", "https://h/one.tif?x", "/x"):
        with pytest.raises(DeniedError):
            policy.check(url)


def test_a_prefix_without_its_slash_is_told_from_one_that_is_missing():
    policy = Policy.beside("/data/index.parquet", allow=["s3://bucket/scenes"])
    with pytest.raises(DeniedError, match="end the prefix that is allowed with a slash"):
        policy.check("s3://bucket/scenes/a.tif")
    with pytest.raises(DeniedError, match="may not access this place; if you trust it"):
        policy.check("s3://bucket/scenes-of-others/a.tif")


def test_the_environment_may_allow_more(monkeypatch, tmp_path):
    monkeypatch.setenv("PERIPLUS_ALLOW", f"s3://b/ {tmp_path}")
    policy = Policy.beside("https://h/i.parquet")
    assert policy.check("s3://b/x") == "s3://b/x"
    assert policy.check(tmp_path / "a.tif") == f"{tmp_path}/a.tif"
    with pytest.raises(DeniedError):
        policy.check(f"{tmp_path}-other/a.tif")


def test_links_out_of_a_local_prefix_are_refused_and_links_into_it_are_not(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "secret").write_bytes(b"canary")
    (inside / "a.tif").write_bytes(b"good")
    (inside / "file-link").symlink_to(outside / "secret")
    (inside / "folder-link").symlink_to(outside)
    (inside / "up").symlink_to("..")
    (inside / "own-link").symlink_to(inside / "a.tif")
    (tmp_path / "way-in").symlink_to(inside)
    policy = Policy.beside(inside / "index.parquet")
    with Fetch(policy=policy) as fetch:
        for name in ("file-link", "folder-link/secret", "up/outside/secret", "../outside/secret"):
            with pytest.raises(DeniedError) as raised:
                fetch.run(fetch.read(inside / name, 0, 10))
            linked = f"{outside / 'secret'}, to which a link leads;" in str(raised.value)
            assert linked == (not name.startswith(".."))
        for name in ("inside/a.tif", "inside/own-link", "way-in/a.tif"):
            assert fetch.run(fetch.read(tmp_path / name, 0, 10))[0] == b"good"
    linked = Policy.beside(tmp_path / "way-in" / "index.parquet")
    assert linked.check(inside / "a.tif")


def test_a_local_index_reaches_no_host():
    with pytest.raises(DeniedError):
        Policy.beside("/data/index.parquet").check("http://127.0.0.1/x")


def test_everything_is_allowed_to_a_user_who_asks():
    for url in ("/etc/hostname", "http://127.0.0.1/x", "s3://b/k"):
        assert Policy.everything().check(url) == url


# --- secrets -------------------------------------------------------------------------------------------------------

SIGNED = [
    "https://h/a.tif?sig=SECRET", "https://h/a.tif?sv=2021&st=1&se=2&sr=c&sp=r&sig=SECRET%3D",
    "https://b.s3.amazonaws.com/k?X-Amz-Algorithm=A&X-Amz-Credential=SECRET&X-Amz-Signature=SECRET",
    "https://b.s3.amazonaws.com/k?AWSAccessKeyId=SECRET&Signature=SECRET&Expires=1",
    "https://storage.googleapis.com/b/k?X-Goog-Signature=SECRET", "https://h/a?GoogleAccessId=x&Signature=SECRET",
    "https://h/a?token=SECRET", "https://h/a?access_token=SECRET", "https://h/a?auth_token=SECRET",
    "https://h/a?api_key=SECRET", "https://h/a?apikey=SECRET", "https://h/a?api-key=SECRET", "https://h/a?key=SECRET",
    "https://h/a?subscription-key=SECRET", "https://h/a?Ocp-Apim-Subscription-Key=SECRET", "https://h/a?password=SECRET",
    "https://h/a?pwd=SECRET", "https://h/a?client_secret=SECRET", "https://h/a?jwt=SECRET", "https://h/a?auth=SECRET",
    "https://h/a?x=1&TOKEN=SECRET", "https://h/a?x=1;token=SECRET", "https://h/a?%74oken=SECRET",
    "https://h/a?Policy=p&Signature=SECRET&Key-Pair-Id=k", "https://h/a?hdnea=SECRET", "https://h/a?X-Amz-Security-Token=SECRET",
    "https://user:SECRET@h/a?sig=SECRET", "s3://b/k?X-Amz-Signature=SECRET", "s3://key:SECRET@b/k",
    "az://c/k?sig=SECRET", "gs://user:SECRET@b/k", "https://h/a?credentials=SECRET",
]  # fmt: skip


@pytest.mark.parametrize("url", SIGNED)
def test_signed_urls_are_refused_with_advice_and_without_the_secret(url):
    with pytest.raises(DeniedError, match="storage_options") as caught:
        without_secrets(url)
    assert "SECRET" not in f"{caught.value!r} {caught.value} {caught.value.url}"
    with Fetch() as fetch, pytest.raises(DeniedError) as caught:
        fetch.run(fetch.read(url, 0, 10))
    assert "SECRET" not in str(caught.value)


def test_harmless_queries_and_user_names_are_kept_and_stripped():
    assert without_secrets("https://h/a?versionId=3&band=4") == "https://h/a?versionId=3&band=4"
    assert without_secrets("https://user:SECRET@h/a") == "https://h/a"
    assert without_secrets("/data/a?token=x.tif") == "/data/a?token=x.tif"
