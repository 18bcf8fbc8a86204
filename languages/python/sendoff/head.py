"""The response head: from what the application says to the header block that FastCGI wants (RFC 3875, section 6)."""

from . import _sendoff


class Head:
    """A checked response head. Fields between web server and client, and those that mean something to it, are left out."""

    __slots__ = ("code", "length", "lines")

    def __init__(self, status, headers):
        # The application's own Content-Length, and the block without the empty line at its end.
        self.length, self.lines = _sendoff.header_lines(status, headers)
        self.code = status[:3]

    def may_have_body(self):
        """Whether the status allows one."""
        return self.code[0] != "1" and self.code not in ("204", "304")

    def announced(self):
        """The application's Content-Length as a number; None without a valid one."""
        length = self.length
        return int(length) if length is not None and length.isascii() and length.isdigit() else None

    def block(self, length=None):
        """The header block; ``length`` is added where the application has not set one."""
        if length is not None and self.length is None and self.may_have_body():
            return b"%bContent-Length: %d\r\n\r\n" % (self.lines, length)
        return self.lines + b"\r\n"
