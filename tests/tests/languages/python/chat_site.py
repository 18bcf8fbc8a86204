"""A chat on FastAPI, as its documentation has it."""

from fastapi import FastAPI, WebSocket, WebSocketDisconnect

application = FastAPI()
rooms = []


@application.get("/hello")
async def hello():
    return len(rooms)


@application.websocket("/chat/{name}")
async def chat(websocket: WebSocket, name: str):
    await websocket.accept()
    rooms.append(websocket)
    try:
        while True:
            text = await websocket.receive_text()
            for room in rooms:
                await room.send_text(f"{name}: {text}")
    except WebSocketDisconnect:
        rooms.remove(websocket)


@application.websocket("/echo")
async def echo(websocket: WebSocket):
    await websocket.accept()
    async for message in websocket.iter_bytes():
        await websocket.send_bytes(message)
