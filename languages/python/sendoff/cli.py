"""The command ``sendoff-python``."""

import argparse
import json
import os
import pwd
import sys
import traceback

from . import __version__, _sendoff, load
from .log import log
from .master import STATE, Master

# Maximum number of connections in the backlog.
BACKLOG = 1024

USAGE_ERROR = 2


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="sendoff-python",
        description="Runs a WSGI or ASGI application as FastCGI processes, to which a web server connects.",
        epilog="SIGTERM finishes open requests and ends; SIGHUP loads the application anew.",
    )
    add = parser.add_argument
    add("application", metavar="MODULE:APPLICATION", help="such as shop.wsgi:application, or app:create_app()")
    add(
        "--bind",
        metavar="ADDRESS",
        help="unix:/path, host:port or fd:N; without it descriptor 0, if that is a listening socket",
    )
    add("--socket-mode", metavar="MODE", type=octal, default=0o660, help="of a UNIX socket (default: 660)")
    add("--workers", metavar="N", type=count, default=os.cpu_count() or 1, help="processes (default: one per CPU)")
    add("--threads", metavar="N", type=count, default=1, help="requests at a time per process (default: 1)")
    add("--max-requests", metavar="N", type=count, help="a process ends after N requests, up to a tenth more")
    add("--preload", action="store_true", help="load the application once, before processes are forked")
    add("--reload", action="store_true", help="load the application anew when a source file changes")
    add("--interface", choices=("auto", "wsgi", "asgi"), default="auto", help="(default: by the kind of application)")
    add(
        "--fragments",
        metavar="MIB",
        type=mebibytes,
        default=32 << 20,
        help="memory for fragments that the processes share, from 8 on; 0: none (default: 32)",
    )
    add("--user", metavar="NAME", help="the account of the processes, if started by root")
    add("--chdir", metavar="DIR", help="where modules are looked for (default: the current folder)")
    add("--stop-timeout", metavar="SECONDS", type=float, default=30.0, help="how long requests may take at the end (default: 30)")
    add("--check", action="store_true", help="load the application and end")
    add("--version", action="version", version=f"sendoff-python {__version__}")
    return parser.parse_args(arguments)


def count(text):
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def mebibytes(text):
    number = int(text)
    if number != 0 and not 8 <= number <= 4096:
        raise ValueError
    return number << 20


def octal(text):
    return int(text, 8)


class Mistake(Exception):
    """An error in the command line or on the machine; the text contains the remedy."""


def account(options):
    """The account for --user."""
    if options.user is None:
        return None
    if os.getuid() != 0:
        raise Mistake("--user needs root")
    try:
        return pwd.getpwnam(options.user)
    except KeyError:
        raise Mistake(f"there is no account {options.user!r}") from None


def listener(options):
    """The descriptor of the listening socket."""
    if STATE in os.environ:
        return json.loads(os.environ[STATE])["listener"]
    bind = options.bind
    if bind is None:
        if not _sendoff.is_listener(0):
            raise Mistake("--bind is missing (unix:/path or host:port), and descriptor 0 is not a listening socket")
        return 0
    kind, _, rest = bind.partition(":")
    if kind == "fd" and rest.isdigit():
        if not _sendoff.is_listener(int(rest)):
            raise Mistake(f"descriptor {rest} is not a listening socket")
        return int(rest)
    address = rest if kind in ("unix", "tcp") else bind
    if kind == "unix" and not address.startswith("/"):
        raise Mistake(f"--bind {bind}: the path of a socket begins with /")
    try:
        if kind != "unix":
            return _sendoff.listen(address, BACKLOG)
        # Until the mode is set, only this user may connect.
        umask = os.umask(0o177)
        try:
            fd = _sendoff.listen(address, BACKLOG)
        finally:
            os.umask(umask)
        os.chmod(address, options.socket_mode)
        if options.account is not None:
            os.chown(address, options.account.pw_uid, options.account.pw_gid)
        return fd
    except OSError as error:
        raise Mistake(f"--bind {bind}: {error.strerror}") from None


def main(arguments=None):
    """Runs the command. Returns the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parse(arguments)
    # To start the same program again.
    options.command = [sys.executable, "-m", "sendoff", *arguments]
    options.folder = os.getcwd()
    try:
        options.account = account(options)
        if options.chdir is not None:
            os.chdir(options.chdir)
        sys.path.insert(0, os.getcwd())
        if options.check:
            load.load(options.application)
            return 0
        master = Master(options, listener(options))
        return master.run()
    except (Mistake, load.NotFound) as error:
        log(error)
        return USAGE_ERROR
    except OSError as error:
        log(f"{error.filename or ''}: {error.strerror}".lstrip(": "))
        return USAGE_ERROR
    except Exception:
        # With --preload or --check: an exception of the application.
        log(f"the application {options.application} cannot be loaded:\n{traceback.format_exc().rstrip()}")
        return USAGE_ERROR
