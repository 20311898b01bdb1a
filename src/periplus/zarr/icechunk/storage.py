"""Storage of an Icechunk repository and its virtual chunks, from our URLs and storage options."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import icechunk
from icechunk.storage import azure_store

from periplus.errors import FormatError
from periplus.policy import WEB, canonical, is_local, scheme_of

if TYPE_CHECKING:
    from periplus.fetch import Fetch

STATIC = ("access_key_id", "secret_access_key", "session_token")


def storage_of(url: str, fetch: Fetch) -> Any:
    """The storage of a repository at a URL."""
    plain = canonical(url).rstrip("/")
    if is_local(plain):
        return icechunk.local_filesystem_storage(plain)
    scheme, bucket, prefix = _split(plain)
    settings = fetch.settings(plain)
    if scheme == "s3":
        return icechunk.s3_storage(bucket=bucket, prefix=prefix, **_s3(settings), **_s3_keys(settings))
    if scheme == "gs":
        return icechunk.gcs_storage(
            bucket=bucket, prefix=prefix, **_gcs_keys(settings), config=_texts(settings, "base_url")
        )
    if scheme in ("az", "abfs"):
        keys = _azure_keys(settings)
        return icechunk.azure_storage(account=_account(settings, url), container=bucket, prefix=prefix, **keys)
    raise FormatError("an Icechunk repository must be in a folder or in a bucket of S3, GCS or Azure", url=url)


def container_of(prefix: str, fetch: Fetch) -> tuple[Any, Any]:
    """The container of virtual chunks under a prefix, and the credentials it is read with."""
    scheme = scheme_of(prefix)
    if scheme == "file":
        return icechunk.VirtualChunkContainer(
            prefix, icechunk.local_filesystem_store(prefix.removeprefix("file://"))
        ), None
    if scheme in WEB:
        return icechunk.VirtualChunkContainer(prefix, icechunk.http_store()), None
    settings = fetch.settings(prefix)
    store: Any
    if scheme == "s3":
        store = icechunk.s3_store(**_s3(settings), s3_compatible="endpoint" in settings, anonymous=_nobody(settings))
        return icechunk.VirtualChunkContainer(prefix, store), icechunk.s3_credentials(**_s3_keys(settings))
    if scheme == "gs":
        store = icechunk.gcs_store(_texts(settings, "base_url"))
        return icechunk.VirtualChunkContainer(prefix, store), icechunk.gcs_credentials(**_gcs_keys(settings))
    if scheme in ("az", "abfs"):
        store = azure_store(account=_account(settings, prefix))
        return icechunk.VirtualChunkContainer(prefix, store), icechunk.azure_credentials(**_azure_keys(settings))
    raise FormatError(f"Icechunk cannot refer to {scheme or 'these'} URLs", url=prefix)


def _split(plain: str) -> tuple[str, str, str]:
    scheme, _, rest = plain.partition("://")
    bucket, _, prefix = rest.partition("/")
    return scheme, bucket, prefix


def _nobody(settings: Mapping[str, Any]) -> bool:
    return bool(settings.get("skip_signature"))


def _s3(settings: Mapping[str, Any]) -> dict[str, Any]:
    endpoint = settings.get("endpoint")
    options = {
        "region": settings.get("region"),
        "endpoint_url": endpoint,
        "allow_http": bool(settings.get("allow_http")),
        "requester_pays": bool(settings.get("request_payer")),
        # S3-compatible servers have buckets in the path, AWS in the host name.
        "force_path_style": endpoint is not None and not settings.get("virtual_hosted_style_request"),
    }
    return {name: value for name, value in options.items() if value not in (None, False)}


def _s3_keys(settings: Mapping[str, Any]) -> dict[str, Any]:
    if _nobody(settings):
        return {"anonymous": True}
    keys = {name: settings[name] for name in STATIC if settings.get(name)}
    return keys or {"from_env": True}


def _gcs_keys(settings: Mapping[str, Any]) -> dict[str, Any]:
    if _nobody(settings):
        return {"anonymous": True}
    names = {
        "service_account": "service_account_file",
        "service_account_path": "service_account_file",
        "service_account_key": "service_account_key",
        "application_credentials": "application_credentials",
        "bearer_token": "bearer_token",
    }
    keys = {names[name]: settings[name] for name in names if settings.get(name)}
    return {name: str(Path(value)) if name.endswith("file") else value for name, value in keys.items()} or {
        "from_env": True
    }


def _azure_keys(settings: Mapping[str, Any]) -> dict[str, Any]:
    names = {
        "account_key": "access_key",
        "access_key": "access_key",
        "sas_key": "sas_token",
        "bearer_token": "bearer_token",
    }
    return {names[name]: settings[name] for name in names if settings.get(name)} or {"from_env": True}


def _account(settings: Mapping[str, Any], url: str) -> str:
    account = settings.get("account_name")
    if not account:
        raise FormatError("name the account: storage_options={'account_name': ...}", url=url)
    return str(account)


def _texts(settings: Mapping[str, Any], *names: str) -> dict[str, str] | None:
    return {name: str(settings[name]) for name in names if name in settings} or None
