"""A cache of Django in the memory that the processes of ``sendoff-python`` share.

``{% cache %}`` keeps its fragments in the cache ``template_fragments``::

    CACHES = {"default": ..., "template_fragments": {"BACKEND": "sendoff.django.FragmentCache"}}

Purges of the site's pages by tags concern the values: their tags are the keys, as Django makes them, and ``TAGS`` in
``OPTIONS``. Outside of ``sendoff-python`` nothing is kept."""

import pickle

from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache

from . import fragments


class FragmentCache(BaseCache):
    """The longest lifetime counts for values without one."""

    def __init__(self, _location, params):
        super().__init__(params)
        self._tags = tuple(params.get("OPTIONS", {}).get("TAGS", ()))

    def _name(self, key, version):
        key = self.make_key(key, version=version)
        self.validate_key(key)
        return key

    def _seconds(self, timeout):
        seconds = self.default_timeout if timeout is DEFAULT_TIMEOUT else timeout
        return fragments.LONGEST if seconds is None else seconds

    def get(self, key, default=None, version=None):
        kept = fragments.fetch(self._name(key, version))
        return default if kept is None else pickle.loads(kept)

    def set(self, key, value, timeout=DEFAULT_TIMEOUT, version=None):
        name, seconds = self._name(key, version), self._seconds(timeout)
        data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        # A value that does not fit must not leave an older one behind.
        if not fragments.store(name, seconds, data, self._tags):
            fragments.delete(name)

    def add(self, key, value, timeout=DEFAULT_TIMEOUT, version=None):
        if fragments.fetch(self._name(key, version)) is not None:
            return False
        self.set(key, value, timeout, version)
        return True

    def touch(self, key, timeout=DEFAULT_TIMEOUT, version=None):
        kept = fragments.fetch(self._name(key, version))
        if kept is None:
            return False
        self.set(key, pickle.loads(kept), timeout, version)
        return True

    def delete(self, key, version=None):
        name = self._name(key, version)
        is_there = fragments.fetch(name) is not None
        fragments.delete(name)
        return is_there

    def get_or_set(self, key, default, timeout=DEFAULT_TIMEOUT, version=None):
        """One process calls ``default``, others wait."""
        made = []

        def make():
            made.append(default() if callable(default) else default)
            return pickle.dumps(made[0], pickle.HIGHEST_PROTOCOL)

        seconds = self._seconds(timeout)
        kept = fragments.fragment(self._name(key, version), max(seconds, 0), make, self._tags)
        return made[0] if made else pickle.loads(kept)

    def clear(self):
        """Clears the other caches with this backend, too."""
        fragments.purge()
