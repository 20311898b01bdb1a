"""What is in a set of references: folders, sizes and keys, listed without asking any target."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from periplus.zarr.fsspec.mapping import RecordMapping
from periplus.zarr.kerchunk.references import ranges


class ReferenceListing:
    """The listing half of the file system; `references`, `fss` and the rest are fsspec's."""

    references: Any
    fss: Any
    _folders: dict[str, list[str]] | None = None

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        """Keys have no leading slash; zarr-python requests some with one."""
        stripped = super()._strip_protocol(path)  # type: ignore[misc]
        if isinstance(stripped, list):
            return [one.lstrip("/") for one in stripped]
        return stripped.lstrip("/")

    def _known(self) -> Iterable[str]:
        """Keys, but for those of chunks in record files."""
        return self.references.metadata_keys() if isinstance(self.references, RecordMapping) else self.references

    def _tree(self) -> dict[str, list[str]]:
        """Children of every folder, chunks in record files left out."""
        if self._folders is None:
            tree: dict[str, dict[str, None]] = {"": {}}
            arrays = self.references.arrays() if isinstance(self.references, RecordMapping) else []
            for key in (*self._known(), *(f"{path}/" for path in arrays)):
                child = key.rstrip("/")
                if key.endswith("/"):
                    tree.setdefault(child, {})
                while child:
                    folder = child.rpartition("/")[0]
                    known = child in tree.setdefault(folder, {})
                    tree[folder][child] = None
                    if known:
                        break
                    child = folder
            self._folders = {folder: list(children) for folder, children in tree.items()}
        return self._folders

    def invalidate_cache(self, path: str | None = None) -> None:
        """Forget what was listed."""
        self._folders = None
        super().invalidate_cache(path)  # type: ignore[misc]

    def _children(self, path: str) -> list[str]:
        tree = self._tree()
        children = tree[path]
        if isinstance(self.references, RecordMapping) and path in self.references.arrays():
            children = [*children, *self.references.chunk_keys(path)]
        return children

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """Children of a folder, or the key itself; with a leading slash where the caller writes one."""
        # zarr-python strips the requested path from names, and then requests `/0`.
        lead = "/" if path.startswith("/") else ""
        path = self._strip_protocol(path).rstrip("/")
        if path not in self._tree():
            if path not in self.references:
                raise FileNotFoundError(path)
            children = [path]
        else:
            children = self._children(path)
        if detail:
            return [{**self._details(child), "name": lead + child} for child in children]
        return [lead + child for child in children]

    async def _ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        return self.ls(path, detail, **kwargs)

    def _details(self, key: str) -> dict[str, Any]:
        if key in self._tree():
            return {"name": key, "type": "directory", "size": 0}
        return {"name": key, "type": "file", "size": self._size(key)}

    def _size(self, key: str) -> int | None:
        """Bytes of a key; None where it is a whole file, whose size only its store has."""
        found = self.references[key]
        if isinstance(found, list):
            return None if len(found) == 1 else sum(length for _, length in ranges(found))
        return len(found)

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Name, type and size; that of a whole file is requested from its store."""
        path = self._strip_protocol(path).rstrip("/")
        if path in self._tree():
            return {"name": path, "type": "directory", "size": 0}
        if path not in self.references:
            raise FileNotFoundError(path)
        details = self._details(path)
        if details["size"] is None:
            url, protocol = self._target(path)
            details["size"] = self.fss[protocol].size(url)
        return details

    async def _info(self, path: str, **_: Any) -> dict[str, Any]:
        path = self._strip_protocol(path).rstrip("/")
        if path in self._tree() or path not in self.references or self._size(path) is not None:
            return self.info(path)
        url, protocol = self._target(path)
        return {"name": path, "type": "file", "size": await self.fss[protocol]._size(url)}

    def _target(self, path: str) -> tuple[str, str | None]:
        url, _, _ = self._cat_common(path)  # type: ignore[attr-defined]
        return url, url.partition("://")[0] if "://" in url else None

    def isdir(self, path: str) -> bool:
        return self._strip_protocol(path).rstrip("/") in self._tree()

    def isfile(self, path: str) -> bool:
        path = self._strip_protocol(path)
        return path not in self._tree() and path in self.references

    def exists(self, path: str, **_: Any) -> bool:
        return self.isdir(path) or self.isfile(path)

    async def _isdir(self, path: str) -> bool:
        return self.isdir(path)

    async def _isfile(self, path: str) -> bool:
        return self.isfile(path)

    async def _exists(self, path: str, **_: Any) -> bool:
        return self.exists(path)

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **_: Any
    ) -> Any:
        """Every key below a folder, sorted."""
        top = self._strip_protocol(path).rstrip("/")
        found: list[str] = [top] if self.isfile(top) else []
        waiting = [(top, 1)] if self.isdir(top) else []
        while waiting:
            folder, depth = waiting.pop()
            for child in self._children(folder):
                inner = child in self._tree()
                if inner and (maxdepth is None or depth < maxdepth):
                    waiting.append((child, depth + 1))
                if not inner or withdirs:
                    found.append(child)
        found.sort()
        return {key: self._details(key) for key in found} if detail else found

    async def _find(self, path: str, maxdepth: int | None = None, withdirs: bool = False, **kwargs: Any) -> Any:
        return self.find(path, maxdepth, withdirs, **kwargs)

    def pipe_file(self, path: str, value: Any, **_: Any) -> None:
        """Keep bytes or a reference under a key, in memory."""
        self.references[self._strip_protocol(path)] = value
        self.invalidate_cache()

    async def _pipe_file(self, path: str, data: Any, mode: str = "overwrite", **_: Any) -> None:
        if mode == "create" and self.exists(path):
            raise FileExistsError(path)
        self.pipe_file(path, data)

    async def _rm_file(self, path: str, **_: Any) -> None:
        self.references.pop(self._strip_protocol(path), None)
        self.invalidate_cache()
