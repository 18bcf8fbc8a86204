"""Two clients chat over every transport of socket.io: client.py URL..."""

import asyncio
import sys

import socketio

LIMIT = 30
BOTH = ["polling", "websocket"]


class User:
    """A client, and the events that it has got."""

    def __init__(self, name):
        self.name, self.events = name, asyncio.Queue()
        self.client = socketio.AsyncClient(ssl_verify=False, reconnection=False)
        for event in ("said", "joined", "left"):
            self.client.on(event, lambda *arguments, event=event: self.events.put_nowait((event, *arguments)))

    async def connect(self, url, transports):
        await self.client.connect(url, transports=transports, auth={"name": self.name})
        transport = self.client.transport()
        assert transport == transports[-1], f"{transport}, not {transports[-1]}"

    async def got(self, *expected):
        event = await asyncio.wait_for(self.events.get(), LIMIT)
        assert event == expected, f"{self.name} got {str(event)[:200]}, not {str(expected)[:200]}"

    async def call(self, event, *arguments):
        return await self.client.call(event, arguments, timeout=LIMIT)


async def refused(url):
    nameless, reasons = socketio.AsyncClient(ssl_verify=False, reconnection=False), []
    nameless.on("connect_error", reasons.append)
    try:
        await nameless.connect(url)
    except socketio.exceptions.ConnectionError:
        assert reasons == [{"message": "a name is missing"}], reasons
    else:
        raise AssertionError("a client without a name was let in")


async def chat(url, of_ann, of_bob):
    ann, bob = User("ann"), User("bob")
    await ann.connect(url, of_ann)
    await bob.connect(url, of_bob)
    assert await ann.call("join", "hall") == {"room": "hall", "transport": of_ann[-1]}
    assert await bob.call("join", "hall") == {"room": "hall", "transport": of_bob[-1]}
    await ann.got("joined", "bob")
    messages = ["Grüße", "", "x" * 300_000]
    # python-engineio 4.15.1 encodes bytes once for all members of a room, and fails if one has a WebSocket and one polls.
    if of_ann[-1] == of_bob[-1]:
        messages += [b"\x00\xff\x1e", bytes(range(256)) * 2000]
    for message in messages:
        for speaker in (ann, bob):
            assert await speaker.call("say", "hall", message) == len(message)
            for listener in (ann, bob):
                await listener.got("said", speaker.name, message)
    # Several at a time arrive in order. (A body with more than 16 packets is refused.)
    for burst in range(0, 160, 8):
        for number in range(burst, burst + 8):
            await ann.client.emit("say", ("hall", str(number)))
        for number in range(burst, burst + 8):
            await bob.got("said", "ann", str(number))
            await ann.got("said", "ann", str(number))
    # A room is for its members.
    await bob.client.emit("leave", "hall")
    assert await bob.call("join", "kitchen") == {"room": "kitchen", "transport": of_bob[-1]}
    assert await ann.call("say", "hall", "alone") == 5
    await ann.got("said", "ann", "alone")
    assert await bob.call("say", "kitchen", "here") == 4
    await bob.got("said", "bob", "here")
    # The server hears that a client has left.
    await bob.client.disconnect()
    await ann.got("left", "bob")
    await ann.client.disconnect()


async def main(urls):
    for url in urls:
        await refused(url)
        for of_ann, of_bob in ((BOTH, BOTH), (["polling"], ["polling"]), (["websocket"], ["polling"]), (BOTH, ["websocket"])):
            await asyncio.wait_for(chat(url, of_ann, of_bob), 2 * LIMIT)
    print("all as expected")


asyncio.run(main(sys.argv[1:]))
