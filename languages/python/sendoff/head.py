"""The response head: from what the application says to the header block that FastCGI wants (RFC 3875, section 6)."""

import re

# RFC 2616, section 13.5.1. The web server speaks to the client, so these are its own.
HOP_BY_HOP = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "trailers",
        "transfer-encoding",
        "upgrade",
    )
)

# Fields with a meaning for the server that reads the header block, which the application cannot have meant.
NOT_THE_APPLICATIONS = frozenset(("status", "x-sendoff"))

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]").search
_STATUS = re.compile(r"[1-9][0-9]{2}(?: [^\x00-\x08\x0a-\x1f\x7f]*)?").fullmatch

# What has been checked: field names, with their lower-case form, and status lines. Bounded, because applications may invent
# some.
_known_names = {}
_known_statuses = set()
_KNOWN_MAX = 1024


def _lower(name):
    lower = _known_names.get(name)
    if lower is None:
        if not isinstance(name, str):
            raise TypeError(f"a header name must be str, not {type(name).__name__}")
        if _NAME(name) is None:
            raise ValueError(f"{name!r} is no header name")
        lower = name.lower()
        if len(_known_names) < _KNOWN_MAX:
            _known_names[name] = lower
    return lower


def _check_status(status):
    if not isinstance(status, str):
        raise TypeError(f"the status must be str, not {type(status).__name__}")
    if _STATUS(status) is None:
        raise ValueError(f"{status!r} is no status: three digits, a space, a reason")
    if len(_known_statuses) < _KNOWN_MAX:
        _known_statuses.add(status)


class Head:
    """A checked response head."""

    __slots__ = ("code", "length", "text")

    def __init__(self, status, headers):
        if status not in _known_statuses:
            _check_status(status)
        self.code = status[:3]
        # The application's own Content-Length.
        self.length = None
        lines = [f"Status: {status}\r\n"]
        for name, value in headers:
            lower = _lower(name)
            if not isinstance(value, str):
                raise TypeError(f"{name} must be str, not {type(value).__name__}")
            # The quicker question first; tabs and no-break spaces make it ask the other one.
            if not value.isprintable() and _CONTROL(value) is not None:
                raise ValueError(f"{name} contains a control character: {value!r}")
            if lower in HOP_BY_HOP or lower in NOT_THE_APPLICATIONS:
                continue
            if lower == "content-length":
                self.length = value
            lines.append(f"{name}: {value}\r\n")
        self.text = "".join(lines)

    def may_have_body(self):
        """Whether the status allows one."""
        return self.code[0] != "1" and self.code not in ("204", "304")

    def announced(self):
        """The application's Content-Length as a number; None without a valid one."""
        length = self.length
        return int(length) if length is not None and length.isascii() and length.isdigit() else None

    def block(self, length=None):
        """The header block; ``length`` is added where the application has not set one."""
        text = self.text
        if length is not None and self.length is None and self.may_have_body():
            text += f"Content-Length: {length}\r\n"
        return (text + "\r\n").encode("latin-1")
