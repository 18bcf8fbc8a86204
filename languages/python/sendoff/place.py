"""The place in an application that makes its response, for ``sendoff explain``."""

import os
import sys
import sysconfig

_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
_LIBRARIES = tuple(
    {os.path.join(path, "") for name, path in sysconfig.get_paths().items() if name.endswith(("lib", "stdlib"))}
)
_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


class Places:
    """Notes the last line of the application that its thread has run: libraries build the response from what that
    line returns or calls. It follows the calls of one thread, so requests that are not explained cost nothing."""

    def __init__(self):
        self.last = None
        self._before = None

    def __enter__(self):
        self._before = sys.gettrace()
        sys.settrace(self._call)
        return self

    def __exit__(self, *_):
        sys.settrace(self._before)

    def _call(self, frame, _event, _argument):
        return None if _is_library(frame.f_code.co_filename) else self._line

    def _line(self, frame, event, _argument):
        if event == "line":
            self.last = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        return self._line


def _is_library(file):
    if file.startswith(_OWN) or file.startswith("<"):
        return True
    return file.startswith(_LIBRARIES) or any(part in file for part in _PACKAGES)
