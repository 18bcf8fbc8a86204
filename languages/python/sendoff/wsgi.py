"""One request to a WSGI application (PEP 3333)."""

import os
import traceback
from contextlib import nullcontext

from . import fragments
from .files import FileWrapper, closes_at_once, plain_part
from .forked import end_if_forked
from .head import Head
from .known import is_at_hand
from .place import Places
from .streams import Errors, Input

_ERROR_HEADERS = [("Content-Type", "text/plain; charset=utf-8")]
_ERROR_BODY = b"Internal Server Error\n"

# Parameters that PEP 3333 guarantees or this module needs, for web servers that omit them or leave
# them empty.
PROMISED = {
    "REQUEST_METHOD": "GET",
    "SCRIPT_NAME": "",
    "QUERY_STRING": "",
    "SERVER_NAME": "localhost",
    "SERVER_PORT": "80",
    "SERVER_PROTOCOL": "HTTP/1.0",
}


class Response:
    """The response to one request, from start_response() to its end.

    ====================  =========================  ==============================
    ``head``              ``sent``                   an exception gives
    ====================  =========================  ==============================
    None                  False                      500
    from the application  False                      500
    from the application  True: bytes may have left  a cut connection
    ====================  =========================  ==============================
    """

    __slots__ = ("thread", "head", "sent", "gone", "wants_body", "places")

    def __init__(self, thread, method):
        self.thread = thread
        self.head = None
        self.sent = False
        # The client has closed the connection.
        self.gone = False
        self.wants_body = method != "HEAD"
        # Set if the response is explained.
        self.places = None

    def start_response(self, status, headers, exc_info=None):
        """The callable for the application."""
        if exc_info is not None:
            try:
                if self.sent:
                    raise exc_info[1].with_traceback(exc_info[2])
            finally:
                exc_info = None  # A traceback refers to this frame, and this frame to it.
        elif self.head is not None:
            raise AssertionError("start_response() was called a second time, without exc_info")
        self.head = Head(status, headers)
        return self.write

    def write(self, data):
        """The callable that start_response() returns."""
        if not isinstance(data, bytes):
            raise TypeError(f"write() takes bytes, not {type(data).__name__}")
        self.put(data)
        self.flush()

    def _send_head(self, length=None):
        if self.head is None:
            raise AssertionError("the application has not called start_response()")
        self.sent = True
        self.explain()
        self.thread.write(self.head.block(length), True)

    def explain(self):
        """Tells the front the line of the application that makes this response, if the front asked for it."""
        if self.places is not None and self.places.last is not None:
            self.thread.explain(f"bytes\t{self.places.last}\t\t".encode(errors="replace"))

    def put(self, data):
        """Writes body bytes, after the head."""
        try:
            if not self.sent:
                self._send_head()
            if self.wants_body and data:
                self.thread.write(data, False)
        except BrokenPipeError:
            self.gone = True
            raise

    def flush(self):
        """Sends the written output."""
        try:
            self.thread.flush()
        except BrokenPipeError:
            self.gone = True
            raise

    def end(self):
        """Ends the response. The application may go on."""
        self.thread.end()

    def send(self, result, at_hand):
        """Sends the application's result. ``at_hand``: all blocks exist, so iterating does not wait."""
        kind = type(result)
        if kind is list or kind is tuple:
            self.send_blocks(result)
        elif self.sent or self.head is None or not self.send_file(result):
            for data in result:
                if data:
                    self.put(data)
                    if not at_hand:
                        # A block must be sent before the next one is requested.
                        self.flush()
        if not self.sent:
            self._send_head(0 if self.wants_body else None)

    def send_blocks(self, blocks):
        """Writes a complete body. If nothing was written before, its length is announced."""
        if not self.sent and self.head is not None:
            for data in blocks:
                if not isinstance(data, bytes):
                    raise TypeError(f"a body consists of bytes, not {type(data).__name__}")
            if any(type(data) is fragments.Fragment for data in blocks) and self.send_fragments(blocks):
                return
            self._send_head(sum(map(len, blocks)) if self.wants_body else None)
        for data in blocks:
            if data:
                self.put(data)

    def send_fragments(self, blocks):
        """Sends a body with kept fragments in it, which need not be copied; returns False if it must be copied."""
        length = sum(map(len, blocks))
        if not self.wants_body or not self.head.may_have_body() or self.head.announced() not in (None, length):
            return False
        parts = tuple((data, getattr(data, "place", 0)) for data in blocks)
        self.sent = True
        self.explain()
        try:
            self.thread.send_parts(self.head.block(length), parts)
        except BrokenPipeError:
            self.gone = True
            raise
        return True

    def send_file(self, body):
        """Makes a part of a plain file the body; returns False if the result is not such a part."""
        part = plain_part(body)
        if part is None or not self.head.may_have_body():
            return False
        fd, position, length = part
        announced = self.head.announced()
        if announced is not None:
            length = min(length, announced)
        self.sent = True
        self.explain()
        try:
            self.thread.send_file(self.head.block(), fd, position, length)
        except BrokenPipeError:
            self.gone = True
            raise
        return True

    def fail(self):
        """Answers with an error, or cuts the connection if bytes may have been sent."""
        if self.sent:
            self.thread.cut()
            return
        self.head = Head("500 Internal Server Error", _ERROR_HEADERS)
        self.send_blocks([_ERROR_BODY])
        self.thread.finish()


class WsgiHandler:
    """Answers the requests of one process with a WSGI application."""

    def __init__(self, application, multithread, multiprocess):
        self.application = application
        self.process = os.getpid()
        self.base = {
            **PROMISED,
            "wsgi.version": (1, 0),
            "wsgi.multithread": multithread,
            "wsgi.multiprocess": multiprocess,
            "wsgi.run_once": False,
            # The body ends where `wsgi.input` ends, even without a Content-Length.
            "wsgi.input_terminated": True,
            "wsgi.file_wrapper": FileWrapper,
        }

    def handle(self, thread):
        """Answers the current request of a thread."""
        environ = thread.environ(self.base)
        complete(environ)
        body = Input(thread, content_length(environ))
        leave_out_empty(environ)
        errors = Errors(thread)
        environ["wsgi.input"] = body.stream
        environ["wsgi.errors"] = errors
        response = Response(thread, environ["REQUEST_METHOD"])
        fragments.begin_request()
        with Places() if thread.explains() else nullcontext() as response.places:
            failed = not self._run(environ, response, errors)
        if response.places is not None and not response.gone:
            tell_fragments(thread)
        errors.end()
        body.end()
        # Unless `fail()` was called, the response ends when the thread waits for the next request.
        if failed:
            try:
                response.fail()
            except BrokenPipeError:
                pass
        # The application may still have the callable that writes.
        response.thread = None

    def _run(self, environ, response, errors):
        """Calls the application and sends its result. Returns true if the response is complete."""
        close = None
        whole = True
        try:
            result = self.application(environ, response.start_response)
            end_if_forked(self.process)
            close = getattr(result, "close", None)
            at_hand = is_at_hand(result)
            response.send(result, at_hand)
            # A generator may fork as well.
            end_if_forked(self.process)
            if close is not None and not at_hand and not closes_at_once(close):
                # The client need not wait for later work of the application.
                response.end()
        except BaseException as error:
            end_if_forked(self.process, error)
            # An application may raise an exception of its own after the client has gone.
            if not response.gone:
                whole = False
                report(errors, error)
        finally:
            if close is not None:
                try:
                    close()
                except BaseException as error:
                    report(errors, error)
        return whole


def tell_fragments(thread):
    """Tells the front how many fragments the response has."""
    note = fragments.note()
    if note is not None:
        thread.explain(f"note\t\t{note}\t".encode())


def report(errors, error):
    """Logs an exception with its traceback."""
    errors.flush()
    errors.writelines(traceback.format_exception(type(error), error, error.__traceback__))
    errors.flush()


def complete(environ):
    """Completes the parameters: adds what web servers omit, and corrects what some send differently.
    ``PROMISED`` are present."""
    script = environ["SCRIPT_NAME"]
    if "PATH_INFO" not in environ:
        # Servers whose parameters were made for PHP send the whole path as the script's.
        environ["PATH_INFO"], environ["SCRIPT_NAME"] = script, ""
    elif script.endswith("/"):
        # Attached to "/": the application's own name is empty there, and paths begin with a slash.
        environ["SCRIPT_NAME"] = script[:-1]
        environ["PATH_INFO"] = "/" + environ["PATH_INFO"].lstrip("/")
    https = environ.get("HTTPS")
    secure = environ.get("REQUEST_SCHEME") == "https" or (https and https.lower() in ("on", "1", "true"))
    environ["wsgi.url_scheme"] = "https" if secure else "http"
    if environ.get("CONTENT_LENGTH"):
        # The front has taken the chunks apart. An application that passes its fields on would send both.
        environ.pop("HTTP_TRANSFER_ENCODING", None)


def content_length(environ):
    """The length of the request body; None if the web server has not announced it."""
    length = environ.get("CONTENT_LENGTH")
    if length is None:
        return None
    return int(length) if length.isascii() and length.isdigit() else 0


def leave_out_empty(environ):
    """Removes parameters that web servers in Python would not set: applications take an empty text for a value."""
    for name in ("CONTENT_LENGTH", "CONTENT_TYPE", "REMOTE_USER"):
        if environ.get(name) == "":
            del environ[name]
