"""The Icechunk repository that is written to: opened, created, or completed after an interrupted creation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import icechunk

from periplus.policy import canonical
from periplus.zarr.icechunk.storage import container_of, storage_of

if TYPE_CHECKING:
    from periplus.fetch import Fetch

INITIAL = "1CECHNKREP0F1RSTCMT0"
"""The empty snapshot that every repository begins with."""
FOLDERS = ("chunks/", "manifests/", "snapshots/", "transactions/")
BRANCH = "refs/branch.main/ref.json"


def open_repository(target: str, prefixes: list[str], split: dict[Any, Any], fetch: Fetch) -> tuple[Any, bool]:
    """The repository at a URL with containers for the prefixes, and whether it was created for this."""
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
