"""``wsgi.file_wrapper``: files as response bodies."""

import io

from . import _sendoff
from .known import is_named


class FileWrapper:
    """Iterates over a file, as PEP 3333 requires. The server tries to send the file itself before it iterates."""

    def __init__(self, filelike, block_size=8192):
        self.filelike = filelike
        self.block_size = block_size
        if hasattr(filelike, "close"):
            self.close = filelike.close

    def __iter__(self):
        return self

    def __next__(self):
        data = self.filelike.read(self.block_size)
        if data:
            return data
        raise StopIteration


def closes_at_once(close):
    """True if close() only closes a file, and runs no code of the application."""
    return type(getattr(close, "__self__", None)) in (io.BufferedReader, io.FileIO)


def plain_part(body):
    """The descriptor of a regular file, the offset and the number of the bytes that the body would give.

    None, if it might give anything but bytes of that file. Beside our own wrapper, it knows two classes that answer
    requests with a ``Range`` field: Werkzeug's iterator around the wrapper, and WhiteNoise's file inside it.
    """
    skipped, most = 0, None
    try:
        if is_named(body, "werkzeug.wsgi", "_RangeWrapper"):
            if body.seekable or body.read_length:
                return None
            skipped, most, body = body.start_byte, body.byte_range, body.iterable
        if type(body) is not FileWrapper:
            return None
        filelike = body.filelike
        if is_named(filelike, "whitenoise.responders", "SlicedFile"):
            if most is not None:
                return None
            most, filelike = filelike.remaining, filelike.fileobj
    except AttributeError:
        return None  # Another version of the class.
    plain = plain_file(filelike)
    if plain is None:
        return None
    fd, position, left = plain
    left -= skipped
    if most is not None:
        left = min(left, most)
    return (fd, position + skipped, left) if left > 0 else None


def plain_file(filelike):
    """The descriptor of a regular file, the position, and the number of bytes that reading would give.

    None, if ``read()`` might give anything but the bytes of that file. Objects that pass ``read`` through, such as
    Django's ``File``, count as what they pass it to; ``fileno()`` alone says nothing (that of a ``GzipFile`` leads to
    the compressed file).
    """
    file = getattr(getattr(filelike, "read", None), "__self__", None)
    raw = file.raw if type(file) is io.BufferedReader else file
    if type(raw) is not io.FileIO:
        return None
    try:
        fd = raw.fileno()
        size = _sendoff.regular_size(fd)
        if size is None or not raw.readable():
            return None
        position = file.tell()
    except (OSError, ValueError):
        return None
    left = size - position
    return (fd, position, left) if left > 0 else None
