"""Keys where the tools of AWS keep them: the profiles of ~/.aws/credentials and ~/.aws/config."""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from periplus.errors import DeniedError, FormatError
from periplus.fetch.objects.options import ANONYMOUS, ENDPOINTS, KEYS, PROVIDER, VARIABLES

_FILES = {"AWS_SHARED_CREDENTIALS_FILE": "credentials", "AWS_CONFIG_FILE": "config"}
_SETTINGS = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
    "region": "region",
    "endpoint_url": "endpoint",
}
_BEFORE = {"region": ("AWS_REGION", "AWS_DEFAULT_REGION"), "endpoint": ENDPOINTS}
"""Variables that count more than the profile."""
_OTHERWISE = ("sso_session", "sso_start_url", "role_arn", "credential_process")
"""Ways to sign in that take AWS's own tools."""


def with_profile(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of an S3 store, and the keys, region and endpoint of a profile, unless they are given.

    The profile is the option `profile`, or that of AWS_PROFILE, or `default`. Keys of the options and, unless the
    option `profile` is there, of the environment come first, as with the tools of AWS.
    """
    plain = {name: value for name, value in options.items() if name != "profile"}
    asked = options.get("profile") or os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE")
    stated = any(name in plain for name in ("key", PROVIDER, *KEYS["s3"], *ANONYMOUS)) or plain.get("token") == "anon"
    if stated or ("profile" not in options and any(name in os.environ for name in VARIABLES["s3"])):
        return plain
    found = _read(asked or "default")
    if asked and not found:
        raise DeniedError(f"there is no profile {asked!r} in ~/.aws")
    if asked and "aws_access_key_id" not in found and (way := next((w for w in _OTHERWISE if w in found), None)):
        raise DeniedError(
            f"the profile {asked!r} signs in by {way}, which takes the tools of AWS: put what `aws configure "
            f"export-credentials --profile {asked} --format env` prints into the environment"
        )
    settings = {name: found[theirs] for theirs, name in _SETTINGS.items() if theirs in found}
    for name, variables in _BEFORE.items():
        if any(variable in os.environ for variable in variables):
            settings.pop(name, None)
    return {**settings, **plain}


def _read(name: str) -> dict[str, str]:
    """The settings of a profile from both files; the credentials first."""
    found: dict[str, str] = {}
    for variable, usual in _FILES.items():
        path = Path(os.environ.get(variable) or Path.home() / ".aws" / usual).expanduser()
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError, OSError):
            raise FormatError("the file of AWS profiles cannot be read", url=str(path)) from None
        for section in (name, f"profile {name}"):
            if parser.has_section(section):
                found = {**dict(parser.items(section)), **found}
    return found
