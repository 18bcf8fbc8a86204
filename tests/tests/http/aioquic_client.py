"""Asks a server by aioquic. Usage: aioquic_client.py PORT WAY PATH...

Prints a line for each path: status, length and SHA-256 of the body. WAY: "plain"; "keys" asks for new keys (RFC 9001 §6)
between requests; "rebind" changes the client's port while a body comes (RFC 9000 §9.3), as a NAT does."""

import asyncio
import hashlib
import socket
import ssl
import sys

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import StreamReset


class Client(QuicConnectionProtocol):
    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.http = H3Connection(self._quic)
        self.responses = {}

    def quic_event_received(self, event):
        if isinstance(event, StreamReset) and event.stream_id in self.responses:
            self.responses[event.stream_id][2].set_exception(ConnectionError(f"reset {event.error_code}"))
        for event in self.http.handle_event(event):
            head, body, done, seen = self.responses[event.stream_id]
            if isinstance(event, HeadersReceived):
                head.update(event.headers)
            elif isinstance(event, DataReceived):
                body.extend(event.data)
                seen.set()
            if event.stream_ended:
                done.set_result(None)

    def ask(self, port, path):
        stream = self._quic.get_next_available_stream_id()
        self.responses[stream] = ({}, bytearray(), asyncio.get_running_loop().create_future(), asyncio.Event())
        head = {":method": "GET", ":scheme": "https", ":authority": f"localhost:{port}", ":path": path}
        self.http.send_headers(stream, [(name.encode(), value.encode()) for name, value in head.items()], end_stream=True)
        self.transmit()
        return self.responses[stream]

    async def rebind(self):
        loop = asyncio.get_running_loop()
        own = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        own.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        own.bind(("::", 0))
        before = self._transport
        await loop.create_datagram_endpoint(lambda: self, sock=own)
        before.abort()


async def main(port, way, paths):
    configuration = QuicConfiguration(is_client=True, alpn_protocols=["h3"], verify_mode=ssl.CERT_NONE, server_name="localhost")
    async with connect("127.0.0.1", port, configuration=configuration, create_protocol=Client, local_port=0) as client:
        if way == "keys":
            for path in paths:
                await client.ask(port, path)[2]
                client._quic.request_key_update()
        else:
            asked = [client.ask(port, path) for path in paths]
            if way == "rebind":
                await asked[0][3].wait()
                await client.rebind()
            await asyncio.gather(*(done for _, _, done, _ in asked))
        for head, body, _, _ in client.responses.values():
            print(head[b":status"].decode(), len(body), hashlib.sha256(body).hexdigest())


asyncio.run(asyncio.wait_for(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]), 120))
