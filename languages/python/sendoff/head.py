"""The response head: converts an application's status and fields to the header block of FastCGI (RFC 3875, section 6)."""

from . import _sendoff


class Head:
    """A checked response head. Hop-by-hop fields and fields with a meaning for the web server are left out."""

    __slots__ = ("code", "length", "lines")

    def __init__(self, status, headers):
        # The application's own Content-Length, and the block without the empty line at its end.
        self.length, self.lines = _sendoff.header_lines(status, headers)
        self.code = status[:3]

    def may_have_body(self):
        """True if the status allows a body."""
        return self.code[0] != "1" and self.code not in ("204", "304")

    def announced(self):
        """The application's Content-Length as a number; None if there is no valid one."""
        length = self.length
        return int(length) if length is not None and length.isascii() and length.isdigit() else None

    def block(self, length=None):
        """The header block; ``length`` is added where the application has not set one."""
        if length is not None and self.length is None and self.may_have_body():
            return b"%bContent-Length: %d\r\n\r\n" % (self.lines, length)
        return self.lines + b"\r\n"
