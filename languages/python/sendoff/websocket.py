"""WebSockets of an ASGI application.

The web server passes a socket along with the request, on which the handshake is answered in HTTP/1.1. The thread of the
request is free at once: a WebSocket lives in the event loop alone. The package ``websockets`` knows the frames and does no
I/O of its own here.
"""

import asyncio
import collections
import http
import socket

try:
    from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory
    from websockets.frames import Opcode

    try:
        from websockets.server import ServerProtocol
    except ImportError:  # before version 11
        from websockets.server import ServerConnection as ServerProtocol
except ImportError:
    ServerProtocol = None

from .streams import octets

# The largest message in bytes, as in uvicorn: it is kept in memory.
MAX_MESSAGE = 16 << 20

# Bytes, and messages, that may wait for the application; with more of them nothing is read.
MAX_WAITING_BYTES = 1 << 20
MAX_WAITING_MESSAGES = 256

# The most bytes of one read.
READ = 64 * 1024

# Interval in seconds after which a silent client gets a ping, and the time that it has to send anything.
PING_INTERVAL = 20.0

# Time in seconds that a client has to answer a close frame.
CLOSE_LIMIT = 5.0

# Status codes of RFC 6455, section 7.4.
NORMAL = 1000
LOST = 1006
NOT_TEXT = 1007
FAILED = 1011
RESTARTING = 1012


class Closed(OSError):
    """Raised by send() after the client has left."""


def is_available():
    """True if the package that knows the frames is installed."""
    return ServerProtocol is not None


def is_asked_for(environ):
    """True if the client asks for a WebSocket."""
    protocols = environ.get("HTTP_UPGRADE", "").lower().split(",")
    return environ.get("REQUEST_METHOD") == "GET" and "websocket" in (name.strip() for name in protocols)


def scope_of(scope):
    """The connection scope of a WebSocket, made of the scope of its request."""
    fields = scope["headers"]
    offered = [value for name, value in fields if name == b"sec-websocket-protocol"]
    scope["type"] = "websocket"
    scope["scheme"] = "wss" if scope["scheme"] == "https" else "ws"
    scope["subprotocols"] = [name.strip() for value in offered for name in value.decode("latin-1").split(",")]
    scope["extensions"] = {"websocket.http.response": {}}
    del scope["method"]
    return scope


class WebSocket:
    """One WebSocket: the connection, and the application's ``receive`` and ``send``.

    ::

        asked ── accept ──▶ open ── a close frame of either side, or the end of the connection ──▶ closed
          └── close, or a response ──▶ refused
    """

    def __init__(self, scope, descriptor):
        self.scope = scope
        self.descriptor = descriptor
        self.protocol = ServerProtocol(
            extensions=[ServerPerMessageDeflateFactory(compress_settings={"memLevel": 5})], max_size=MAX_MESSAGE
        )
        # The response that accepts the handshake, until it has been sent.
        self.acceptance = None
        # The status of the response that refuses the handshake.
        self.refusal = None
        # The application has been told of the request.
        self.has_connected = False
        # Messages for the application, and their bytes.
        self.messages = collections.deque()
        self.waiting_bytes = 0
        self.message_came = asyncio.Event()
        self.has_room = asyncio.Event()
        # The pieces of a message in fragments, and its opcode.
        self.pieces = []
        self.opcode = None
        # The event that tells the application of the end.
        self.disconnect = None
        self.closed_here = False
        self.was_heard = False
        self.sending = asyncio.Lock()
        self.over = asyncio.Event()

    async def serve(self, application):
        """Serves until the WebSocket is closed and the application has ended. Returns the application's exception."""
        sock = socket.socket(fileno=self.descriptor)
        sock.setblocking(False)
        self.reader, self.writer = await asyncio.open_unix_connection(sock=sock, limit=READ)
        tasks = []
        try:
            if not await self._shake_hands():
                return None
            tasks = [asyncio.ensure_future(self._listen()), asyncio.ensure_future(self._keep_alive())]
            error = await self._run(application)
            try:
                await self._end(error)
            except OSError:
                pass  # The client has left.
            return error
        finally:
            for task in tasks:
                task.cancel()
            self.writer.close()

    async def _run(self, application):
        try:
            await application(self.scope, self.receive, self.send)
        except asyncio.CancelledError:
            raise
        except Closed:
            # The client has left.
            return None
        except BaseException as error:
            return error
        if self.acceptance is not None and self.refusal is None:
            return RuntimeError("the application has ended without an answer to the handshake")
        return None

    async def _end(self, error):
        """Closes the WebSocket unless the application has."""
        if self.acceptance is not None and self.refusal is None:
            await self._refuse(500, [], b"Internal Server Error\n")
        elif self._is_open():
            self.protocol.send_close(NORMAL if error is None else FAILED)
            await self._flush()
        try:
            await asyncio.wait_for(self.over.wait(), CLOSE_LIMIT)
        except asyncio.TimeoutError:
            pass  # The client does not answer.

    async def close(self):
        """Ends the WebSocket because the process ends."""
        if self._is_open():
            self._tell_end(RESTARTING, "")
            self.protocol.send_close(RESTARTING)
            try:
                await self._flush()
            except OSError:
                pass  # The client has left.
        elif self.acceptance is not None:
            self._tell_end(LOST, "")

    # The handshake.

    async def _shake_hands(self):
        """Prepares the response to the client's handshake. Returns False if it is no valid one, and has been refused."""
        wanted = (b"host", b"connection", b"upgrade", b"sec-websocket-key", b"sec-websocket-version")
        wanted += (b"sec-websocket-extensions",)
        lines = [b"%b: %b\r\n" % field for field in self.scope["headers"] if field[0] in wanted]
        # The library limits the length of a request, the web server has its own limit.
        self.protocol.receive_data(b"GET / HTTP/1.1\r\n%b\r\n" % b"".join(lines))
        requests = self.protocol.events_received()
        response = self.protocol.accept(requests[0]) if requests else None
        if response is None or response.status_code != 101:
            status = 400 if response is None else response.status_code
            fields = [(b"Upgrade", b"websocket")] if status == 426 else []
            await self._refuse(status, fields, b"This is no handshake of a WebSocket.\n")
            return False
        # The web server has its own.
        for name in ("Date", "Server"):
            if name in response.headers:
                del response.headers[name]
        self.acceptance = response
        return True

    async def _accept(self, message):
        response, self.acceptance = self.acceptance, None
        subprotocol = message.get("subprotocol")
        if subprotocol:
            response.headers["Sec-WebSocket-Protocol"] = subprotocol
        for name, value in message.get("headers", ()):
            response.headers[_field(name)] = _field(value)
        self.protocol.send_response(response)
        await self._flush()
        self.has_room.set()

    async def _refuse(self, status, fields, body):
        """Answers the handshake with a whole response."""
        await self._begin_refusal(status, [*fields, (b"Content-Length", b"%d" % len(body))])
        self.writer.write(body)
        await self._finish_refusal()

    async def _begin_refusal(self, status, fields):
        self.refusal = status
        try:
            phrase = http.HTTPStatus(status).phrase
        except ValueError:
            phrase = "Unknown"
        fields = [(_field(name), _field(value)) for name, value in fields]
        # The length ends the body. Without one, chunks do.
        self.has_chunks = not any(name.lower() == "content-length" for name, _ in fields)
        lines = [f"HTTP/1.1 {status} {phrase}\r\n", *(f"{name}: {value}\r\n" for name, value in fields)]
        if self.has_chunks:
            lines.append("Transfer-Encoding: chunked\r\n")
        self.writer.write("".join([*lines, "\r\n"]).encode("latin-1"))
        await self._drain()

    async def _finish_refusal(self):
        if self.has_chunks:
            self.writer.write(b"0\r\n\r\n")
        await self._drain()
        self._tell_end(LOST, "")
        self.over.set()

    async def _answer(self, message):
        """The response of an application that refuses the handshake."""
        kind = message["type"]
        if kind == "websocket.http.response.start":
            if self.refusal is not None:
                raise RuntimeError(f"{kind} was sent twice")
            await self._begin_refusal(message["status"], message.get("headers", ()))
            return
        if kind != "websocket.http.response.body" or self.refusal is None or self.over.is_set():
            raise RuntimeError(f"{kind} was sent before an answer to the handshake, or after it")
        body = octets(message.get("body", b""))
        if body:
            self.writer.write(b"%x\r\n%b\r\n" % (len(body), body) if self.has_chunks else body)
            await self._drain()
        if not message.get("more_body", False):
            await self._finish_refusal()

    # Frames.

    def _is_open(self):
        return self.protocol.state.name == "OPEN"

    async def _listen(self):
        """Reads frames until the end of the connection."""
        try:
            await self.has_room.wait()
            while True:
                data = await self.reader.read(READ)
                self.was_heard = True
                if data:
                    self.protocol.receive_data(data)
                else:
                    self.protocol.receive_eof()
                for frame in self.protocol.events_received():
                    self._take(frame)
                if not self._is_open():
                    # The client has broken the protocol.
                    sent = self.protocol.close_sent
                    self._tell_end(sent.code if sent is not None else LOST, "")
                await self._flush()
                if not data:
                    break
                await self.has_room.wait()
        except OSError:
            pass  # The web server has closed the connection.
        self._tell_end(LOST, "")
        self.over.set()

    def _take(self, frame):
        if frame.opcode is Opcode.CLOSE:
            close = self.protocol.close_rcvd
            self._tell_end(close.code, close.reason)
            return
        if frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            return
        if frame.opcode is not Opcode.CONT:
            self.opcode = frame.opcode
        if frame.data:
            self.pieces.append(bytes(frame.data))
        if not frame.fin:
            return
        data = self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)
        self.pieces = []
        message = {"type": "websocket.receive"}
        if self.opcode is Opcode.TEXT:
            try:
                message["text"] = data.decode()
            except UnicodeDecodeError:
                self.protocol.fail(NOT_TEXT, "a text message is not UTF-8")
                self._tell_end(NOT_TEXT, "")
                return
        else:
            message["bytes"] = data
        if self.disconnect is None:
            self._queue(message, len(data))

    def _queue(self, message, size):
        self.messages.append((message, size))
        self.waiting_bytes += size
        if self.waiting_bytes > MAX_WAITING_BYTES or len(self.messages) > MAX_WAITING_MESSAGES:
            self.has_room.clear()
        self.message_came.set()

    def _tell_end(self, code, reason):
        """Notes the end for the application. The first reason counts."""
        if self.disconnect is None:
            self.disconnect = {"type": "websocket.disconnect", "code": code, "reason": reason}
        self.message_came.set()
        # What follows is dropped.
        self.has_room.set()

    async def _flush(self):
        """Sends the frames that the protocol has made."""
        for data in self.protocol.data_to_send():
            if data:
                self.writer.write(data)
            elif self.writer.can_write_eof():
                self.writer.write_eof()
        await self._drain()

    async def _drain(self):
        async with self.sending:
            await self.writer.drain()

    async def _keep_alive(self):
        """Finds out that a client has vanished: one that sends nothing, not even an answer to a ping."""
        is_asked = False
        while not self.over.is_set():
            self.was_heard = False
            await asyncio.sleep(PING_INTERVAL)
            if self.was_heard or not self._is_open() or not self.has_room.is_set():
                is_asked = False
            elif is_asked:
                self._tell_end(LOST, "")
                self.writer.transport.abort()
                return
            else:
                self.protocol.send_ping(b"")
                is_asked = True
                # A client that takes nothing is silent, too.
                for data in self.protocol.data_to_send():
                    self.writer.write(data)

    # The application's side.

    async def receive(self):
        """The application's `receive`."""
        if not self.has_connected:
            self.has_connected = True
            return {"type": "websocket.connect"}
        while not self.messages:
            if self.disconnect is not None:
                return self.disconnect
            self.message_came.clear()
            await self.message_came.wait()
        message, size = self.messages.popleft()
        self.waiting_bytes -= size
        if self.waiting_bytes <= MAX_WAITING_BYTES and len(self.messages) <= MAX_WAITING_MESSAGES:
            self.has_room.set()
        return message

    async def send(self, message):
        """The application's `send`."""
        kind = message["type"]
        try:
            if self.refusal is not None:
                await self._answer(message)
            elif self.acceptance is not None:
                await self._decide(kind, message)
            elif kind == "websocket.send":
                await self._send(message)
            elif kind == "websocket.close":
                await self._close(message)
            else:
                raise RuntimeError(f"{kind} was sent after the handshake, or is not known here")
        except Closed:
            raise
        except OSError as error:
            raise Closed("the client has left") from error

    async def _decide(self, kind, message):
        if kind == "websocket.accept":
            await self._accept(message)
        elif kind == "websocket.close":
            await self._refuse(403, [], b"Forbidden\n")
        else:
            await self._answer(message)

    async def _send(self, message):
        if self.closed_here:
            raise RuntimeError("websocket.send was sent after websocket.close")
        if not self._is_open():
            raise Closed("the client has left")
        text = message.get("text")
        if text is not None:
            self.protocol.send_text(text.encode())
        else:
            self.protocol.send_binary(octets(message["bytes"]))
        await self._flush()

    async def _close(self, message):
        if self.closed_here:
            raise RuntimeError("websocket.close was sent twice")
        self.closed_here = True
        code = message.get("code", NORMAL)
        if self._is_open():
            self.protocol.send_close(code, message.get("reason") or "")
            await self._flush()
        self._tell_end(code, message.get("reason") or "")


def _field(text):
    """The name or the value of a field as text, without what would end its line."""
    text = text if isinstance(text, str) else octets(text).decode("latin-1")
    if any(control in text for control in "\r\n\0"):
        raise ValueError(f"a control character in a header field: {text!r}")
    return text
