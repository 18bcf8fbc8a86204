"""What a client sends over a WebSocket, and the answers of an echo (RFC 6455, RFC 7692).

The subjects are those of Autobahn's cases, in its order: framing, pings, reserved bits, opcodes, fragments, UTF-8, closing,
sizes, compression."""

import dataclasses
import random
import zlib

from frames import BINARY, CLOSE, CONTINUATION, FIN, PING, PONG, RSV1, TEXT
from frames import close, deflated, fragments, frame, message

NORMAL, PROTOCOL_ERROR, NOT_TEXT, TOO_LARGE = 1000, 1002, 1007, 1009
MB = 1 << 20
AT_ONCE = 1 << 18


@dataclasses.dataclass
class Case:
    """``sent`` is written in pieces of ``chop`` bytes. The client closes when it has every answer. If ``is_ended``, ``sent``
    ends the connection by itself, and messages before that may stay without an answer."""

    name: str
    sent: bytes
    answers: list
    # Codes of the server's close frame; None: it has no code.
    closes: tuple = (NORMAL,)
    is_ended: bool = False
    chop: int = AT_ONCE
    # Sec-WebSocket-Extensions
    offer: str = ""
    # wsproto knows no limit of a message, and takes a control frame within a compressed message for its end.
    is_for_wsproto: bool = True


def every_case():
    groups = (framing, pings, reserved, opcodes, fragmentation, utf8, closing, sizes, compression)
    return [case for group in groups for case in group()]


def fails(name, sent, closes=(PROTOCOL_ERROR,), answers=(), **more):
    """The server closes, and answers nothing behind the mistake."""
    return Case(name, sent + message(TEXT, b"behind it"), list(answers), closes, is_ended=True, **more)


def pattern(size):
    return random.Random(size).randbytes(size)


def text(size):
    return (b"Sixty-three bytes of text and a line feed are what it repeats.\n" * (size // 63 + 1))[:size]


def framing():
    for opcode, make in ((TEXT, text), (BINARY, pattern)):
        for size in (0, 1, 124, 125, 126, 127, 128, 65_535, 65_536, 65_537):
            for chop in (AT_ONCE, 997 if size > 128 else 1):
                sent = message(opcode, make(size))
                yield Case(f"framing {opcode} of {size} by {chop}", sent, [(opcode, make(size))], chop=chop)
    for mask in (bytes(4), b"\xff\xff\xff\xff", b"\x00\x01\x00\x80"):
        yield Case(f"mask {mask.hex()}", frame(FIN | BINARY, pattern(1000), mask), [(BINARY, pattern(1000))])
    yield fails("no mask", frame(FIN | TEXT, b"bare", mask=b""))
    yield fails("64 bits of length", b"\x82\xff" + b"\xff" * 8 + b"mask", (PROTOCOL_ERROR, TOO_LARGE))


def pings():
    for payload in (b"", b"Hello", bytes([0, 255, 254, 253, 252, 251, 0, 255]), b"\xfe" * 125):
        for chop in (AT_ONCE, 1):
            yield Case(f"ping of {len(payload)} by {chop}", message(PING, payload), [(PONG, payload)], chop=chop)
    yield fails("ping of 126 bytes", message(PING, b"\xfe" * 126))
    for payload in (b"", b"unsolicited"):
        sent = message(PONG, payload) + message(PING, b"after it")
        yield Case(f"pong of {len(payload)}", sent, [(PONG, b"after it")])
    payloads = [b"payload %d" % number for number in range(10)]
    for chop in (AT_ONCE, 1):
        sent = b"".join(message(PING, payload) for payload in payloads)
        yield Case(f"ten pings by {chop}", sent, [(PONG, payload) for payload in payloads], chop=chop)


def reserved():
    for bits in range(1, 8):
        for opcode in (TEXT, BINARY, PING, CLOSE):
            sent = message(TEXT, b"before") + frame(FIN | bits << 4 | opcode, b"")
            yield fails(f"reserved bits {bits} of {opcode}", sent, answers=[(TEXT, b"before")])


def opcodes():
    for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15):
        for payload in (b"", b"reserved"):
            sent = message(TEXT, b"before") + message(opcode, payload)
            yield fails(f"opcode {opcode} {payload}", sent, answers=[(TEXT, b"before")])


def fragmentation():
    for chop in (AT_ONCE, 1):
        yield fails(f"ping in fragments by {chop}", fragments(PING, b"fragment1fragment2", 9), chop=chop)
        yield fails(f"pong in fragments by {chop}", fragments(PONG, b"fragment1fragment2", 9), chop=chop)
        for opcode in (TEXT, BINARY):
            for size in (1, 7, 100):
                for between in (b"", message(PING, b"between"), message(PONG, b"between")):
                    payload = b"fragment by fragment"
                    sent = fragments(opcode, payload, size, between)
                    pongs = [(PONG, b"between")] * (sent.count(between) if between[:1] == b"\x89" else 0)
                    name = f"fragments of {size} of {opcode} around {between[:1].hex()} by {chop}"
                    yield Case(name, sent, [*pongs, (opcode, payload)], chop=chop)
        for first in (FIN, 0):
            sent = frame(first | CONTINUATION, b"of nothing") + message(TEXT, b"whole")
            yield fails(f"a continuation of nothing, {first}, by {chop}", sent, chop=chop)
        sent = frame(TEXT, b"fragment") + message(TEXT, b"another message")
        yield fails(f"a message within a message by {chop}", sent, chop=chop)
        sent = frame(TEXT) + frame(CONTINUATION) + frame(FIN)
        yield Case(f"three empty fragments by {chop}", sent, [(TEXT, b"")], chop=chop)
        sent = frame(TEXT) + frame(CONTINUATION, b"middle") + frame(FIN)
        yield Case(f"an empty fragment before and behind by {chop}", sent, [(TEXT, b"middle")], chop=chop)


# The first and the last of each length, around the surrogates, and what is no character (Unicode 3.9, table 3-7).
CHARACTERS = (0, 0x7F, 0x80, 0x7FF, 0x800, 0xFFF, 0x1000, 0xCFFF, 0xD000, 0xD7FF, 0xE000, 0xFFFD, 0xFFFE, 0xFFFF)
CHARACTERS += (0x10000, 0x3FFFF, 0x40000, 0xFFFFF, 0x100000, 0x10FFFE, 0x10FFFF)
MISTAKES = (
    # Bytes that continue nothing, beginnings without an end, bytes that never occur.
    "80 bf 8080 bfbf c2 c220 e0a0 e0a020 e180 e18020 f090 f09080 f0908020 f180 f1808020 f4 f48f f48fbf fe ff fefeffff "
    # More bytes than the character needs.
    "c080 c0af c1bf e08080 e080af e09fbf f0808080 f08080af f08fbfbf f880808080 f8808080af fc8080808080 fc80808080af "
    # Surrogates, alone and in pairs; behind the last character.
    "eda080 edadbf edae80 edafbf edb080 edbe80 edbfbf eda080edb080 edafbfedbfbf f4908080 f5808080 f7bfbfbf fbbfbfbfbf"
)


def utf8():
    texts = {f"U+{character:04X}": chr(character).encode() for character in CHARACTERS}
    texts["a Greek word"] = "κόσμε".encode()
    for name, payload in texts.items():
        payload = b"<" + payload + b">"
        for size in (1, 100):
            yield Case(f"{name} in fragments of {size}", fragments(TEXT, payload, size), [(TEXT, payload)])
        yield Case(f"{name} by 1", message(TEXT, payload), [(TEXT, payload)], chop=1)
    for mistake in MISTAKES.split():
        payload = "κόσμε".encode() + bytes.fromhex(mistake)
        for size in (1, 100):
            yield fails(f"{mistake} in fragments of {size}", fragments(TEXT, payload, size), (NOT_TEXT,))
        yield fails(f"{mistake} by 1", message(TEXT, payload + b"edited"), (NOT_TEXT,), chop=1)
        yield Case(f"{mistake} as bytes", message(BINARY, payload), [(BINARY, payload)])


def closing():
    def ends(name, sent, closes=(NORMAL,), answers=()):
        return Case(name, sent, list(answers), closes, is_ended=True)

    yield ends("a message, then close", message(TEXT, b"Hello") + close(NORMAL), answers=[(TEXT, b"Hello")])
    yield ends("close twice", close(NORMAL) + close(NORMAL))
    yield ends("a ping behind close", close(NORMAL) + message(PING, b"late"))
    yield ends("a message behind close", close(NORMAL) + message(TEXT, b"late"))
    within = frame(TEXT, b"fragment") + close(NORMAL) + frame(FIN, b"late")
    yield ends("close within a message", within, (NORMAL, PROTOCOL_ERROR))
    large = message(TEXT, text(MB // 4))
    yield ends("a large message, then close", large + close(NORMAL), answers=[(TEXT, text(MB // 4))])
    yield ends("close without a code", message(CLOSE), (NORMAL, None))
    yield ends("close of one byte", message(CLOSE, b"a"), (PROTOCOL_ERROR,))
    for reason in (b"", b"Hello World!", b"*" * 123, "κόσμε".encode()):
        yield ends(f"close with {len(reason)} bytes of a reason", close(NORMAL, reason))
    yield ends("close with 124 bytes of a reason", close(NORMAL, b"*" * 124), (PROTOCOL_ERROR,))
    yield ends("close with a reason that is no text", close(NORMAL, b"\xce\xba\xed\xa0\x80"), (PROTOCOL_ERROR, NOT_TEXT))
    for code in (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 3000, 3999, 4000, 4999):
        yield ends(f"close with {code}", close(code), (code, NORMAL))
    for code in (0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535):
        yield ends(f"close with {code}", close(code), (PROTOCOL_ERROR,))


def sizes():
    for size in (MB, 4 * MB, 16 * MB):
        yield Case(f"size of {size}", message(BINARY, pattern(size)), [(BINARY, pattern(size))])
    yield Case("size of 4 MiB of text", message(TEXT, text(4 * MB)), [(TEXT, text(4 * MB))])
    sent = frame(FIN | BINARY, bytes(16 * MB + 1), bytes(4))
    yield fails("size above the limit", sent, (TOO_LARGE,), is_for_wsproto=False)
    for size in (256, 4096, 65_536, 262_144):
        yield Case(f"1 MiB in fragments of {size}", fragments(BINARY, pattern(MB), size), [(BINARY, pattern(MB))])
    for chop in (64, 1000, 2048):
        yield Case(f"1 MiB by {chop}", message(TEXT, text(MB)), [(TEXT, text(MB))], chop=chop)
    for size, count in ((0, 2000), (16, 2000), (125, 2000), (4096, 1000)):
        sent = message(BINARY, pattern(size)) * count
        yield Case(f"{count} messages of {size}", sent, [(BINARY, pattern(size))] * count)


def compression():
    offer = "permessage-deflate"
    for bits in range(9, 16):
        for takeover in ("", "; server_no_context_takeover; client_no_context_takeover"):
            windows = f"{offer}; server_max_window_bits={bits}; client_max_window_bits={bits}{takeover}"
            for name, sent, answers in flows(bits, keeps=not takeover):
                yield Case(f"{name}, {windows}", sent, answers, offer=windows)
    for name, sent, answers in flows(15, keeps=True):
        for chop in (AT_ONCE, 997):
            yield Case(f"{name} by {chop}", sent, answers, offer=f"x-unknown; a=b, {offer}", chop=chop)
    compressed = deflated(text(1000), zlib.compressobj(wbits=-15))
    sent = fragments(RSV1 | TEXT, compressed, 10, message(PING, b"between"))
    pongs = [(PONG, b"between")] * sent.count(message(PING, b"between"))
    yield Case("compressed around pings", sent, [*pongs, (TEXT, text(1000))], offer=offer, is_for_wsproto=False)
    # zlib cannot compress with 8 bits, so servers decline.
    yield Case("declined", message(TEXT, b"plain"), [(TEXT, b"plain")], offer=f"{offer}; server_max_window_bits=8")
    yield Case("unknown", message(TEXT, b"plain"), [(TEXT, b"plain")], offer="x-unknown; a=b")
    hello = deflated(b"Hello", zlib.compressobj(wbits=-15))
    yield fails("a compressed ping", frame(FIN | RSV1 | PING, hello), offer=offer)
    again = frame(RSV1 | TEXT, hello) + frame(FIN | RSV1 | CONTINUATION, b"")
    yield fails("a compressed continuation", again, offer=offer)
    yield fails("no deflate", frame(FIN | RSV1 | BINARY, b"\xff" * 20), (PROTOCOL_ERROR, NOT_TEXT), offer=offer)
    wrong = deflated(b"\xed\xa0\x80", zlib.compressobj(wbits=-15))
    yield fails("compressed bytes as text", frame(FIN | RSV1 | TEXT, wrong), (NOT_TEXT,), offer=offer)
    bomb = deflated(bytes(64 * MB), zlib.compressobj(wbits=-15))
    yield fails("64 MiB in 64 KiB", frame(FIN | RSV1 | BINARY, bomb), (TOO_LARGE,), offer=offer, is_for_wsproto=False)


def flows(bits, keeps):
    """Compressed messages of a client with this window, which ``keeps`` it from message to message."""
    payloads = [(TEXT, text(size)) for size in (0, 16, 64, 1024, 8192, 131_072)]
    payloads += [(BINARY, pattern(size)) for size in (1, 4096, 65_536)]
    compressor = zlib.compressobj(wbits=-bits)
    whole, parted = b"", b""
    for opcode, payload in payloads * 2:
        compressor = compressor if keeps else zlib.compressobj(wbits=-bits)
        compressed = deflated(payload, compressor)
        whole += frame(FIN | RSV1 | opcode, compressed)
        parted += fragments(RSV1 | opcode, compressed, 1000)
    yield "compressed", whole, payloads * 2
    yield "compressed, in fragments", parted, payloads * 2
    mixed = message(TEXT, b"plain") + whole + message(BINARY, b"")
    yield "compressed and not", mixed, [(TEXT, b"plain"), *payloads * 2, (BINARY, b"")]
