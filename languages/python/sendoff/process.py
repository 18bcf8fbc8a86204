"""A worker process: threads that each serve one request at a time."""

import os
import random
import select
import signal
import sys
import threading
import time
import traceback

from . import _sendoff, load
from .log import log
from .reload import Watcher

# The signal that interrupts a thread that waits for a request. libsendoff uses another one
# (SIGRTMIN + 7).
WAKE = signal.SIGRTMIN + 5

# Interval at which a thread is interrupted until it has noticed that it must end: a signal may come
# right before it waits.
WAKE_INTERVAL = 0.02

# Pause after accept() has failed, for example because there are too many open files.
ACCEPT_PAUSE = 0.1

# Maximum number of files that the threads of a process hold together; libsendoff reserves this
# number of descriptors.
HELD_FILES = 256

# Reports of a worker to its master.
READY = b"R"
# The worker has received its first request.
WORKS = b"W"

# Exit statuses.
NO_APPLICATION = 3
STUCK = 4


def forget_signals():
    """A process that the application forks ends by signals as any other, and does not wake this one."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Process:
    """The life of a worker process after the fork."""

    def __init__(self, options, listener, tell, application=None):
        """``tell`` is the descriptor for reports to the master."""
        self.options = options
        self.listener = listener
        self.tell = tell
        self.has_told = False
        self.application = application
        self.stopping = False
        self.handled = 0
        self.threads = []
        self.most_requests = None
        if options.max_requests:
            spread = options.max_requests // 10
            self.most_requests = options.max_requests + random.randint(0, spread)

    def run(self):
        """Serves until it is told to stop. Returns the exit status."""
        wake_read, self.wake = os.pipe()
        for end in (wake_read, self.wake):
            os.set_blocking(end, False)
        try:
            handler = self.make_handler()
        except BaseException:
            log(f"the application {self.options.application} cannot be loaded:\n{traceback.format_exc().rstrip()}")
            return NO_APPLICATION
        # After the application, which may have changed them.
        self.take_signals()
        for _ in range(self.options.threads):
            thread = threading.Thread(target=self.serve, args=(handler,), name="sendoff", daemon=True)
            thread.start()
            self.threads.append(thread)
        self.say(READY)
        if self.options.reload:
            Watcher(self.ask_for_reload).start()
        while not self.stopping and any(thread.is_alive() for thread in self.threads):
            select.select([wake_read], [], [])
            try:
                os.read(wake_read, 4096)
            except BlockingIOError:
                pass
        return self.end(handler)

    def make_handler(self):
        application = self.application or load.load(self.options.application)
        interface = self.options.interface
        if interface == "auto":
            interface = "asgi" if load.is_asgi(application) else "wsgi"
        if interface == "asgi":
            from .asgi import AsgiHandler

            return AsgiHandler(application)
        from .wsgi import WsgiHandler

        return WsgiHandler(application, self.options.threads > 1, self.options.workers > 1)

    def take_signals(self):
        signal.set_wakeup_fd(self.wake, warn_on_full_buffer=False)
        signal.signal(WAKE, lambda *_: None)
        signal.signal(signal.SIGTERM, self.stop)
        signal.signal(signal.SIGQUIT, self.stop)
        # A terminal sends these to the whole process group; the master decides about them. They are not ignored, because
        # programs that the application starts would ignore them, too.
        signal.signal(signal.SIGINT, lambda *_: None)
        signal.signal(signal.SIGHUP, lambda *_: None)
        os.register_at_fork(after_in_child=forget_signals)

    def stop(self, *_):
        self.stopping = True

    def ask_for_reload(self, path):
        log(f"{path} has changed: reloading")
        os.kill(os.getppid(), signal.SIGHUP)

    def serve(self, handler):
        """The main function of each thread."""
        thread = _sendoff.Thread(self.listener, max(4, HELD_FILES // self.options.threads))
        try:
            while not self.stopping:
                try:
                    came = thread.accept()
                except OSError as error:
                    log(f"no connection can be accepted: {error}")
                    time.sleep(ACCEPT_PAUSE)
                    continue
                if came:
                    self.say_that_it_works()
                    handler.handle(thread)
                    self.count()
        except BaseException:
            log(f"a thread has ended:\n{traceback.format_exc().rstrip()}")
            # close() would end an incomplete response.
            thread.cut()
            self.stopping = True
        finally:
            thread.close()
            self.wake_up()

    def say_that_it_works(self):
        if self.has_told:
            return
        # Two threads may report it at once, which does no harm.
        self.has_told = True
        self.say(WORKS)

    def say(self, what):
        try:
            os.write(self.tell, what)
        except OSError:
            pass  # The master has another generation by now and does not listen.

    def count(self):
        # Two threads that count at once may lose a count, which does no harm.
        self.handled += 1
        if self.most_requests is not None and self.handled >= self.most_requests:
            self.stopping = True

    def wake_up(self):
        try:
            os.write(self.wake, b"\0")
        except OSError:
            pass  # The pipe is full, so the process wakes up anyway.

    def end(self, handler):
        """Lets the threads finish their requests. Returns the exit status."""
        deadline = time.monotonic() + self.options.stop_timeout
        running = self.threads
        while running:
            for thread in running:
                try:
                    signal.pthread_kill(thread.ident, WAKE)
                except ProcessLookupError:
                    pass
            running[0].join(WAKE_INTERVAL)
            running = [thread for thread in running if thread.is_alive()]
            if running and time.monotonic() > deadline:
                log(f"{len(running)} requests have not ended in {self.options.stop_timeout:g} s")
                sys.stderr.flush()
                os._exit(STUCK)
        close = getattr(handler, "close", None)
        if close is not None:
            close(max(0.0, deadline - time.monotonic()))
        return 0
