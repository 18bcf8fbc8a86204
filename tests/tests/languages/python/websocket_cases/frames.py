"""Frames of WebSockets (RFC 6455 §5.2): a client's are made, a server's are read."""

import zlib

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
FIN, RSV1 = 0x80, 0x40
MASK = bytes([0x37, 0xFA, 0x21, 0x3D])


def frame(first, payload=b"", mask=MASK):
    """A client's frame with this first byte."""
    size = len(payload)
    masked = 0x80 if mask else 0
    if size < 126:
        head = bytes([first, masked | size])
    elif size < 65_536:
        head = bytes([first, masked | 126]) + size.to_bytes(2, "big")
    else:
        head = bytes([first, masked | 127]) + size.to_bytes(8, "big")
    if not mask:
        return head + payload
    stream = (mask * (size // 4 + 1))[:size]
    return head + mask + (int.from_bytes(payload, "big") ^ int.from_bytes(stream, "big")).to_bytes(size, "big")


def message(opcode, payload=b""):
    return frame(FIN | opcode, payload)


def fragments(opcode, payload, size, between=b""):
    """A message in frames of ``size`` bytes, with ``between`` before each but the first. ``opcode`` may hold RSV1."""
    pieces = [payload[at : at + size] for at in range(0, max(len(payload), 1), size)]
    made = []
    for number, piece in enumerate(pieces):
        first = (CONTINUATION if number else opcode) | (FIN if number == len(pieces) - 1 else 0)
        made.append((between if number else b"") + frame(first, piece))
    return b"".join(made)


def close(code, reason=b""):
    return message(CLOSE, code.to_bytes(2, "big") + reason)


def deflated(payload, compressor):
    """The payload as RFC 7692 §7.2.1 has it."""
    compressed = compressor.compress(payload) + compressor.flush(zlib.Z_SYNC_FLUSH)
    return compressed.removesuffix(b"\x00\x00\xff\xff")


NORMAL_CLOSE = close(1000)


class Reader:
    """Reads a server's frames, and inflates messages as the server's extension says."""

    def __init__(self, extension):
        self.extension = extension
        self.rest = bytearray()
        self.pieces = None
        self.inflater = None

    def feed(self, data):
        """Yields opcode and payload of each message and control frame."""
        self.rest += data
        at = 0
        while (found := self._frame_at(at)) is not None:
            first, payload, at = found
            yield from self._take(first, payload)
        del self.rest[:at]

    def _frame_at(self, at):
        head = self.rest[at : at + 10]
        if len(head) < 2:
            return None
        assert not head[1] & 0x80, "a server's frame has a mask"
        size, start = head[1], 2
        if size > 125:
            start = 4 if size == 126 else 10
            if len(head) < start:
                return None
            size = int.from_bytes(head[2:start], "big")
        end = at + start + size
        return (head[0], bytes(self.rest[at + start : end]), end) if len(self.rest) >= end else None

    def _take(self, first, payload):
        opcode = first & 15
        if opcode >= CLOSE:
            yield opcode, payload
            return
        if opcode != CONTINUATION:
            assert self.pieces is None, "a message within a message"
            self.pieces = (first, [])
        self.pieces[1].append(payload)
        if first & FIN:
            (first, pieces), self.pieces = self.pieces, None
            whole = b"".join(pieces)
            yield first & 15, self._inflate(whole) if first & RSV1 else whole

    def _inflate(self, data):
        assert "permessage-deflate" in self.extension, "RSV1 without the extension"
        if self.inflater is None or "server_no_context_takeover" in self.extension:
            bits = self.extension.partition("server_max_window_bits=")[2].partition(";")[0]
            self.inflater = zlib.decompressobj(-int(bits or 15))
        return self.inflater.decompress(data + b"\x00\x00\xff\xff")
