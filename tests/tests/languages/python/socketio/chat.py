"""A chat with rooms on python-socketio, an ASGI application."""

import socketio

server = socketio.AsyncServer(async_mode="asgi")
application = socketio.ASGIApp(server)
NAMES = {}


@server.event
async def connect(sid, environ, auth):
    if not auth or "name" not in auth:
        raise socketio.exceptions.ConnectionRefusedError("a name is missing")
    NAMES[sid] = auth["name"]


@server.event
async def join(sid, room):
    await server.enter_room(sid, room)
    await server.emit("joined", NAMES[sid], room=room, skip_sid=sid)
    return {"room": room, "transport": server.transport(sid)}


@server.event
async def leave(sid, room):
    await server.leave_room(sid, room)


@server.event
async def say(sid, room, message):
    """Text or bytes."""
    await server.emit("said", (NAMES[sid], message), room=room)
    return len(message)


@server.event
async def disconnect(sid, reason):
    await server.emit("left", NAMES.pop(sid, None))
