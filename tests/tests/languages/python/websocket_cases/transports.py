"""Connections of a client, each opening WebSockets: HTTP/1.1, HTTP/2 by h2 (RFC 8441), HTTP/3 by aioquic (RFC 9220).

A WebSocket has ``extension``, the server's choice, ``send``, ``finish`` (the end of its own direction) and ``receive``,
which returns no bytes at the server's end."""

import asyncio
import ssl

import h2.config
import h2.connection
import h2.events
import h2.settings
from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, StreamReset

WINDOW = 1 << 24


def trusting(protocol):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols([protocol])
    return context


class Http1:
    """A connection of its own for each WebSocket."""

    def __init__(self, port, tls):
        self.port, self.tls = port, trusting("http/1.1") if tls else None

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def open(self, path, offer):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls, limit=WINDOW)
        fields = {"Host": "localhost", "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        fields |= {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} | ({"Sec-WebSocket-Extensions": offer} if offer else {})
        writer.write(f"GET {path} HTTP/1.1\r\n".encode())
        writer.write("".join(f"{name}: {value}\r\n" for name, value in fields.items()).encode() + b"\r\n")
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        assert head[0].startswith("HTTP/1.1 101 "), head
        answered = dict(line.lower().split(": ", 1) for line in head[1:-2])
        assert answered["sec-websocket-accept"] == "s3pplmbitxaq9kygzzhzrbk+xoo=", head
        return Http1Socket(reader, writer, answered.get("sec-websocket-extensions", ""))


class Http1Socket:
    def __init__(self, reader, writer, extension):
        self.reader, self.writer, self.extension = reader, writer, extension

    async def send(self, data):
        self.writer.write(data)
        await self.writer.drain()

    async def receive(self):
        return await self.reader.read(65_536)

    async def finish(self):
        self.writer.close()


class StreamSocket:
    """A WebSocket on a stream of a connection, which puts into ``came`` what comes."""

    def __init__(self, connection, stream):
        self.connection, self.stream = connection, stream
        self.came = asyncio.Queue()
        self.head = asyncio.get_running_loop().create_future()
        self.extension = ""

    def took_head(self, fields):
        self.head.set_result({bytes(name).decode(): bytes(value).decode() for name, value in fields})

    async def begin(self):
        head = await self.head
        assert head[":status"] == "200" and "sec-websocket-accept" not in head, head
        self.extension = head.get("sec-websocket-extensions", "")
        return self

    async def send(self, data):
        await self.connection.send(self.stream, data)

    async def finish(self):
        await self.connection.finish(self.stream)

    async def receive(self):
        data = await self.came.get()
        if isinstance(data, Exception):
            raise data
        return data


def connect_head(path, offer):
    head = {":method": "CONNECT", ":protocol": "websocket", ":scheme": "https", ":authority": "localhost", ":path": path}
    head |= {"sec-websocket-version": "13"} | ({"sec-websocket-extensions": offer} if offer else {})
    return [(name.encode(), value.encode()) for name, value in head.items()]


class Http2:
    """One connection."""

    def __init__(self, port):
        self.port = port

    async def __aenter__(self):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=trusting("h2"))
        self.http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self.http.initiate_connection()
        self.http.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: WINDOW})
        self.http.increment_flow_control_window(WINDOW)
        self.sockets, self.has_window = {}, asyncio.Condition()
        self.may_connect = asyncio.Event()
        self.reading = asyncio.ensure_future(self._read())
        await self._flush()
        await self.may_connect.wait()
        return self

    async def __aexit__(self, *_):
        self.reading.cancel()
        self.writer.close()

    async def _flush(self):
        self.writer.write(self.http.data_to_send())
        await self.writer.drain()

    async def _read(self):
        try:
            while data := await self.reader.read(65_536):
                for event in self.http.receive_data(data):
                    self._take(event)
                await self._flush()
                async with self.has_window:
                    self.has_window.notify_all()
        finally:
            for socket in self.sockets.values():
                socket.came.put_nowait(ConnectionError("the connection has ended"))

    def _take(self, event):
        if isinstance(event, h2.events.RemoteSettingsChanged):
            if h2.settings.SettingCodes.ENABLE_CONNECT_PROTOCOL in event.changed_settings:
                self.may_connect.set()
            return
        socket = self.sockets.get(getattr(event, "stream_id", None))
        if isinstance(event, h2.events.ResponseReceived):
            socket.took_head(event.headers)
        elif isinstance(event, h2.events.DataReceived):
            self.http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            if event.data:
                socket.came.put_nowait(event.data)
        elif isinstance(event, h2.events.StreamEnded):
            socket.came.put_nowait(b"")
        elif isinstance(event, h2.events.StreamReset):
            socket.came.put_nowait(ConnectionError(f"reset {event.error_code}"))

    async def open(self, path, offer):
        stream = self.http.get_next_available_stream_id()
        self.sockets[stream] = socket = StreamSocket(self, stream)
        self.http.send_headers(stream, connect_head(path, offer))
        await self._flush()
        return await socket.begin()

    async def send(self, stream, data):
        while data:
            async with self.has_window:
                await self.has_window.wait_for(lambda: self.http.local_flow_control_window(stream) > 0)
            size = min(self.http.local_flow_control_window(stream), self.http.max_outbound_frame_size)
            self.http.send_data(stream, data[:size])
            data = data[size:]
            await self._flush()

    async def finish(self, stream):
        self.http.end_stream(stream)
        await self._flush()


class Http3:
    """One connection."""

    def __init__(self, port):
        self.port = port

    async def __aenter__(self):
        configuration = QuicConfiguration(is_client=True, alpn_protocols=["h3"], verify_mode=ssl.CERT_NONE)
        configuration.server_name, configuration.max_data, configuration.max_stream_data = "localhost", WINDOW, WINDOW
        self.context = connect("127.0.0.1", self.port, configuration=configuration, create_protocol=Http3Client, local_port=0)
        return await self.context.__aenter__()

    async def __aexit__(self, *error):
        await self.context.__aexit__(*error)


class Http3Client(QuicConnectionProtocol):
    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.http = H3Connection(self._quic)
        self.sockets = {}

    def quic_event_received(self, event):
        if isinstance(event, StreamReset) and event.stream_id in self.sockets:
            self.sockets[event.stream_id].came.put_nowait(ConnectionError(f"reset {event.error_code}"))
        if isinstance(event, ConnectionTerminated):
            for socket in self.sockets.values():
                socket.came.put_nowait(ConnectionError("the connection has ended"))
        for event in self.http.handle_event(event):
            socket = self.sockets.get(event.stream_id)
            if isinstance(event, HeadersReceived):
                socket.took_head(event.headers)
            elif isinstance(event, DataReceived) and event.data:
                socket.came.put_nowait(event.data)
            if socket is not None and event.stream_ended:
                socket.came.put_nowait(b"")

    async def open(self, path, offer):
        stream = self._quic.get_next_available_stream_id()
        self.sockets[stream] = socket = StreamSocket(self, stream)
        self.http.send_headers(stream, connect_head(path, offer))
        self.transmit()
        return await socket.begin()

    async def send(self, stream, data):
        self.http.send_data(stream, data, end_stream=False)
        self.transmit()
        # Packets of the server are read between two pieces.
        await asyncio.sleep(0)

    async def finish(self, stream):
        self.http.send_data(stream, b"", end_stream=True)
        self.transmit()
