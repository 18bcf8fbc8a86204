"""Processes that an application forks, and that come back out of it instead of ending there."""

import os
import sys
import traceback


def end_if_forked(owner, error=None):
    """Ends this process unless it is ``owner``: the connection and the listener are its parent's.

    ``error`` is the exception with which the application has ended; the status is the interpreter's for it."""
    if os.getpid() == owner:
        return
    status = 0
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        status = (error.code or 0) & 0xFF
    elif error is not None:
        status = 1
        if isinstance(error, SystemExit):
            print(error.code, file=sys.stderr)
        else:
            traceback.print_exception(type(error), error, error.__traceback__)
    _end(status)


def end_without_loop(loop):
    """Has each process that the application forks end when it awaits something, or when a function ends that it runs in a
    thread of a pool: both return to ``loop``, whose selector and whose threads are the parent's."""

    def awaits():
        print("A forked process awaits the event loop of its parent: it ends", file=sys.stderr)
        _end(1)

    def in_child():
        loop.call_soon(awaits)
        loop.call_soon_threadsafe = lambda *_, **__: _end(0)

    os.register_at_fork(after_in_child=in_child)


def _end(status):
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            pass  # The application has closed it.
    os._exit(status)
