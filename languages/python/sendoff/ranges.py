"""Ranges of files that Starlette, and so FastAPI, reads and sends in pieces.

``FileResponse`` has no message for a part of a file: it opens the file, moves to the range, and sends it in pieces of 64 KiB. With
the first piece all of it is known, and can be handed over, if

* the method that sends is Starlette's, and its loop is the one below: it ends as usual when the file does;
* the functions through which the message has come pass messages on as they are, each to the next;
* the piece is the very object that the method has read, and it has read it from a plain file.

Then the file is moved to its end, and the loop ends. In any other case the pieces are sent as they come.
"""

import ast
import functools
import inspect
import textwrap

from .files import plain_file
from .known import is_named

_LOOP = """\
while more_body:
    chunk = await file.read(min(self.chunk_size, end - start))
    start += len(chunk)
    more_body = len(chunk) == self.chunk_size and start < end
    await send({'type': 'http.response.body', 'body': chunk, 'more_body': more_body})"""

# Modules and functions that pass on a message with a piece of a body unchanged.
_PASS_ON = {
    ("fastapi._body_limit", "send_response"),
    ("fastapi.telemetry._asgi", "wrapped_send"),
    ("starlette._exception_handler", "sender"),
    ("starlette.middleware.body_limit", "send_with_limit"),
    ("starlette.middleware.cors", "send"),
    ("starlette.middleware.errors", "_send"),
    ("starlette.middleware.sessions", "send_wrapper"),
}

# Cache: true for code objects with the loop.
_examined = {}


def range_of(send, frame, chunk, length):
    """The file and the offset of a range of ``length`` bytes, if ``send`` got its first piece; None if that is not certain.

    ``frame`` is that of the function that waits for ``send``; those that wait for it lie behind.
    """
    code = _code(send)
    while (frame.f_globals.get("__name__"), frame.f_code.co_name) in _PASS_ON:
        # A function without a frame may have been in between: one that has returned a coroutine.
        if _code(_next(frame)) is not code or frame.f_back is None:
            return None
        code, frame = frame.f_code, frame.f_back
    if not _sends_range(frame) or _code(_next(frame)) is not code:
        return None
    values = frame.f_locals
    try:
        file, start, end = values["file"], values["start"], values["end"]
        first = start - len(chunk)
        if values["chunk"] is not chunk or end - first != length or not is_named(file, "anyio._core._fileio", "AsyncFile"):
            return None
        plain = plain_file(file.wrapped)
    except (AttributeError, KeyError):
        return None  # Another version.
    return (file.wrapped, first) if plain is not None and plain[1] == start else None


def _next(frame):
    """The ``send`` to which a frame's function passes messages on."""
    values = frame.f_locals
    if frame.f_globals["__name__"] == "starlette.middleware.body_limit":
        return getattr(values.get("self"), "send", None)
    return values.get("send")


def _code(function):
    """The code of a function, a method, or a partial; None for any other callable."""
    if type(function) is functools.partial:
        function = function.func
    return getattr(getattr(function, "__func__", function), "__code__", None)


def _sends_range(frame):
    """True for a frame of Starlette's method in its known form."""
    code = frame.f_code
    if code.co_name != "_handle_single_range" or frame.f_globals.get("__name__") != "starlette.responses":
        return False
    if code not in _examined:
        _examined[code] = _has_loop(code)
    return _examined[code]


def _has_loop(code):
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, SyntaxError):
        return False  # Without its source.
    loops = [node for node in ast.walk(tree) if isinstance(node, (ast.While, ast.For, ast.AsyncFor))]
    return [ast.unparse(node) for node in loops] == [_LOOP]
