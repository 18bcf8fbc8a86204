"""Fragments: parts of pages that one process makes and all processes of the application send.

A fragment is kept for a number of seconds. The first process that asks for it makes it; others wait meanwhile, or get the
old one. Outside of ``sendoff-python`` nothing is kept: fragments are made each time."""

import asyncio
import threading
import time

from . import _sendoff

# Longest wait for another process, in seconds.
PATIENCE = 5.0

# The longest lifetime in seconds: ten years.
LONGEST = 10 * 365 * 86400


class Fragment(bytes):
    """The bytes of a kept fragment. ``place`` is its place in the memory of fragments, which no other one ever has."""


class _Counts(threading.local):
    """The fragments of a thread's current request."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.kept = self.made = 0
        self.seconds = 0.0


_counts = _Counts()


def fragment(key, ttl, make, tags=()):
    """The bytes of a fragment. If it is not kept, ``make()`` returns them, and they are kept for ``ttl`` seconds.

    ``tags`` are names by which ``purge()`` finds it; its key is one, too. Whatever the fragment depends on belongs to its key."""
    name = _bytes(key)
    ttl = min(int(ttl), LONGEST)
    asked = _sendoff.fragment_ask(name, _tags(tags), _patience()) if ttl > 0 else None
    if isinstance(asked, tuple):
        _counts.kept += 1
        kept = Fragment(asked[0])
        kept.place = asked[1]
        return kept
    begun = time.monotonic()
    made = None
    try:
        made = make()
        if not isinstance(made, bytes):
            kind = type(made).__name__
            made = None
            raise TypeError(f"make() must return bytes, not {kind}")
        return made
    finally:
        _counts.made += 1
        _counts.seconds += time.monotonic() - begun
        if asked is not None:
            _sendoff.fragment_end(asked, max(ttl, 0), made)


def fetch(key):
    """The kept fragment; None if there is none."""
    kept = _sendoff.fragment_fetch(_bytes(key))
    if kept is not None:
        _counts.kept += 1
    return kept


def purges():
    """A number that each purge changes, for ``store()``."""
    return _sendoff.fragment_purges()


def store(key, ttl, data, tags=(), since=None):
    """Keeps a fragment. False: it does not fit, or something was purged after ``since``, a result of ``purges()``."""
    ttl = min(int(ttl), LONGEST)
    if ttl <= 0:
        return False
    since = _sendoff.fragment_purges() if since is None else since
    return _sendoff.fragment_store(_bytes(key), _tags(tags), ttl, data, since)


def delete(key):
    """Purges one fragment."""
    _sendoff.fragment_purge(_bytes(key))


def purge(tags=None):
    """Purges the fragments with one of these tags; without an argument all fragments."""
    if tags is None:
        _sendoff.fragment_purge(None)
    for tag in _tags(tags or ()):
        _sendoff.fragment_purge(tag)


def begin_request():
    """Begins to count the fragments of the thread's next request."""
    _counts.reset()


def note():
    """A sentence about the fragments of the request; None: there are none."""
    kept, made = _counts.kept, _counts.made
    if kept + made == 0:
        return None
    return f"made of {kept + made} fragments, {kept} kept, {made} made in {_counts.seconds * 1000:.0f} ms"


def _patience():
    """Milliseconds. An event loop must not wait for another process."""
    return 0 if asyncio._get_running_loop() is not None else int(PATIENCE * 1000)


def _bytes(text):
    return text if isinstance(text, bytes) else str(text).encode("utf-8", "surrogatepass")


def _tags(tags):
    if isinstance(tags, (str, bytes)):
        raise TypeError("tags are a list or tuple of names")
    return tuple(_bytes(tag) for tag in tags)
