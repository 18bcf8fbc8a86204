"""What an ASGI server must cope with. The path is the name of a function below."""

import asyncio
import os
import sys
from urllib.parse import parse_qs

from conformance import shrink

FOLDER = os.path.dirname(os.path.abspath(__file__))
meeting = None
# The process that has loaded the application.
loader = os.getpid()


async def application(scope, receive, send):
    if scope["type"] == "lifespan":
        await lifespan(scope, receive, send)
        return
    query = {name: values[0] for name, values in parse_qs(scope["query_string"].decode(), True).items()}
    await globals()["on_" + scope["path"].strip("/")](scope, query, receive, send)


async def lifespan(scope, receive, send):
    global meeting
    assert (await receive())["type"] == "lifespan.startup"
    meeting = asyncio.Event()
    scope["state"]["loop"] = asyncio.get_running_loop()
    await send({"type": "lifespan.startup.complete"})
    assert (await receive())["type"] == "lifespan.shutdown"
    with open(os.path.join(FOLDER, "shutdown"), "w") as file:
        file.write("shut down")
    await send({"type": "lifespan.shutdown.complete"})


async def start(send, status=200, headers=()):
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain"), *headers]})


async def body(send, data, more=False):
    await send({"type": "http.response.body", "body": data, "more_body": more})


async def on_hello(scope, query, receive, send):
    assert asyncio.get_running_loop() is scope["state"]["loop"]
    await start(send)
    await body(send, b"hello")


async def on_fork(scope, query, receive, send):
    """A child that comes back to the event loop in this way."""
    child = os.fork()
    if child == 0:
        if query["way"] == "raise":
            raise LookupError("in the child")
        if query["way"] == "sleep":
            await asyncio.sleep(0.01)
        if query["way"] == "answer":
            await start(send)
            await body(send, b"child")
        if query["way"] == "caught":
            # As error pages of frameworks.
            try:
                raise LookupError("caught in the child")
            except LookupError:
                await start(send, 500)
                await body(send, b"child")
        return
    await _ended(child, send)


async def on_fork_in_thread(scope, query, receive, send):
    children = []
    await asyncio.get_running_loop().run_in_executor(None, lambda: children.append(os.fork()))
    await _ended(children[0], send)


async def _ended(child, send):
    _, status = await asyncio.get_running_loop().run_in_executor(None, os.waitpid, child, 0)
    status = os.waitstatus_to_exitcode(status)
    await start(send)
    await body(send, f"the child ended with {status}".encode())


async def on_scope(scope, query, receive, send):
    names = ("type", "http_version", "method", "scheme", "path", "raw_path", "query_string", "root_path")
    fields = dict(scope["headers"])
    await start(send)
    await body(send, repr([scope[name] for name in names] + [fields[b"x-own"], scope["client"][0]]).encode())


async def on_framing(scope, query, receive, send):
    """The fields about the body."""
    fields = [field for field in scope["headers"] if field[0] in (b"content-length", b"transfer-encoding")]
    await start(send)
    await body(send, repr(fields).encode())


async def on_made(scope, query, receive, send):
    """n bytes in pieces."""
    n, piece = int(query["n"]), int(query["piece"])
    line = b"sixty-three bytes and a line feed are what this line is made of\n"
    data = (line * (n // len(line) + 1))[:n]
    await start(send)
    for at in range(0, n, piece):
        await body(send, data[at : at + piece], True)
    await body(send, b"")


async def on_late(scope, query, receive, send):
    """Has nothing to send for a while, then this body, or none."""
    await start(send)
    await asyncio.get_running_loop().run_in_executor(None, read_pipe)
    if "body" in query:
        await body(send, query["body"].encode())


def read_pipe():
    with open(os.path.join(FOLDER, "pipe"), "rb") as pipe:
        assert pipe.read() == b"go"


async def on_echo(scope, query, receive, send):
    names = [name for name, _ in scope["headers"]]
    assert len(names) == len(set(names)), names
    parts = []
    while True:
        message = await receive()
        assert message["type"] == "http.request"
        parts.append(message["body"])
        if not message["more_body"]:
            break
    await start(send)
    await body(send, b"".join(parts))
    assert (await receive())["type"] == "http.disconnect"


async def on_meet(scope, query, receive, send):
    """Two requests at a time: the first waits for the second."""
    if query["who"] == "first":
        await meeting.wait()
    else:
        meeting.set()
    await start(send)
    await body(send, query["who"].encode())


async def on_path(scope, query, receive, send):
    assert "http.response.pathsend" in scope["extensions"]
    await start(send)
    await send({"type": "http.response.pathsend", "path": os.path.join(FOLDER, query["name"])})


async def on_gone(scope, query, receive, send):
    """Sends until the client has gone."""
    assert (await receive())["type"] == "http.request"
    ended = asyncio.ensure_future(receive())
    await start(send)
    while not ended.done():
        await body(send, b"x" * 10000, True)
    assert (await ended)["type"] == "http.disconnect"
    with open(os.path.join(FOLDER, "gone"), "w") as file:
        file.write("gone")


async def on_behind(scope, query, receive, send):
    """Goes on behind its response until there is a file."""
    await start(send)
    await body(send, b"whole" * int(query["n"]))
    while not os.path.exists(os.path.join(FOLDER, query["until"])):
        await asyncio.sleep(0.01)
    note(query["note"])
    print("ended behind:", query["note"], file=sys.stderr, flush=True)


async def on_waits(scope, query, receive, send):
    """Neither sends nor listens until there is a file."""
    note(query["note"] + " begun")
    while not os.path.exists(os.path.join(FOLDER, query["until"])):
        await asyncio.sleep(0.01)
    note(query["note"])
    await start(send)
    await body(send, b"waited")


async def on_listens(scope, query, receive, send):
    """Sends nothing more, and waits for its client to leave."""
    assert (await receive())["type"] == "http.request"
    note(query["note"] + " begun")
    await start(send)
    await body(send, b"x" * int(query.get("n", 0)), True)
    assert (await receive())["type"] == "http.disconnect"
    note(query["note"])


async def on_streams(scope, query, receive, send):
    """Sends on after its client has left, while it listens: as Starlette's streams do."""
    await start(send)

    async def stream():
        while True:
            await body(send, b"x", True)
            await asyncio.sleep(0.01)

    assert (await receive())["type"] == "http.request"
    note(query["note"] + " begun")
    task = asyncio.ensure_future(stream())
    assert (await receive())["type"] == "http.disconnect"
    assert task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        note(query["note"])


async def on_events(scope, query, receive, send):
    """Starlette's StreamingResponse: a task sends what a generator yields, until its client leaves. The generator yields ``burst``
    pieces of ``size`` bytes without a pause. Notes whether it is closed when the task has ended."""
    size, burst, pause = int(query["size"]), int(query["burst"]), float(query["pause"])
    state = "open"

    async def events():
        nonlocal state
        try:
            while True:
                for _ in range(burst):
                    yield b"x" * size
                await asyncio.sleep(pause)
        finally:
            state = "closed"

    pieces = events()

    async def stream():
        await start(send)
        async for piece in pieces:
            await body(send, piece, True)

    task = asyncio.ensure_future(stream())
    while (await receive())["type"] != "http.disconnect":
        pass
    task.cancel()
    await asyncio.wait((task,))
    note(f"{query['note']} {state}")
    await pieces.aclose()


async def on_too_late(scope, query, receive, send):
    """Ends its response when the client has left, and goes on behind it."""
    await start(send)
    await body(send, b"begun", True)
    while (await receive())["type"] != "http.disconnect":
        pass
    await body(send, b"more", True)
    await body(send, b"end")
    note(query["note"] + " sent")
    while not os.path.exists(os.path.join(FOLDER, query["until"])):
        await asyncio.sleep(0.01)
    raise LookupError("behind a response without a client")


async def on_endless(scope, query, receive, send):
    """Never calls receive()."""
    await start(send)
    try:
        while True:
            await body(send, b"x" * 10000, True)
    except OSError:
        note(query["note"])
        raise


async def on_duplex(scope, query, receive, send):
    """Sends ticks while the body arrives."""
    await start(send)
    await body(send, b"begun", True)

    async def ticks():
        while True:
            await body(send, b"tick", True)
            await asyncio.sleep(0.05)

    task = asyncio.ensure_future(ticks())
    size, message = 0, {"more_body": True}
    while message.get("more_body"):
        message = await receive()
        size += len(message.get("body", b""))
    task.cancel()
    await asyncio.wait((task,))
    if message["type"] == "http.disconnect":
        assert task.cancelled()
        note(query["note"])
        return
    await body(send, b"got %d" % size)


async def on_awaits(scope, query, receive, send):
    """Only waits for the body."""
    await start(send)
    await body(send, b"begun", True)
    while (await receive())["type"] == "http.request":
        pass
    note(query["note"])
    await body(send, b"to nobody", True)
    note(query["note"] + " sent")


async def on_impatient(scope, query, receive, send):
    """Stops waiting for the body again and again."""
    await start(send)
    data, more = b"", True
    while more:
        try:
            message = await asyncio.wait_for(receive(), 0.01)
        except asyncio.TimeoutError:
            await body(send, b"waits", True)
            continue
        data += message["body"]
        more = message["more_body"]
    await body(send, data)


async def on_together(scope, query, receive, send):
    """Calls receive() three times at once."""
    calls = [asyncio.ensure_future(receive()) for _ in range(3)]
    first = await calls[0]
    await start(send)
    await body(send, first["body"], True)
    second = await calls[1]
    assert first["more_body"] and not second["more_body"]
    await body(send, second["body"])
    assert (await calls[2])["type"] == "http.disconnect"
    note(query["note"])


def note(name):
    with open(os.path.join(FOLDER, name), "w") as file:
        file.write(name)


async def on_fail_first(scope, query, receive, send):
    raise LookupError("before the start")


async def on_fail_started(scope, query, receive, send):
    await start(send)
    raise LookupError("after the start")


async def on_fail_silent(scope, query, receive, send):
    pass


async def on_fail_type(scope, query, receive, send):
    """`bytes(5)` would be five zeros."""
    await start(send)
    await body(send, 5)


async def on_fail_middle(scope, query, receive, send):
    await start(send)
    await body(send, b"x" * int(query["n"]), True)
    raise LookupError("in the middle")


async def on_fail_open(scope, query, receive, send):
    await start(send)
    await body(send, b"x", True)


async def on_fail_after(scope, query, receive, send):
    await start(send)
    await body(send, b"whole")
    raise LookupError("after the end")


async def on_fail_cancelled(scope, query, receive, send):
    await start(send)
    await body(send, b"x" * int(query["n"]), True)
    raise asyncio.CancelledError


async def on_fail_exit(scope, query, receive, send):
    await start(send)
    await body(send, b"x" * int(query["n"]), True)
    raise SystemExit("the application wants to end")


async def on_fail_path(scope, query, receive, send):
    """A file that is not there."""
    await start(send)
    await send({"type": "http.response.pathsend", "path": os.path.join(FOLDER, "no such file")})


async def on_fail_shrinks(scope, query, receive, send):
    path = os.path.join(FOLDER, query["name"])
    await start(send)
    shrink(path)
    await send({"type": "http.response.pathsend", "path": path})


async def on_late_path(scope, query, receive, send):
    """A file behind other bytes."""
    await start(send)
    await body(send, b"first ", True)
    await send({"type": "http.response.pathsend", "path": os.path.join(FOLDER, query["name"])})


async def on_loop(scope, query, receive, send):
    """Ends the event loop."""

    async def end():
        raise SystemExit("a task wants to end")

    await start(send)
    await body(send, b"begun", True)
    asyncio.ensure_future(end())
    await asyncio.sleep(3600)


async def on_pid(scope, query, receive, send):
    await start(send)
    await body(send, str(os.getpid()).encode())


async def on_loaded(scope, query, receive, send):
    await start(send)
    await body(send, str(loader).encode())
