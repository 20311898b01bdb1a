"""The Icechunk repository that is written to: opened or created with our storage options, completed, removed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import icechunk
from icechunk.storage import azure_store

from periplus.errors import FormatError
from periplus.fetch.errors import mapped
from periplus.fetch.local.atomic import make_folder
from periplus.policy import WEB, canonical, is_local, scheme_of

if TYPE_CHECKING:
    from periplus.fetch import Fetch

INITIAL = "1CECHNKREP0F1RSTCMT0"
"""The empty snapshot that every repository begins with."""
FOLDERS = ("chunks/", "manifests/", "snapshots/", "transactions/")
BRANCH = "refs/branch.main/ref.json"
CREDENTIALS = {
    "s3": {name: name for name in ("access_key_id", "secret_access_key", "session_token")},
    "gs": {
        "service_account": "service_account_file",
        "service_account_path": "service_account_file",
        "service_account_key": "service_account_key",
        "application_credentials": "application_credentials",
        "bearer_token": "bearer_token",
    },
    "az": {
        "account_key": "access_key",
        "access_key": "access_key",
        "sas_key": "sas_token",
        "bearer_token": "bearer_token",
    },
}
"""Names that Icechunk has for our storage options, by scheme."""


def open_repository(target: str, prefixes: list[str], split: dict[Any, Any], fetch: Fetch) -> tuple[Any, bool]:
    """The repository at a URL with containers for the prefixes, and whether it was created for this."""
    if is_local(target):
        with mapped(target):
            make_folder(canonical(target))  # Icechunk panics where it cannot
    storage = storage_of(target, fetch)
    containers = {prefix: container_of(prefix, fetch) for prefix in prefixes}
    created = not icechunk.Repository.exists(storage) and not fetch.run(_completed(target, fetch))
    if created:
        # Without a configuration: an interrupted creation then leaves nothing but the initial snapshot.
        icechunk.Repository.create(storage)
    config = icechunk.Repository.fetch_config(storage) or icechunk.RepositoryConfig.default()
    for container, _ in containers.values():
        config.set_virtual_chunk_container(container)
    if split:
        config.manifest = icechunk.ManifestConfig(splitting=icechunk.ManifestSplittingConfig.from_dict(split))
    keys = icechunk.containers_credentials({prefix: key for prefix, (_, key) in containers.items()})
    repository = icechunk.Repository.open(storage, config=config, authorize_virtual_chunk_access=keys)
    repository.save_config()
    return repository, created


@contextmanager
def on_branch(repository: Any, branch: str) -> Iterator[Any]:
    """A session that writes to a branch; one that is missing begins at the head of main.

    It is deleted where the write fails, unless another writer has committed to it.
    """
    start = None
    if branch not in repository.list_branches():
        start = repository.lookup_branch("main")
        repository.create_branch(branch, start)
    try:
        yield repository.writable_session(branch)
    except BaseException:
        if start is not None:
            with suppress(icechunk.IcechunkError):  # what failed before is what to report
                if repository.lookup_branch(branch) == start:
                    repository.delete_branch(branch)
        raise


async def _completed(target: str, fetch: Fetch) -> bool:
    """Whether a creation (or a removal) that was interrupted was found and completed: its branch was missing.

    Icechunk creates the initial snapshot first and then the branch, and creates nothing where there is a file already.
    Nothing is deleted: another writer may be about to create the branch, and only one of the two can.
    """
    folder = target.rstrip("/") + "/"
    names = [name async for name in _names(folder, fetch)]
    if f"snapshots/{INITIAL}" not in names or not all(name.startswith((*FOLDERS, "config.yaml")) for name in names):
        return False
    await fetch.write(folder + BRANCH, f'{{"snapshot":"{INITIAL}"}}'.encode(), create=True)
    return True


async def _names(folder: str, fetch: Fetch) -> AsyncIterator[str]:
    """Files of a repository, relative to it; those that were being written locally are skipped."""
    start = len(canonical(folder).rstrip("/")) + 1
    async for source in fetch.find(folder):
        name = canonical(source.url)[start:]
        if "#" not in name:
            yield name


def remove_repository(repository: Any, target: str, fetch: Fetch) -> None:
    """Remove a repository whose first write failed, unless another writer has committed to it.

    The branch goes first and the initial snapshot last: an interrupted removal can be written to again.
    """
    tips = (next(iter(repository.ancestry(branch=name))) for name in repository.list_branches())
    if any(tip.parent_id is not None for tip in tips):
        return

    async def emptied() -> None:
        found = [source.url async for source in fetch.find(target.rstrip("/") + "/")]
        refs = [url for url in found if url.endswith(BRANCH)]
        first = [url for url in found if url.endswith(f"snapshots/{INITIAL}")]
        for some in (refs, sorted({*found} - {*refs, *first}), first):
            await asyncio.gather(*(fetch.delete(url) for url in some))

    fetch.run(emptied())


# --- storage --------------------------------------------------------------------------------------------------------


def storage_of(url: str, fetch: Fetch) -> Any:
    """The storage of a repository at a URL."""
    plain = canonical(url).rstrip("/")
    if is_local(plain):
        return icechunk.local_filesystem_storage(plain)
    scheme, _, rest = plain.partition("://")
    bucket, _, prefix = rest.partition("/")
    settings = fetch.settings(plain)
    if scheme == "s3":
        return icechunk.s3_storage(bucket=bucket, prefix=prefix, **_s3(settings), **_credentials("s3", settings))
    if scheme == "gs":
        keys = _credentials("gs", settings)
        return icechunk.gcs_storage(bucket=bucket, prefix=prefix, **keys, config=_gcs(settings))
    if scheme in ("az", "abfs"):
        keys = _credentials("az", settings)
        return icechunk.azure_storage(account=_account(settings, url), container=bucket, prefix=prefix, **keys)
    raise FormatError("an Icechunk repository must be in a folder or in a bucket of S3, GCS or Azure", url=url)


def container_of(prefix: str, fetch: Fetch) -> tuple[Any, Any]:
    """The container of virtual chunks under a prefix, and the credentials it is read with."""
    scheme = scheme_of(prefix)
    store: Any
    keys: Any = None
    if scheme == "file":
        store = icechunk.local_filesystem_store(prefix.removeprefix("file://"))
    elif scheme in WEB:
        store = icechunk.http_store()
    elif scheme == "s3":
        settings = fetch.settings(prefix)
        anonymous = bool(settings.get("skip_signature"))
        store = icechunk.s3_store(**_s3(settings), s3_compatible="endpoint" in settings, anonymous=anonymous)
        keys = icechunk.s3_credentials(**_credentials("s3", settings))
    elif scheme == "gs":
        settings = fetch.settings(prefix)
        store, keys = icechunk.gcs_store(_gcs(settings)), icechunk.gcs_credentials(**_credentials("gs", settings))
    elif scheme in ("az", "abfs"):
        settings = fetch.settings(prefix)
        store = azure_store(account=_account(settings, prefix))
        keys = icechunk.azure_credentials(**_credentials("az", settings))
    else:
        raise FormatError(f"Icechunk cannot refer to {scheme or 'these'} URLs", url=prefix)
    return icechunk.VirtualChunkContainer(prefix, store), keys


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


def _gcs(settings: Mapping[str, Any]) -> dict[str, str] | None:
    return {"base_url": str(settings["base_url"])} if "base_url" in settings else None


def _credentials(scheme: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    if settings.get("skip_signature") and scheme != "az":
        return {"anonymous": True}
    found = {theirs: settings[ours] for ours, theirs in CREDENTIALS[scheme].items() if settings.get(ours)}
    return {name: str(value) if name.endswith("file") else value for name, value in found.items()} or {"from_env": True}


def _account(settings: Mapping[str, Any], url: str) -> str:
    account = settings.get("account_name")
    if not account:
        raise FormatError("name the account: storage_options={'account_name': ...}", url=url)
    return str(account)
