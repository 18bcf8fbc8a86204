"""An echo of WebSockets on ASGI."""


async def application(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    assert scope["type"] == "websocket" and (await receive()) == {"type": "websocket.connect"}
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        message["type"] = "websocket.send"
        try:
            await send(message)
        except OSError:
            # The client has closed; its close is the next event.
            pass
