"""Detects changes of the application's source files."""

import os
import sys
import threading

INTERVAL = 0.5


def _files():
    """The source files of all modules, with the times of their changes."""
    found = {}
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str):
            continue
        try:
            found[path] = os.stat(path).st_mtime_ns
        except OSError:
            continue  # In an archive, or just being replaced.
    return found


class Watcher(threading.Thread):
    """Calls ``changed`` with the path of a changed file, once for each change."""

    def __init__(self, changed):
        super().__init__(name="sendoff-reload", daemon=True)
        self._changed = changed
        self._seen = _files()

    def run(self):
        pause = threading.Event()
        while not pause.wait(INTERVAL):
            now = _files()
            changed = [path for path, time in now.items() if self._seen.get(path, time) != time]
            self._seen = now
            if changed:
                self._changed(changed[0])
