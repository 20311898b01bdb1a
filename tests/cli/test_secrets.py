"""Nothing that goes to the terminal shows a secret."""

import pytest

from periplus.cli.secrets import option_values, scrub

SECRET = "hunter2secret"


@pytest.mark.parametrize(
    "text",
    [
        f"could not read https://user:{SECRET}@example.com/a.tif",
        f"(https://example.com/a.tif?X-Amz-Signature={SECRET}&versionId=3)",
        f"'https://account.blob.core.windows.net/c/a.tif?sv=2021&sig={SECRET}'",
        f"s3://key:{SECRET}@bucket/a.tif",
        f"HTTPS://example.com/a?token={SECRET}, and more",
    ],
)
def test_urls_are_redacted_wherever_they_stand(text):
    shown = scrub(text)
    assert SECRET not in shown
    assert "://" in shown


@pytest.mark.parametrize(
    "arguments", [["--storage-option", f"secret_access_key={SECRET}"], [f"--storage-option=token={SECRET}"]]
)
def test_storage_options_are_never_repeated(arguments):
    assert SECRET not in scrub(f"bad credentials: {SECRET}", ["index", "s3://b/a.tif", *arguments])


def test_other_arguments_and_short_settings_are_left_alone():
    arguments = ["info", "a.parquet", "--storage-option", "skip_signature=true", "--storage-option", "nothing"]
    assert option_values(arguments) == set()
    assert scrub("a.parquet is true", arguments) == "a.parquet is true"
