"""Parts of sendoff-python alone. Prints "done"."""

import sys
import tempfile

from sendoff import _sendoff
from sendoff.files import FileWrapper, plain_part
from sendoff.known import is_at_hand
from werkzeug.test import create_environ
from werkzeug.wrappers import Response


def refused(kind, *arguments):
    try:
        _sendoff.header_lines(*arguments)
    except kind as error:
        return str(error)
    raise AssertionError(f"{arguments} are taken")


def heads():
    lines = _sendoff.header_lines
    assert lines("200 OK", []) == (None, b"Status: 200 OK\r\n")
    assert lines("404", iter([("a", ""), ["B", "\xe9\t\x80"]])) == (None, b"Status: 404\r\na: \r\nB: \xe9\t\x80\r\n")
    fields = [("Content-length", "5"), ("Connection", "close"), ("TE", "x"), ("STATUS", "500"), ("X-SendOff", "f"), ("Te-", "x")]
    assert lines("200 OK", fields) == ("5", b"Status: 200 OK\r\nContent-length: 5\r\nTe-: x\r\n")
    many = [(f"X-{number}", "x" * number) for number in range(300)]
    assert lines("200 OK", many)[1] == b"Status: 200 OK\r\n" + b"".join(f"{a}: {b}\r\n".encode() for a, b in many)
    for status in ("", "20", "2000", "020 OK", "2x0 OK", "200OK", "200 O\r\nK", "200 \x7f"):
        assert "is no status" in refused(ValueError, status, [])
    for name in ("", "a b", "a:", "\xe9", "a\n", "a\0"):
        assert "is no header name" in refused(ValueError, "200 OK", [(name, "x")])
    for value in ("\0", "a\r\nb", "a\n", "\x7f"):
        assert "control character" in refused(ValueError, "200 OK", [("a", value)])
    refused(TypeError, 200, [])
    refused(TypeError, "200 OK", [("a", 1)])
    refused(TypeError, "200 OK", [(b"a", "b")])
    refused(TypeError, "200 OK", [7])
    refused(TypeError, "200 OK", None)
    refused(ValueError, "200 OK", [("a", "b", "c")])
    refused(UnicodeEncodeError, "200 OK", [("a", "\u20ac")])
    refused(UnicodeEncodeError, "200 \u20ac", [])


def references():
    """A Content-Length that is only in the list."""
    pair = ["Content-Length", "".join(["12", "34"])]
    before = sys.getrefcount(pair[1])
    for _ in range(100):
        length, _lines = _sendoff.header_lines("200 OK", [pair, pair])
        assert length is pair[1]
    del length
    assert sys.getrefcount(pair[1]) == before


class Closing(Response):
    def close(self):
        super().close()


def pages():
    def body(response):
        return response(create_environ(), lambda status, headers: None)

    assert is_at_hand(body(Response("text")))
    assert is_at_hand(body(Response([b"a", b"b"])))
    assert not is_at_hand(body(Response(iter([b"a", b"b"]))))
    assert not is_at_hand(body(Closing("text")))
    called = Response("text")
    called.call_on_close(lambda: None)
    assert not is_at_hand(body(called))
    assert not is_at_hand([b"a"])


def parts():
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"x" * 1000)
        file.flush()
        plain = open(file.name, "rb")
        number = plain.fileno()

        def ranged(field):
            environ = create_environ(headers={"Range": field})
            environ["wsgi.file_wrapper"] = FileWrapper
            response = Response(FileWrapper(plain), direct_passthrough=True)
            response.make_conditional(environ, accept_ranges=True, complete_length=1000)
            return response(environ, lambda status, headers: None)

        assert plain_part(ranged("bytes=100-299")) == (number, 100, 200)
        assert plain_part(ranged("bytes=990-2000")) == (number, 990, 10)
        assert plain_part(ranged("bytes=-1")) == (number, 999, 1)
        assert plain_part(ranged("bytes=0-")) == (number, 0, 1000)
        begun = ranged("bytes=100-299")
        assert next(begun) == b"x" * 200
        plain.seek(0)
        assert plain_part(begun) is None
        SlicedFile = type("SlicedFile", (), {"__module__": "whitenoise.responders", "read": plain.read})
        sliced = SlicedFile()
        assert plain_part(FileWrapper(sliced)) is None
        sliced.fileobj, sliced.remaining = plain, 300
        plain.seek(200)
        assert plain_part(FileWrapper(sliced)) == (number, 200, 300)
        sliced.remaining = 5000
        assert plain_part(FileWrapper(sliced)) == (number, 200, 800)


for test in (heads, references, pages, parts):
    test()
print("done")
