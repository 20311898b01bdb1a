"""Keys come from where AWS's own tools keep them, after those of the options and the environment."""

import os

import pytest

from periplus.errors import DeniedError, FormatError
from periplus.fetch import Fetch
from periplus.fetch.objects.profile import with_profile

CREDENTIALS = """
[default]
aws_access_key_id = AK
aws_secret_access_key = SK%20/+

[work]
aws_access_key_id = WORK
aws_secret_access_key = WORKSK
aws_session_token = WORKTOKEN
"""
CONFIG = """
[default]
region = eu-central-1

[profile work]
region = us-west-2
endpoint_url = http://localhost:9000
s3 =
    max_concurrent_requests = 20

[profile corporate]
sso_session = corporate
region = us-east-1

[profile far]
region = ap-south-1
"""
DEFAULT = {"access_key_id": "AK", "secret_access_key": "SK%20/+", "region": "eu-central-1"}
WORK = {
    "access_key_id": "WORK", "secret_access_key": "WORKSK", "session_token": "WORKTOKEN", "region": "us-west-2",
    "endpoint": "http://localhost:9000",
}  # fmt: skip


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
    (tmp_path / ".aws").mkdir()
    (tmp_path / "keys").write_text(CREDENTIALS)
    (tmp_path / ".aws/config").write_text(CONFIG)
    return tmp_path


def test_the_default_profile_or_the_one_named(monkeypatch):
    assert with_profile({}) == DEFAULT
    assert with_profile({"profile": "work"}) == WORK
    assert with_profile({"profile": "work", "region": "x", "timeout": 3}) == {**WORK, "region": "x", "timeout": 3}
    assert with_profile({"profile": "far"}) == {"region": "ap-south-1"}
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert with_profile({}) == WORK
    monkeypatch.setenv("AWS_REGION", "elsewhere")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://other")
    assert not {"region", "endpoint"} & set(with_profile({}))


@pytest.mark.parametrize("options", [{"key": "k", "secret": "s"}, {"anon": True}, {"token": "anon"}])
def test_what_the_options_say_comes_first(options):
    assert with_profile(options) == options


def test_keys_of_the_environment_come_before_a_profile_that_is_not_asked_for(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ENV")
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert with_profile({}) == {}
    assert with_profile({"profile": "work"}) == WORK


def test_profiles_that_cannot_be_used_are_explained(monkeypatch, home):
    with pytest.raises(DeniedError, match="no profile 'nobody'"):
        with_profile({"profile": "nobody"})
    with pytest.raises(DeniedError, match=r"signs in by sso_session.*export-credentials --profile corporate"):
        with_profile({"profile": "corporate"})
    (home / "keys").write_text("no section\n")
    with pytest.raises(FormatError, match="AWS profiles"):
        with_profile({})


def test_without_any_file_nothing_changes(home):
    (home / "keys").unlink()
    (home / ".aws/config").unlink()
    assert with_profile({"region": "x"}) == {"region": "x"}


@pytest.mark.s3
def test_a_bucket_is_read_with_the_keys_of_a_profile(s3, home):
    keys = f"aws_access_key_id = {s3.access_key}\naws_secret_access_key = {s3.secret_key}"
    (home / "keys").write_text(f"[tests]\n{keys}\nendpoint_url = {s3.endpoint}\nregion = us-east-1\n")
    with Fetch(storage_options={"profile": "tests", "virtual_hosted_style_request": False}) as fetch:
        fetch.run(fetch.write(f"{s3.url}/profile/a", b"0123456789"))
        assert bytes(fetch.run(fetch.read(f"{s3.url}/profile/a", 3, 4))[0]) == b"3456"
