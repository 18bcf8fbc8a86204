"""What a WSGI server must cope with. The path is the name of a function below."""

import gzip
import io
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from urllib.parse import parse_qs
from wsgiref.validate import validator

try:
    from sendoff import _sendoff
except ImportError:
    pass  # In the server that ours is compared with.

FOLDER = os.path.dirname(os.path.abspath(__file__))
closed = []
barrier = threading.Barrier(2)


def text():
    """A new list: servers may add to it."""
    return [("Content-Type", "text/plain")]


def application(environ, start_response):
    environ["query"] = {name: values[0] for name, values in parse_qs(environ["QUERY_STRING"]).items()}
    action = globals().get("on_" + environ["PATH_INFO"].strip("/"))
    if action is None:
        start_response("404 Not Found", text())
        return [b"no such action"]
    return action(environ, start_response)


def made(environ):
    """n bytes that depend on their position."""
    n = int(environ["query"].get("n", "0"))
    line = b"sixty-three bytes and a line feed are what this line is made of\n"
    return (line * (n // len(line) + 1))[:n]


def pieces(environ):
    body = made(environ)
    step = int(environ["query"].get("piece", "1000"))
    return [body[at : at + step] for at in range(0, len(body), step)]


class Closing:
    """An iterable whose close() leaves a trace."""

    def __init__(self, name, blocks):
        self.name = name
        self.blocks = iter(blocks)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.blocks)

    def close(self):
        closed.append(self.name)


def on_hello(environ, start_response):
    start_response("200 OK", text())
    return [b"hello"]


def on_pid(environ, start_response):
    start_response("200 OK", text())
    return [str(os.getpid()).encode()]


def on_fork(environ, start_response):
    """A child that comes back out of the application in this way."""
    way = environ["query"]["way"]
    ready, say_ready = os.pipe()
    sent, say_sent = os.pipe()
    child = os.fork()
    if child == 0:
        if way.startswith("SIG"):
            # Python 3.14 acts on a signal, in a child that a thread has forked, only if a call of its own notices it.
            signal.pthread_sigmask(signal.SIG_BLOCK, [getattr(signal, way)])
            os.write(say_ready, b"r")
            os.read(sent, 1)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [getattr(signal, way)])
        if way == "exit":
            sys.exit(7)
        if way == "raise":
            raise LookupError("in the child")
        start_response("200 OK", text())
        return [b"child"]
    if way.startswith("SIG"):
        os.read(ready, 1)
        os.kill(child, getattr(signal, way))
        os.write(say_sent, b"s")
    for end in (ready, say_ready, sent, say_sent):
        os.close(end)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    start_response("200 OK", text())
    return [f"the child ended with {status}".encode()]


def on_signals(environ, start_response):
    """What ends a program that the application starts."""
    ended = []
    for name in ("SIGINT", "SIGHUP", "SIGTERM"):
        child = subprocess.Popen(["/usr/bin/sleep", "60"])
        child.send_signal(getattr(signal, name))
        ended.append(str(child.wait()))
    start_response("200 OK", text())
    return [" ".join(ended).encode()]


def on_closed(environ, start_response):
    """How often close() was called under a name."""
    start_response("200 OK", text())
    return [str(closed.count(environ["query"]["name"])).encode()]


def on_list(environ, start_response):
    start_response("200 OK", text())
    return pieces(environ)


def on_tuple(environ, start_response):
    start_response("200 OK", text())
    return tuple(pieces(environ))


def on_one(environ, start_response):
    start_response("200 OK", text())
    return [made(environ)]


def on_length(environ, start_response):
    body = made(environ)
    start_response("200 OK", [*text(), ("Content-Length", str(len(body)))])
    return iter([body])


def on_generator(environ, start_response):
    start_response("200 OK", text())
    yield from pieces(environ)


def on_late(environ, start_response):
    """Empty blocks, for which the head need not leave."""
    start_response("203 Changed My Mind", text())
    yield b""
    yield b""
    yield made(environ)


def on_write(environ, start_response):
    write = start_response("200 OK", text())
    for piece in pieces(environ):
        write(piece)
    return [b"and a list"]


def on_empty(environ, start_response):
    start_response("200 OK", text())
    return []


def on_nothing(environ, start_response):
    start_response("204 No Content", [])
    return []


def on_unmodified(environ, start_response):
    start_response("304 Not Modified", [("ETag", '"x"')])
    return []


def on_fields(environ, start_response):
    start_response(
        "418 I'm a Teapot",
        [
            ("Content-Type", "text/html; charset=utf-8"),
            ("Set-Cookie", "a=1"),
            ("Set-Cookie", "b=2"),
            ("X-Latin", "caf\xe9"),
            ("X-Empty", ""),
            ("Location", "/elsewhere"),
            ("Content-Length", "3"),
        ],
    )
    return [b"tea"]


def on_hop(environ, start_response):
    start_response("200 OK", [*text(), ("Connection", "close"), ("Transfer-Encoding", "chunked"), ("Status", "500 No")])
    return [b"hop"]


def on_echo(environ, start_response):
    """Reads the body in one of the ways in which a file is read."""
    stream = environ["wsgi.input"]
    way = environ["query"].get("way", "read")
    if way == "read":
        body = stream.read()
    elif way == "pieces":
        body = b"".join(iter(lambda: stream.read(1000), b""))
    elif way == "length":
        body = stream.read(int(environ["CONTENT_LENGTH"] or 0))
    elif way == "line":
        body = b"|".join(iter(lambda: stream.readline(), b""))
    elif way == "short":
        body = b"|".join(iter(lambda: stream.readline(5), b""))
    elif way == "lines":
        body = b"|".join(stream.readlines())
    elif way == "hint":
        body = b"|".join(stream.readlines(10)) + b"#" + stream.read()
    elif way == "iterate":
        body = b"|".join(stream)
    elif way == "beyond":
        body = stream.read() + stream.read() + stream.read(10)
    else:
        body = b"unread"
    start_response("200 OK", text())
    return [body]


def on_types(environ, start_response):
    """What PEP 3333 says of the environment."""
    assert type(environ) is dict
    for name, value in environ.items():
        assert type(name) is str
        if "." not in name and name != "query":
            assert type(value) is str, name
            value.encode("latin-1")
    for name in ("REQUEST_METHOD", "SERVER_NAME", "SERVER_PORT", "SERVER_PROTOCOL"):
        assert environ[name], name
    for name in ("SENDOFF_ACCEPT", "SENDOFF_CHANNEL", "SENDOFF_FRONT"):
        assert name not in environ, name
    assert "" not in (environ.get("CONTENT_TYPE"), environ.get("REMOTE_USER"))
    assert environ["wsgi.version"] == (1, 0)
    assert environ["wsgi.url_scheme"] == "http"
    assert environ["wsgi.run_once"] is False
    environ["wsgi.errors"].write("")
    environ["wsgi.errors"].writelines([])
    environ["wsgi.errors"].flush()
    start_response("200 OK", text())
    names = ("REQUEST_METHOD", "SCRIPT_NAME", "PATH_INFO", "QUERY_STRING", "REMOTE_USER", "HTTP_X_OWN")
    facts = {name: environ.get(name) for name in names}
    return [repr(facts).encode()]


def on_log(environ, start_response):
    environ["wsgi.errors"].write("an entry of ")
    print("the application: \u20ac", file=environ["wsgi.errors"])
    start_response("200 OK", text())
    return [b"logged"]


# Failures.


def on_fail_first(environ, start_response):
    raise LookupError("before start_response")


def on_fail_started(environ, start_response):
    start_response("200 OK", [*text(), ("X-Secret", "of the failed response")])
    raise LookupError("after start_response")


def on_fail_silent(environ, start_response):
    return [b"no start_response"]


def on_fail_twice(environ, start_response):
    start_response("200 OK", text())
    start_response("200 OK", text())
    return [b"twice"]


def on_fail_str(environ, start_response):
    start_response("200 OK", text())
    return ["text"]


def on_fail_status(environ, start_response):
    start_response("fine", text())
    return [b"fine"]


def on_fail_injection(environ, start_response):
    start_response("200 OK", [("X-A", "b\r\nX-Injected: yes")])
    return [b"injected"]


def on_fail_exit(environ, start_response):
    sys.exit("the application wants to end")


def on_fail_process(environ, start_response):
    os._exit(9)


def on_fail_closing(environ, start_response):
    def blocks():
        raise LookupError("at the first block")
        yield b"never"

    start_response("200 OK", text())
    return Closing("failed", blocks())


def on_fail_middle(environ, start_response):
    """Dies with part of the body written. With length=1 the client knows how long it should be."""

    def blocks():
        yield made(environ)
        raise LookupError("in the middle")

    fields = [("Content-Length", "5000000")] if environ["query"].get("length") else []
    start_response("200 OK", [*text(), *fields])
    return Closing("middle", blocks())


def on_fail_type(environ, start_response):
    """A block that is no bytes, behind one that is."""
    start_response("200 OK", text())
    return Closing("middle", [made(environ), "text"])


def on_fail_read(environ, start_response):
    """A file that can be read once."""

    class Failing(Closing):
        def read(self, size=-1):
            for block in self.blocks:
                return block
            raise OSError("the disk has failed")

    start_response("200 OK", text())
    return environ["wsgi.file_wrapper"](Failing("middle", [made(environ)]))


def shrink(path):
    """The file becomes half as long as soon as the server has taken its size."""
    regular_size = _sendoff.regular_size

    def once(fd):
        size = regular_size(fd)
        _sendoff.regular_size = regular_size
        os.truncate(path, size // 2)
        return size

    _sendoff.regular_size = once


def on_fail_shrinks(environ, start_response):
    path = os.path.join(FOLDER, environ["query"]["name"])
    start_response("200 OK", text())
    shrink(path)
    return environ["wsgi.file_wrapper"](open(path, "rb"))


def on_fail_written(environ, start_response):
    write = start_response("200 OK", text())
    write(b"written")
    raise LookupError("after write()")


def on_fail_in_close(environ, start_response):
    class Failing(Closing):
        def close(self):
            super().close()
            raise LookupError("in close()")

    start_response("200 OK", text())
    return Failing("failing", [b"whole"])


def on_wait_in_close(environ, start_response):
    class Waiting(Closing):
        def close(self):
            with open(environ["query"]["path"]) as go:
                go.read()
            super().close()

    start_response("200 OK", text())
    return Waiting("waiting", [b"who", b"le"])


def on_recovers(environ, start_response):
    """Error-handling middleware that replaces a response of which nothing has left."""
    start_response("200 OK", text())
    try:
        raise LookupError("handled")
    except LookupError:
        start_response("503 Handled", text(), sys.exc_info())
    return [b"instead"]


def on_recovers_late(environ, start_response):
    write = start_response("200 OK", text())
    write(b"gone already")
    try:
        raise LookupError("too late to handle")
    except LookupError:
        start_response("503 Handled", text(), sys.exc_info())
    return [b"instead"]


def on_endless(environ, start_response):
    def blocks():
        while True:
            yield b"x" * 10000

    start_response("200 OK", text())
    return Closing("endless", blocks())


def on_wait(environ, start_response):
    """Two blocks, and a named pipe between them."""

    def blocks():
        yield b"first "
        with open(os.path.join(FOLDER, "pipe")) as pipe:
            pipe.read()
        yield b"last"

    start_response("200 OK", text())
    return blocks()


def on_meet(environ, start_response):
    """Ends when two requests are here at the same time."""
    barrier.wait(20)
    start_response("200 OK", text())
    return [f"{environ['wsgi.multithread']} {environ['wsgi.multiprocess']}".encode()]


# Files.


def on_file(environ, start_response):
    """A file of this folder through wsgi.file_wrapper."""
    query = environ["query"]
    path = os.path.join(FOLDER, os.path.basename(query["name"]))
    how = query.get("how", "plain")
    fields = text()
    if "length" in query:
        fields.append(("Content-Length", query["length"]))
    file = open(path, "rb", buffering=0 if how == "raw" else -1)
    if how == "partly":
        # The descriptor is further on: read() takes more from the system than it gives.
        file.read(100)
        start_response("206 Partial Content", fields)
        return environ["wsgi.file_wrapper"](file, 1000)
    if how == "seek":
        file.seek(int(query["at"]))
    elif how == "deleted":
        os.unlink(path)
    elif how == "bytes":
        file = io.BytesIO(file.read())
    elif how == "gzip":
        packed = tempfile.NamedTemporaryFile()
        packed.write(gzip.compress(file.read()))
        packed.flush()
        file = gzip.GzipFile(packed.name)
    elif how == "other":
        file = Upper(file)
    elif how == "memory":
        memory = os.memfd_create("file")
        os.write(memory, file.read())
        os.lseek(memory, 0, os.SEEK_SET)
        file = open(memory, "rb")
    elif how == "pipe":
        read, write = os.pipe()
        os.write(write, file.read()[:50000])
        os.close(write)
        file = open(read, "rb")
    elif how == "both":
        file = open(path, "r+b")
    elif how == "passing":
        file = Passing(file)
    start_response("200 OK", fields)
    wrapper = environ["wsgi.file_wrapper"](file, 1000)
    if how == "written":
        closing = file
        wrapper.close = lambda: (closing.close(), closed.append("file"))
    return wrapper


class Upper:
    """A file whose contents are not those of its descriptor."""

    def __init__(self, file):
        self.file = file
        self.fileno = file.fileno
        self.tell = file.tell

    def read(self, size=-1):
        return self.file.read(size).upper()


class Passing:
    """As Django's File: what it reads is what the file inside reads."""

    def __init__(self, file):
        self.file = file
        self.read = file.read
        self.close = file.close


def validated(environ, start_response):
    """The same application behind the checks of the standard library."""
    return validator(application)(environ, start_response)
