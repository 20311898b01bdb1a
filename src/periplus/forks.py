"""What a forked child replaces: it inherits locks, loops and connections, but none of the threads that serve them."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import ref

_owners: dict[int, tuple[ref[Any], dict[str, Callable[[], Any]]]] = {}
"""By identity: not everything that has a lock can be hashed."""

quiet = threading.RLock()
"""Held around calls into libraries that take locks of their own for the whole process: no fork happens meanwhile."""


def renewed(owner: object, **attributes: Callable[[], Any]) -> None:
    """Set attributes to what these factories make, now and again in every forked child.

    For locks, which a thread of the parent may hold for good, and for what needs threads. A factory must not refer to
    its owner.
    """
    for name, make in attributes.items():
        setattr(owner, name, make())
    key = id(owner)
    _owners[key] = ref(owner, lambda _: _owners.pop(key, None)), attributes


def nothing() -> None:
    """The factory of what is made on first use."""


class _Process:
    token: object


_here = _Process()
renewed(_here, token=object)


def process() -> object:
    """An object that identifies this process: every forked child has another one."""
    return _here.token


def _in_child() -> None:
    for reference, attributes in list(_owners.values()):
        owner = reference()
        for name, make in attributes.items() if owner is not None else ():
            _abandon(getattr(owner, name))
            setattr(owner, name, make())


def _abandon(thing: object) -> None:
    """Never let it be destroyed: that would wait for threads, or close connections that the parent uses."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=quiet.acquire, after_in_parent=quiet.release, after_in_child=quiet.release)
    os.register_at_fork(after_in_child=_in_child)


if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property(functools.cached_property):  # noqa: N801 - as in the standard library
        """Without the lock that Python 3.11 shares between all instances, and that a child may inherit locked."""

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value


__all__ = ["cached_property", "nothing", "process", "quiet", "renewed"]
