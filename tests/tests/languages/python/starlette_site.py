"""A site on FastAPI: files, whole and in ranges, and what may stand between them and the server."""

import asyncio
import os

from fastapi import FastAPI
from fastapi.responses import FileResponse, StreamingResponse
from starlette.background import BackgroundTask
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.staticfiles import StaticFiles

FOLDER = os.path.dirname(os.path.abspath(__file__))
FILE = os.path.join(FOLDER, "a")

application = FastAPI()
application.add_middleware(CORSMiddleware, allow_origins=["https://shop.example"])
# The number of background tasks that have run.
done = 0


@application.get("/hello")
async def hello():
    return "hello"


@application.api_route("/download", methods=["GET", "HEAD"])
def download():
    return FileResponse(FILE, media_type="image/png")


@application.get("/task")
async def task():
    async def count():
        global done
        done += 1

    return FileResponse(FILE, media_type="image/png", background=BackgroundTask(count))


@application.get("/done")
async def tasks_done():
    return done


@application.get("/events")
async def events():
    """Server-sent events: one, and then none until the client leaves."""

    async def event():
        try:
            yield "data: first\n\n"
            await asyncio.Event().wait()
        finally:
            open(os.path.join(FOLDER, "events ended"), "w").close()

    return StreamingResponse(event(), media_type="text/event-stream")


@application.get("/ticks")
async def ticks():
    """Server-sent events without an end."""

    async def tick():
        try:
            while True:
                yield "data: tick\n\n"
                await asyncio.sleep(0.05)
        finally:
            open(os.path.join(FOLDER, "ticks ended"), "w").close()

    return StreamingResponse(tick(), media_type="text/event-stream")


class Own(FileResponse):
    """A file that the application opens in its own way."""

    async def _handle_single_range(self, send, start, end, file_size, send_header_only):
        await send({"type": "http.response.start", "status": 206, "headers": self.raw_headers[:1]})
        with open(self.path, "rb") as file:
            file.seek(start)
            for more in (True, False):
                chunk = file.read(70_000)
                await send({"type": "http.response.body", "body": chunk, "more_body": more})


@application.get("/own")
async def own():
    return Own(FILE, media_type="image/png")


@application.get("/read")
async def read():
    async def pieces():
        with open(FILE, "rb") as file:
            while chunk := file.read(65536):
                yield chunk

    return StreamingResponse(pieces(), 206, {"Content-Range": "bytes 0-299999/300000", "Content-Length": "300000"})


@application.get("/shrinks")
async def shrinks():
    """A file that becomes shorter while its range is sent."""
    path = os.path.join(FOLDER, "b")
    open(path, "wb").write(b"x" * 300_000)
    response = FileResponse(path, stat_result=os.stat(path), media_type="image/png")
    os.truncate(path, 150_000)
    return response


class Changing:
    """Changes all pieces of files but the first."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        pieces = 0

        async def change(message):
            nonlocal pieces
            if len(message.get("body", b"")) > 1000:
                pieces += 1
                if pieces > 1:
                    message["body"] = message["body"].swapcase()
            await send(message)

        await self.app(scope, receive, change)


class Hidden:
    """Changes all pieces of files but the first, by a function that is not on the stack when they are sent."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        pieces = 0

        def change(message):
            nonlocal pieces
            if len(message.get("body", b"")) > 1000:
                pieces += 1
                if pieces > 1:
                    message["body"] = message["body"].swapcase()
            return send(message)

        await self.app(scope, receive, change)


class Late:
    """Sends each message in a task of its own."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        await self.app(scope, receive, lambda message: asyncio.ensure_future(send(message)))


application.mount("/static", StaticFiles(directory=FOLDER))
application.mount("/gzip", GZipMiddleware(StaticFiles(directory=FOLDER)))
application.mount("/changing", Changing(StaticFiles(directory=FOLDER)))
application.mount("/hidden", Hidden(StaticFiles(directory=FOLDER)))
application.mount("/late", Late(StaticFiles(directory=FOLDER)))
