"""``wsgi.input`` and ``wsgi.errors``; the bytes that an application passes."""

import io
import sys

# Number of body bytes to read ahead for readline().
READ_AHEAD = 64 * 1024

# An unflushed entry of `wsgi.errors` is written when it reaches this length, in characters.
ENTRY_MAX = 8 * 1024


def octets(value):
    """The bytes of an object that has some. `bytes()` makes zeros of a number, and bytes of a list of numbers."""
    return value if type(value) is bytes else bytes(memoryview(value))


class _Body(io.RawIOBase):
    """A request body as it arrives, up to its length."""

    def __init__(self, thread, length):
        self._thread = thread
        self._left = length

    def readable(self):
        return True

    def readinto(self, buffer):
        if self._thread is None:
            raise ValueError("the request has ended")
        wanted = len(buffer) if self._left is None else min(len(buffer), self._left)
        data = self._thread.read(wanted) if wanted else b""
        if self._left is not None:
            if wanted and not data:
                raise ConnectionResetError("the request body is shorter than its Content-Length")
            self._left -= len(data)
        buffer[: len(data)] = data
        return len(data)

    def end(self):
        self._thread = None


class Input:
    """The request body of one request, as a buffered stream."""

    __slots__ = ("_body", "stream")

    def __init__(self, thread, length):
        """``length`` is None if the web server has not announced it: the body then ends where the server ends it."""
        if length == 0:
            self._body = None
            self.stream = io.BytesIO()
        else:
            self._body = _Body(thread, length)
            self.stream = io.BufferedReader(self._body, READ_AHEAD)

    def end(self):
        """Ends the request. The application may still have the stream."""
        if self._body is not None:
            self._body.end()


class Errors:
    """A text stream whose contents go to the web server's log, as entries about the request."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, thread):
        self._thread = thread
        self._parts = []
        self._length = 0

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError(f"wsgi.errors takes str, not {type(text).__name__}")
        self._parts.append(text)
        self._length += len(text)
        if self._length > ENTRY_MAX:
            self.flush()
        return len(text)

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def flush(self):
        entry = "".join(self._parts)
        self._parts.clear()
        self._length = 0
        if not entry:
            return
        thread = self._thread
        if thread is not None:
            try:
                thread.log(entry.encode(self.encoding, self.errors))
                return
            except (RuntimeError, ValueError):
                pass  # Another thread of the application writes while the request is at work elsewhere.
        sys.stderr.write(entry)

    def end(self):
        """Ends the request. The application may still have the stream."""
        if self._parts:
            self.flush()
        self._thread = None
