"""WebSockets of an ASGI application. The path is the name of a function below."""

import asyncio
import os

FOLDER = os.path.dirname(os.path.abspath(__file__))


async def application(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    name = scope["path"].strip("/")
    if scope["type"] == "http":
        text = f"{name} {os.getpid()}".encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(text))]})
        await send({"type": "http.response.body", "body": text})
        return
    assert (await receive()) == {"type": "websocket.connect"}
    await globals()["on_" + name](scope, receive, send)


def note(name, text):
    path = os.path.join(FOLDER, name)
    with open(path + ".part", "w") as file:
        file.write(text)
    os.rename(path + ".part", path)


async def echo_until_the_end(receive, send):
    while (message := await receive())["type"] == "websocket.receive":
        del message["type"]
        await send({"type": "websocket.send", **message})
    return message


async def on_echo(scope, receive, send):
    await send({"type": "websocket.accept"})
    end = await echo_until_the_end(receive, send)
    note("ended", f"{end['code']} {end['reason']}")


async def on_scope(scope, receive, send):
    chosen = scope["subprotocols"][-1] if scope["subprotocols"] else None
    await send({"type": "websocket.accept", "subprotocol": chosen, "headers": [(b"x-own", b"a"), (b"x-own", b"b")]})
    names = ("type", "scheme", "path", "query_string", "subprotocols", "client")
    text = repr({name: scope[name] for name in names if name != "client"})
    await send({"type": "websocket.send", "text": text})
    await send({"type": "websocket.close", "code": 3001, "reason": "done"})


async def on_forbidden(scope, receive, send):
    await send({"type": "websocket.close"})


async def on_denied(scope, receive, send):
    fields = [(b"www-authenticate", b"Basic")]
    await send({"type": "websocket.http.response.start", "status": 401, "headers": fields})
    await send({"type": "websocket.http.response.body", "body": b"first ", "more_body": True})
    await send({"type": "websocket.http.response.body", "body": b"second"})


async def on_fails_first(scope, receive, send):
    raise LookupError("before the handshake")


async def on_fails(scope, receive, send):
    await send({"type": "websocket.accept"})
    raise LookupError("behind the handshake")


async def on_leaves(scope, receive, send):
    await send({"type": "websocket.accept"})


async def on_dies(scope, receive, send):
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.send", "text": "last"})
    await receive()
    os._exit(7)


async def on_pushes(scope, receive, send):
    """Sends without end, until the client has left."""
    await send({"type": "websocket.accept"})
    sent = 0
    try:
        while True:
            await send({"type": "websocket.send", "bytes": bytes(100_000)})
            sent += 1
            note("pushed", str(sent))
    except OSError:
        note("push ended", str(sent))


async def on_deaf(scope, receive, send):
    """Takes nothing until a file is there."""
    await send({"type": "websocket.accept"})
    while not os.path.exists(os.path.join(FOLDER, "go")):
        await asyncio.sleep(0.01)
    await echo_until_the_end(receive, send)
