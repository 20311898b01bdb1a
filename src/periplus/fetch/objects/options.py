"""Storage options: the usual names for S3, GCS, Azure and HTTP, translated to those of the stores."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from periplus.errors import FormatError
from periplus.fetch.http.signing import SIGNERS
from periplus.policy import canonical, scheme_of

Options = Mapping[str, Any]

_RENAMED: dict[str, dict[str, str]] = {
    "s3": {
        "key": "access_key_id",
        "secret": "secret_access_key",
        "token": "session_token",
        "endpoint_url": "endpoint",
        "region_name": "region",
    },
    "gs": {"endpoint_url": "base_url", "endpoint": "base_url"},
    "az": {
        "sas_token": "sas_key",
        "account": "account_name",
        "endpoint_url": "endpoint",
    },
}
ANONYMOUS = ("anon", "anonymous", "no_sign_request", "skip_signature", "unsigned")
PAYER = ("requester_pays", "request_payer", "aws_request_payer", "RequestPayer")
PAYER_VARIABLE = "AWS_REQUEST_PAYER"
_TRUTHS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
"""Variables in which the library finds the endpoint of S3 for itself."""
_WEB_ONLY = ("headers", "query", "signer", "netrc")
FROM_ENVIRONMENT = "env:"
"""Begins a value that is the name of an environment variable: each process looks it up, so that no pickle holds it."""
PROVIDER = "credential_provider"
"""A callable that returns credentials with the time they expire, as the store's library defines it and calls again."""
# Where the store's library looks for credentials, apart from the machine's own metadata service.
KEYS = {
    "s3": ("access_key_id", "aws_access_key_id", "web_identity_token_file", "container_credentials_relative_uri"),
    "gs": ("service_account", "service_account_key", "service_account_path", "application_credentials", "bearer_token"),
}
VARIABLES = {
    "s3": (
        "AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_SKIP_SIGNATURE",
    ),
    "gs": (
        "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH", "GOOGLE_SERVICE_ACCOUNT_KEY", "SERVICE_ACCOUNT",
        "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SKIP_SIGNATURE",
    ),
}  # fmt: skip
VENDOR = Path("/sys/class/dmi/id/sys_vendor")
_MACHINE = {"s3": "Amazon", "gs": "Google"}


_KINDS: tuple[tuple[str, Any, str], ...] = (
    ("headers", Mapping, "a dict of names and values"),
    ("query", str, "text"),
    ("bearer_token", str, "text"),
    ("netrc", bool | str | os.PathLike, "true, or the path of a netrc file"),
    (PROVIDER, Callable, "a callable that returns credentials"),
)


def check_options(options: Any) -> dict[str, Any]:
    """Storage options as a dict; TypeError where they, or some of them, are of another type."""
    if not isinstance(options, Mapping | None):
        raise TypeError(f"storage_options is a dict of names and values, not {type(options).__name__}")
    found = {} if options is None else dict(options)
    for prefix in [name for name in found if "://" in str(name)]:
        check_options(found[prefix])
    for name, kind, what in _KINDS:
        if not isinstance(found.get(name), kind | None):
            raise TypeError(f"the storage option {name} is {what}, not {type(found[name]).__name__}")
    signer = found.get("signer")
    if signer is not None and not callable(signer) and (not isinstance(signer, str) or signer not in SIGNERS):
        wrong = ValueError if isinstance(signer, str) else TypeError
        known = ", ".join(sorted(SIGNERS))
        raise wrong(f"the storage option signer is a function from URL to signed URL, or one of these names: {known}")
    return found


def options_for(url: str, options: Options) -> dict[str, Any]:
    """The options that hold for a URL: the general ones, then those of its longest prefixes.

    A key with `://` in it is such a prefix: {"s3://bucket/": {"region": "eu-central-1"}}. A value env:NAME is that of
    an environment variable.
    """
    chosen = {key: value for key, value in options.items() if "://" not in key}
    for prefix in sorted((key for key in options if "://" in key), key=len):
        place = canonical(prefix)
        if url == place or url.startswith(place if place.endswith("/") else place + "/"):
            chosen.update(options[prefix])
    found = {name: _value(name, value) for name, value in chosen.items()}
    return {**found, "netrc": _netrc(found["netrc"])} if "netrc" in found else found


def _netrc(value: Any) -> Path | None:
    """The path of the netrc file to be used: the one given, or that of the variable NETRC, or the usual one."""
    stated = _TRUTHS.get(str(value).strip().lower())
    if stated is None and value is not None:
        return Path(os.fspath(value)).expanduser()
    return Path(os.environ.get("NETRC") or "~/.netrc").expanduser() if stated else None


def _value(name: str, value: Any) -> Any:
    """A value as it is, or that of the environment variable NAME where it is written env:NAME."""
    if isinstance(value, Mapping):
        return {inner: _value(f"{name}.{inner}", one) for inner, one in value.items()}
    if not isinstance(value, str) or not value.startswith(FROM_ENVIRONMENT):
        return value
    variable = value.removeprefix(FROM_ENVIRONMENT)
    if variable not in os.environ:
        raise FormatError(f"the storage option {name} is in the environment variable {variable!r}, which is not set")
    return os.environ[variable]


def store_config(scheme: str, options: Options) -> tuple[dict[str, Any], dict[str, Any]]:
    """(configuration of the store, options of its HTTP client) in the library's own names."""
    kind = "az" if scheme == "abfs" else scheme
    flat = dict(options)
    flat.update(flat.pop("client_kwargs", None) or {})
    client = dict(flat.pop("client_options", None) or {})
    config: dict[str, Any] = {}
    for name, value in flat.items():
        if name in _WEB_ONLY or value is None or (name == "bearer_token" and kind == "s3"):
            continue
        if name in ANONYMOUS:
            config["skip_signature"] = _truth(name, value)
        elif name == "token" and value == "anon":
            config["skip_signature"] = True
        elif name in PAYER and kind == "s3":
            config["request_payer"] = str(value).lower() == "requester" or _truth(name, value)
        elif name in PAYER and kind == "gs":
            client["default_headers"] = {**client.get("default_headers", {}), "x-goog-user-project": _project(value)}
        elif name == "allow_http":
            client["allow_http"] = _truth(name, value)
        elif name == "use_ssl":
            client["allow_http"] = not _truth(name, value)
        else:
            config[_RENAMED[kind].get(name, name)] = value
    endpoint = next((str(v) for k, v in config.items() if "endpoint" in k or k == "base_url"), "")
    if kind == "s3" and not endpoint:
        endpoint = next((os.environ[name] for name in ENDPOINTS if os.environ.get(name)), "")
    if kind == "s3" and os.environ.get(PAYER_VARIABLE, "").lower() in ("requester", "true"):
        config.setdefault("request_payer", True)
    if scheme_of(endpoint) == "http":
        client.setdefault("allow_http", True)
    return config, client


def _project(value: Any) -> str:
    """The Google project that pays; there is no default for it."""
    if not isinstance(value, str) or value.strip().lower() in _TRUTHS:
        raise FormatError("the storage option requester_pays is, for gs:// URLs, the project to be billed")
    return value


def _truth(name: str, value: Any) -> bool:
    """Yes or no, also as text: options come from command lines and environments too."""
    stated = _TRUTHS.get(str(value).strip().lower())
    if stated is None:
        raise FormatError(f"the storage option {name} is true or false, nothing else")
    return stated


def nobody(scheme: str, config: Mapping[str, Any]) -> bool:
    """Whether no credentials can be found, so that only public objects can be read.

    The library would then ask the machine's metadata service for them, which outside its cloud takes a minute to fail.
    """
    if scheme not in KEYS or "skip_signature" in config:
        return False
    if any(key in config for key in (PROVIDER, *KEYS[scheme])) or any(name in os.environ for name in VARIABLES[scheme]):
        return False
    if scheme == "gs" and (Path.home() / ".config/gcloud/application_default_credentials.json").exists():
        return False
    try:
        return _MACHINE[scheme] not in VENDOR.read_text()
    except OSError:
        return False  # not known: the library decides


def wants_region(config: Mapping[str, Any]) -> bool:
    """Whether no setting names the AWS region of a bucket."""
    known = ("region", "aws_region", "default_region", "aws_default_region")
    return not (
        any(key in config for key in known)
        or any("endpoint" in key for key in config)
        or any(name in os.environ for name in ("AWS_REGION", "AWS_DEFAULT_REGION", *ENDPOINTS))
    )
