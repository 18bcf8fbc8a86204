"""Requests to an ASGI 3 application.

An application expects one event loop that all requests of the process share (with it its connections to databases), and
FastCGI wants one connection per request. So the loop has a thread of its own, and each serving thread keeps its request's
connection: it reads and writes what the coroutine asks for, while the loop goes on with others. While it waits for the
body, it goes on writing. At most ``--threads`` requests of a process have a client at a time; a coroutine whose client has
left goes on without a thread.
"""

import asyncio
import concurrent.futures
import http
import os
import queue
import resource
import sys
import threading
import traceback

from . import websocket
from .files import FileWrapper
from .forked import end_if_forked, end_without_loop
from .head import Head
from .log import log
from .ranges import range_of
from .streams import Errors, octets
from .wsgi import PROMISED, Response, complete, content_length, report

# Maximum number of body bytes in one `http.request` message.
BODY_PIECE = 64 * 1024

# Interval in seconds at which a thread checks for a disconnected client while its application is
# silent.
LOOK_INTERVAL = 0.5

# Time in seconds for which send() drops the pieces of a response whose client has left. Then it
# raises: an application that streams without end and does not listen would never end.
DROP_LIMIT = 2.0

# Maximum number of requests of a process that go on without their clients. Each holds what its
# coroutine has in memory. Beyond this number a request keeps its thread until its coroutine ends or
# has ended its response, so that clients that come and leave do not fill the memory.
DEPARTED_LIMIT = 1000

# Number of pieces that send() drops before it lets the event loop run other tasks. It does not wait
# at each piece: a task that is cancelled inside send() leaves its generator of pieces at a `yield`,
# and the generator's `finally` does not run.
DROPS_PER_TURN = 32

# Time in seconds that a head waits for the first piece of its body. A head that leaves alone costs a
# record of its own, the announced length, and the handover of a file. Middleware takes some turns
# of the event loop for the first piece. No client notices the delay.
HEAD_DELAY = 0.02

# Time limit in seconds for the application's startup and shutdown.
LIFESPAN_LIMIT = 60.0

# Exit status of a process whose event loop has ended.
LOOP_ENDED = 5

# The order to read the next piece of the body.
_READ = object()

# With version 2.4 Starlette would wait for send() to fail, and a stream without data would never
# end. uvicorn also announces 2.3.
_ASGI = {"version": "3.0", "spec_version": "2.3"}
# The names of versions that ASGI has, where they are other ones than CGI's.
_VERSIONS = {"2.0": "2", "3.0": "3"}


class Disconnected(OSError):
    """Raised by send() if an application still streams ``DROP_LIMIT`` seconds after the client has left."""


class LifespanFailed(Exception):
    """The application has refused to start."""


class Exchange:
    """One request, shared by the thread that has its connection and the coroutine that answers it."""

    def __init__(self, thread, environ, loop):
        self.thread = thread
        self.loop = loop
        # Orders for the thread: a function, its arguments, the future for its result; or _READ.
        # None: there are no more.
        self.orders = queue.SimpleQueue()
        # The thread has to read the next piece of the body.
        self.must_read = False
        # The piece that it has read; None if the client has left, or the thread has ended.
        self.piece = None
        self.piece_came = asyncio.Event()
        # receive() has ordered a piece that it has not returned.
        self.awaits_piece = False
        # Concurrent calls of receive() take turns.
        self.turn = asyncio.Lock()
        self.response = Response(thread, environ["REQUEST_METHOD"])
        # Number of body bytes that have not been received; None if the web server has not announced
        # the length.
        self.left = content_length(environ)
        self.body_ended = False
        self.head = None
        # The timer that sends the head alone, unless a piece comes before.
        self.head_timer = None
        # The application has ended its response.
        self.ended = False
        # The whole response has been sent: the thread's work is done, but the application may go
        # on.
        self.complete = False
        # Futures of orders for which send() waits.
        self.answers = set()
        # The client has left, and the event loop knows it. The thread sets `response.gone` before.
        self.has_left = False
        # Number of pieces dropped since then, and the loop's time from which on send() raises.
        self.dropped = 0
        self.raises_at = None
        # Set when the response is complete or the client has left: receive() waits for it after the
        # body.
        self.over = asyncio.Event()

    # Methods for the thread that has the connection.

    def work(self):
        """Executes the coroutine's orders, until the response is complete or the coroutine has ended.

        Returns early if the client leaves: `response.gone` says so.
        """
        while not self.complete and not self.response.gone:
            patience = LOOK_INTERVAL
            if self.must_read:
                if self._read(patience if self.orders.empty() else 0):
                    continue
                patience = 0
            try:
                order = self.orders.get(timeout=patience)
            except queue.Empty:
                self.response.gone = self.thread.aborted()
                continue
            if order is None:
                break
            if order is _READ:
                self.must_read = True
                continue
            call, arguments, answer = order
            try:
                result = call(*arguments)
                if self.complete:
                    # The client need not wait for later work of the application.
                    self.thread.finish()
            except BaseException as error:
                if not self.response.gone:
                    self.loop.call_soon_threadsafe(_fail, answer, error)
            else:
                self.loop.call_soon_threadsafe(_answer, answer, result)
        if self.response.gone:
            self.loop.call_soon_threadsafe(self._leave)
            return
        if self.must_read:
            self._give_piece(None)
        self._refuse()

    def outlast(self):
        """After the client has left: waits until the coroutine has ended, or has sent the end of its response."""
        # Orders that are still queued are dropped.
        while not self.ended and self.orders.get() is not None:
            pass

    def _refuse(self):
        """Refuses orders that came too late."""
        while True:
            try:
                order = self.orders.get_nowait()
            except queue.Empty:
                return
            if order is _READ:
                self._give_piece(None)
            elif order is not None:
                error = ConnectionResetError("the response has ended")
                self.loop.call_soon_threadsafe(_fail, order[2], error)

    def _give_piece(self, piece):
        self.must_read = False
        self.piece = piece
        self.loop.call_soon_threadsafe(self.piece_came.set)

    def _read(self, seconds):
        """Reads a piece of the body. Returns False if none has come after ``seconds``, or if there is another order."""
        wanted = BODY_PIECE if self.left is None else min(BODY_PIECE, self.left)
        try:
            data = self.thread.read_within(wanted, seconds)
            if data is None:
                return False
            if self.left is not None:
                if not data:
                    raise ConnectionResetError("the request body is shorter than its Content-Length")
                self.left -= len(data)
        except OSError:
            self.response.gone = True
        else:
            self._give_piece(data)
        return True

    def _write(self, data, is_last):
        response = self.response
        response.head = self.head
        if is_last and not response.sent:
            response.send_blocks([data])
        else:
            response.put(data)
        if not is_last:
            response.flush()
        self.complete = is_last

    def _send_range(self, file, start, first_piece):
        response = self.response
        response.head = self.head
        file.seek(start)
        if response.send_file(FileWrapper(file)):
            # The application reads on and finds the end.
            file.seek(0, os.SEEK_END)
            self.complete = True
        else:
            file.seek(start + len(first_piece))
            self._write(first_piece, False)

    def _send_path(self, path):
        response = self.response
        response.head = self.head
        with open(path, "rb") as file:
            if response.sent or not response.send_file(FileWrapper(file)):
                while data := file.read(BODY_PIECE):
                    response.put(data)
        if not response.sent:
            response.send_blocks([])
        self.complete = True

    # Methods for the event loop.

    def put(self, order):
        """Gives the thread an order, for which it stops waiting for the body."""
        self.orders.put(order)
        if self.awaits_piece:
            self.thread.wake()
        if self.complete:
            # Also if the thread has just ended.
            self._refuse()

    async def _ask(self, call, *arguments):
        answer = self.loop.create_future()
        self.answers.add(answer)
        try:
            self.put((call, arguments, answer))
            await answer
        finally:
            self.answers.discard(answer)

    def _leave(self):
        """The client has left: waiting calls of send() return, and only then receive().

        Its `http.disconnect` makes applications cancel the task that sends. By then that task should be at its own work,
        not inside send() (see ``DROPS_PER_TURN``).
        """
        self.has_left = True
        for answer in self.answers:
            _answer(answer, None)
        self.piece_came.set()
        self.over.set()

    async def _drop(self, message):
        """What send() does after the client has left: nothing, as in uvicorn."""
        kind = message["type"]
        if kind == "http.response.body" and message.get("more_body", False):
            now = self.loop.time()
            if self.raises_at is None:
                self.raises_at = now + DROP_LIMIT
            elif now > self.raises_at:
                raise Disconnected("the client has left")
            self.dropped += 1
            if self.dropped % DROPS_PER_TURN == 0:
                await asyncio.sleep(0)
        elif kind in ("http.response.body", "http.response.pathsend") and not self.ended:
            self.ended = True
            # For `outlast`: the thread need not wait for later work of the application.
            self.orders.put(None)

    async def _next_piece(self):
        """The next piece of the body, empty at its end; None if no more will come."""
        if not self.awaits_piece:
            if self.left == 0:
                return b""
            self.piece = None
            self.piece_came.clear()
            self.put(_READ)
            self.awaits_piece = True
        # If the application cancels this, the next call gets the piece.
        await self.piece_came.wait()
        self.awaits_piece = False
        return self.piece

    def _order_for(self, piece, sender):
        """The thread's order for a piece of the body. ``sender``: the frame that waits for it."""
        if self.complete:
            return None  # It belongs to a range that was sent as a whole.
        if self.head.code == "206" and not self.ended and not self.response.sent:
            part = range_of(self.send, sender, piece, self.head.announced())
            if part is not None:
                return (self._send_range, *part, piece)
        return (self._write, octets(piece), self.ended)

    def _start_head_timer(self):
        """Lets the head leave soon. The head of a range may wait: the first piece shows whether a file has the range."""
        if self.head.code != "206":
            self.head_timer = self.loop.call_later(HEAD_DELAY, self._send_head)

    def _stop_head_timer(self):
        if self.head_timer is not None:
            self.head_timer.cancel()
            self.head_timer = None

    def _send_head(self):
        answer = self.loop.create_future()
        # The next call of send() reports an error.
        answer.add_done_callback(asyncio.Future.exception)
        self.put((self._write, (b"", False), answer))

    async def receive(self):
        """The application's `receive`."""
        async with self.turn:
            if not self.body_ended and not self.has_left and not self.ended:
                data = await self._next_piece()
                if data is not None:
                    self.body_ended = not data or self.left == 0
                    return {"type": "http.request", "body": data, "more_body": not self.body_ended}
            elif not self.has_left:
                await self.over.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        """The application's `send`."""
        if self.has_left:
            await self._drop(message)
            return
        kind = message["type"]
        if kind == "http.response.start":
            if self.head is not None:
                raise RuntimeError("http.response.start was sent twice")
            fields = [(_text(name), _text(value)) for name, value in message.get("headers", ())]
            self.head = Head(_status_line(message["status"]), fields)
            self._start_head_timer()
            return
        if self.head is None or self.ended:
            when = "after the end" if self.ended else "before http.response.start"
            raise RuntimeError(f"{kind} was sent {when}")
        self._stop_head_timer()
        if kind == "http.response.body":
            self.ended = not message.get("more_body", False)
            order = self._order_for(message.get("body", b""), sys._getframe(1))
        elif kind == "http.response.pathsend":
            self.ended = True
            order = (self._send_path, message["path"])
        else:
            raise RuntimeError(f"{kind} is not known here")
        if order is not None:
            await self._ask(*order)
        if self.ended:
            self.over.set()

    async def answer(self, application, scope):
        """Runs the application. Returns its exception, which must neither end the event loop nor get lost."""
        process = os.getpid()
        failed = None
        try:
            await application(scope, self.receive, self.send)
        except BaseException as error:
            failed = error
        self._stop_head_timer()
        end_if_forked(process, failed)
        return failed


class AsgiHandler:
    """Answers the requests of one process with an ASGI application."""

    def __init__(self, application):
        self.application = application
        # Applications that go on after complete responses, or without clients: a future for each.
        self.behind = set()
        # Places for requests without clients.
        self.departed = threading.Semaphore(DEPARTED_LIMIT)
        # The log says that there is no place left.
        self.is_crowded = False
        # Open WebSockets. The event loop changes the set.
        self.websockets = set()
        # The log says that the package for WebSockets is missing.
        self.has_warned = False
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self._run_loop, name="sendoff-loop", daemon=True).start()
        end_without_loop(self.loop)
        # State that startup has stored for all requests.
        self.state = {}
        self.messages = asyncio.Queue()
        self.lifespan = None
        self._run(self._start())

    def _run_loop(self):
        try:
            self.loop.run_forever()
        except BaseException:
            # A task of the application has raised SystemExit. Without the loop no request would be
            # answered.
            log(f"the event loop has ended:\n{traceback.format_exc().rstrip()}")
            os._exit(LOOP_ENDED)

    def _run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(LIFESPAN_LIMIT)

    async def _start(self):
        started = self.loop.create_future()
        self.stopped = self.loop.create_future()

        async def send(message):
            future = started if message["type"].startswith("lifespan.startup.") else self.stopped
            if not future.done():
                future.set_result(message)

        async def lifespan():
            try:
                await self.application(
                    {"type": "lifespan", "asgi": _ASGI, "state": self.state}, self.messages.get, send
                )
            except BaseException:
                # The application does not support the protocol, unless it has completed its
                # startup.
                if started.done():
                    log(f"the lifespan of the application has failed:\n{traceback.format_exc().rstrip()}")
            for future in (started, self.stopped):
                if not future.done():
                    future.set_result(None)

        await self.messages.put({"type": "lifespan.startup"})
        self.lifespan = self.loop.create_task(lifespan())
        message = await started
        if message is not None and message["type"] == "lifespan.startup.failed":
            raise LifespanFailed(message.get("message", ""))

    def close(self, patience):
        """Waits ``patience`` seconds for work after responses, and tells the application that the process ends."""
        for opened in tuple(self.websockets):
            asyncio.run_coroutine_threadsafe(opened.close(), self.loop)
        left = concurrent.futures.wait(tuple(self.behind), patience).not_done
        if left:
            log(f"{len(left)} tasks that go on behind their responses, or without clients, have not ended")

        async def stop():
            await self.messages.put({"type": "lifespan.shutdown"})
            await self.stopped

        try:
            self._run(stop())
        except TimeoutError:
            log(f"the application has not shut down in {LIFESPAN_LIMIT:g} s")
        self.loop.call_soon_threadsafe(self.loop.stop)

    def handle(self, thread):
        """Answers the current request of a thread."""
        environ = thread.environ(PROMISED)
        complete(environ)
        scope = scope_of(environ)
        scope["state"] = self.state.copy()
        if websocket.is_asked_for(environ) and self._open(thread, scope):
            return
        errors = Errors(thread)
        exchange = Exchange(thread, environ, self.loop)
        ended = asyncio.run_coroutine_threadsafe(exchange.answer(self.application, scope), self.loop)
        ended.add_done_callback(lambda _: exchange.put(None))
        exchange.work()
        if exchange.response.gone:
            errors.end()
            thread.cut()
            self._let_go(exchange, ended)
            return
        if exchange.complete:
            errors.end()
            self._leave_behind(exchange, ended)
            return
        error = ended.result()
        if error is None:
            error = RuntimeError("the application has ended without a complete response")
        report(errors, error)
        errors.end()
        exchange.response.fail()

    def _let_go(self, exchange, ended):
        """Lets an application whose client has left go on without the thread, if there is a place."""
        if self.departed.acquire(blocking=False):
            ended.add_done_callback(lambda _: self.departed.release())
        else:
            if not self.is_crowded:
                self.is_crowded = True
                log(f"{DEPARTED_LIMIT} requests go on without their clients; further ones keep their threads")
            exchange.outlast()
        self._leave_behind(exchange, ended)

    def _leave_behind(self, exchange, ended):
        self.behind.add(ended)
        ended.add_done_callback(lambda _: self._ended(exchange, ended))

    def _open(self, thread, scope):
        """Begins a WebSocket, which the thread does not wait for. Returns False if there can be none: then the request is
        one like others, as in uvicorn."""
        if not websocket.is_available():
            if not self.has_warned:
                self.has_warned = True
                log("a client asks for a WebSocket: install the package websockets")
            return False
        if not thread.has_tunnel():
            return False
        if len(self.websockets) >= most_websockets():
            log(f"a client asks for a WebSocket, but {len(self.websockets)} are open in this process")
            _refuse(thread)
            return True
        try:
            descriptor = thread.tunnel()
        except OSError:
            thread.cut()  # The client has left.
            return True
        served = asyncio.run_coroutine_threadsafe(self._serve(scope, descriptor), self.loop)
        self.behind.add(served)
        served.add_done_callback(self.behind.discard)
        return True

    async def _serve(self, scope, descriptor):
        opened = websocket.WebSocket(websocket.scope_of(scope), descriptor)
        self.websockets.add(opened)
        try:
            error = await opened.serve(self.application)
        except Exception as failure:
            error = failure
        finally:
            self.websockets.discard(opened)
        if error is not None:
            log(f"a WebSocket of {scope['path']!r} has failed:\n{_trace(error)}")

    def _ended(self, exchange, future):
        """Called when an application has ended after its response, or without its client."""
        self.behind.discard(future)
        error = future.result()
        # Without its client, an application may fail before the end of its response.
        if error is not None and exchange.ended:
            log(f"the application has failed behind its response:\n{_trace(error)}")


def most_websockets():
    """The number of WebSockets of one process: half of the descriptors that it may have open. The other half is for
    requests, files and the application's own."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit // 2 if limit != resource.RLIM_INFINITY else sys.maxsize


def _refuse(thread):
    response = Response(thread, "GET")
    response.head = Head("503 Service Unavailable", [("Content-Type", "text/plain")])
    try:
        response.send_blocks([b"Too many WebSockets are open.\n"])
    except BrokenPipeError:
        pass


def _trace(error):
    return "".join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip()


def _answer(future, result):
    if not future.done():
        future.set_result(result)


def _fail(future, error):
    if not future.done():
        future.set_exception(error)


def _text(value):
    return octets(value).decode("latin-1")


def _status_line(code):
    try:
        return f"{code} {http.HTTPStatus(code).phrase}"
    except ValueError:
        return f"{code} Unknown"


def _port(text):
    return int(text) if text.isascii() and text.isdigit() else None


def scope_of(environ):
    """The connection scope of a request: FastCGI's parameters as ASGI names them."""
    fields = []
    for name, value in environ.items():
        if name.startswith("HTTP_"):
            name = name[5:]
        elif name not in ("CONTENT_TYPE", "CONTENT_LENGTH") or not value:
            continue
        if isinstance(value, str):
            fields.append((name.replace("_", "-").lower().encode("latin-1"), value.encode("latin-1")))
    root = environ["SCRIPT_NAME"].encode("latin-1")
    path = root + environ["PATH_INFO"].encode("latin-1")
    uri = environ.get("REQUEST_URI", "").encode("latin-1").partition(b"?")[0]
    client = environ.get("REMOTE_ADDR")
    version = environ["SERVER_PROTOCOL"].partition("/")[2]
    return {
        "type": "http",
        "asgi": _ASGI,
        "http_version": _VERSIONS.get(version, version),
        "method": environ["REQUEST_METHOD"],
        "scheme": environ["wsgi.url_scheme"],
        "path": path.decode("utf-8", "replace"),
        "raw_path": uri,
        "query_string": environ["QUERY_STRING"].encode("latin-1"),
        "root_path": root.decode("utf-8", "replace"),
        "headers": fields,
        "client": (client, _port(environ.get("REMOTE_PORT", "")) or 0) if client else None,
        "server": (environ["SERVER_NAME"], _port(environ["SERVER_PORT"])),
        "extensions": {"http.response.pathsend": {}},
    }
