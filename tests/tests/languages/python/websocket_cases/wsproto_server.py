"""An echo on wsproto, which prints its port. It joins the fragments of a message, so that its bytes do not depend on reads."""

import asyncio

from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Ping, Request, TextMessage
from wsproto.extensions import PerMessageDeflate

LIMIT = 60


async def serve(reader, writer):
    connection = WSConnection(ConnectionType.SERVER)
    message = []
    while data := await reader.read(65_536):
        connection.receive_data(data)
        for event in connection.events():
            if isinstance(event, Request):
                # zlib cannot compress with 8 bits.
                can_deflate = not any("server_max_window_bits=8" in offer for offer in event.extensions)
                writer.write(connection.send(AcceptConnection(extensions=[PerMessageDeflate()] if can_deflate else [])))
            elif isinstance(event, (TextMessage, BytesMessage)):
                message.append(event.data)
                if event.message_finished:
                    whole = type(event.data)().join(message)
                    writer.write(connection.send(type(event)(data=whole)))
                    message = []
            elif isinstance(event, Ping):
                writer.write(connection.send(event.response()))
            elif isinstance(event, CloseConnection):
                answers = connection.state is ConnectionState.REMOTE_CLOSING
                writer.write(connection.send(event.response() if answers else CloseConnection(event.code)))
                writer.write_eof()
                # Unread bytes would reset the connection, and take bytes from the client that are on their way.
                while await reader.read(65_536):
                    pass
                return
        await writer.drain()


async def client(reader, writer):
    try:
        await asyncio.wait_for(serve(reader, writer), LIMIT)
    finally:
        writer.close()


async def main():
    server = await asyncio.start_server(client, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())
