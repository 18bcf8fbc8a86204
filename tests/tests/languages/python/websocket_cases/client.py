"""Runs the cases of WebSockets: client.py DIRECT CLEAR TLS [FILTER].

DIRECT is the port of wsproto_server.py, CLEAR and TLS are the web server's; it passes /wsproto on to that port, and runs
echo_site.py at /asgi. Prints a line for each way, and ends with
status 1 if a case fails; standard error says why."""

import asyncio
import sys
import time

from cases import every_case
from frames import CLOSE, NORMAL_CLOSE, PONG, Reader
from transports import Http1, Http2, Http3

LIMIT = 60
AT_A_TIME = 12


async def run(connection, path, case):
    """Runs a case. Returns the server's choice of extensions, its bytes, and the messages and frames in them."""
    socket = await connection.open(path, case.offer)
    reader, received, came = Reader(socket.extension), bytearray(), []

    async def send():
        try:
            for at in range(0, len(case.sent), case.chop):
                await socket.send(case.sent[at : at + case.chop])
        except OSError:
            assert case.is_ended

    async def close():
        await sending
        await socket.send(NORMAL_CLOSE)

    sending, closing = asyncio.ensure_future(send()), None
    try:
        while data := await socket.receive():
            received += data
            came += reader.feed(data)
            if closing is None and not case.is_ended and len(came) >= len(case.answers):
                closing = asyncio.ensure_future(close())
        await (closing or sending)
    finally:
        sending.cancel()
    await socket.finish()
    return socket.extension, bytes(received), came


def mistake_in(case, came):
    """The difference between what came and what the case expects, or None."""
    if not came or came[-1][0] != CLOSE:
        return f"no close frame at the end: {shown(came)}"
    *answers, (_, payload) = came
    code = int.from_bytes(payload[:2], "big") if payload else None
    if code not in case.closes:
        return f"closed with {code} {payload[2:]}"
    # A pong may overtake messages.
    for is_pong in (True, False):
        got, wanted = ([answer for answer in of if (answer[0] == PONG) is is_pong] for of in (answers, case.answers))
        if got != (wanted[: len(got)] if case.is_ended else wanted):
            return f"{shown(got)} in place of {shown(wanted)}"
    return None


def shown(answers):
    return [(opcode, len(payload), payload[:20]) for opcode, payload in answers[:20]]


async def run_all(name, connection, path, cases, direct=None):
    """Runs all cases over a connection. ``direct``: the results that are expected byte for byte. Returns the results, and True if a
    case has failed."""
    begun, results, failed, places = time.monotonic(), {}, [], asyncio.Semaphore(AT_A_TIME)

    async def one(case):
        async with places:
            try:
                extension, received, came = await asyncio.wait_for(run(connection, path, case), LIMIT)
            except Exception as error:
                failed.append(f"{case.name}: {error!r}")
                return
        results[case.name] = extension, received
        mistake = mistake_in(case, came)
        if mistake is None and direct is not None and direct[case.name] != results[case.name]:
            mistake = "other bytes than without a server between"
        if mistake is not None:
            failed.append(f"{case.name}: {mistake}")

    async with connection as connection:
        await asyncio.gather(*map(one, cases))
    for line in failed:
        print(f"{name}: {line}", file=sys.stderr)
    print(f"{name}: {len(cases) - len(failed)} of {len(cases)}", flush=True)
    print(f"{name} took {time.monotonic() - begun:.1f} s", file=sys.stderr)
    return results, bool(failed)


async def main(direct, clear, tls, wanted=""):
    every = [case for case in every_case() if wanted in case.name]
    for_wsproto = [case for case in every if case.is_for_wsproto]
    bytes_of, has_failed = await run_all("direct", Http1(int(direct), False), "/wsproto", for_wsproto)
    for name, connect in (
        ("HTTP/1.1", lambda: Http1(int(clear), False)),
        ("HTTP/1.1 in TLS", lambda: Http1(int(tls), True)),
        ("HTTP/2", lambda: Http2(int(tls))),
        ("HTTP/3", lambda: Http3(int(tls))),
    ):
        _, proxy = await run_all(f"{name}, proxy", connect(), "/wsproto", for_wsproto, bytes_of)
        _, asgi = await run_all(f"{name}, ASGI", connect(), "/asgi", every)
        has_failed |= proxy or asgi
    return has_failed


sys.exit(asyncio.run(main(*sys.argv[1:])))
