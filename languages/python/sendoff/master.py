"""The master process: forks workers, replaces those that die, stops and reloads them.

A *generation* is the workers that run one version of the application. On SIGHUP the next one is started; when all of its
workers are ready, the previous one ends. If they cannot load the application, the previous one stays.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback

from . import _sendoff, load
from .log import log
from .process import NO_APPLICATION, READY, STUCK, WORKS, Process

SIGNALS = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGHUP,
    signal.SIGCHLD,
)

# A worker that lives for less than this, in seconds, and gets no request has failed: the next one
# is started after a pause, which doubles. A worker that dies in a request is replaced at once, so
# that a bad page does not slow down the others.
SHORT_LIFE = 5.0
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0

# The environment variable by which a master passes its state to its successor.
STATE = "SENDOFF_PYTHON_STATE"


class Worker:
    """The master's view of a worker process."""

    def __init__(self, pid, ear):
        self.pid = pid
        # The pipe on which it reports that it is ready, and that it works; None after both reports,
        # or when it is closed.
        self.ear = ear
        self.ready = False
        self.works = False
        self.born = time.monotonic()

    def hear(self):
        """Reads the worker's reports."""
        try:
            said = os.read(self.ear, 2)
        except BlockingIOError:
            return
        self.ready = self.ready or READY in said
        self.works = WORKS in said
        if self.works or not said:
            os.close(self.ear)
            self.ear = None


class Master:
    """Owns the listening socket and the workers."""

    def __init__(self, options, listener):
        self.options = options
        self.listener = listener
        self.application = None
        self.workers = {}
        # Workers of the previous generation: they stay until the new generation is ready.
        self.old = set()
        self.was_ready = False
        self.stopping = False
        self.wants_reload = False
        self.pause = 0.0
        self.next_start = 0.0
        self.status = 0

    def run(self):
        """Runs until it is told to stop. Returns the exit status."""
        self.take_over()
        _sendoff.share_fragments(self.options.fragments)
        # The descriptors in it are closed now.
        os.environ.pop("SENDOFF_FRAGMENTS", None)
        if self.options.preload:
            self.preload()
        wake_read, wake_write = os.pipe()
        for end in (wake_read, wake_write):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, self.note)
        self.pipes = (wake_read, wake_write)
        while not self.stopping:
            if self.wants_reload:
                self.wants_reload = False
                self.reload()
            self.fill()
            self.wait(self.time_to_start())
            self.collect()
        self.stop_all()
        return self.status

    def note(self, number, _frame):
        if number == signal.SIGHUP:
            self.wants_reload = True
        elif number != signal.SIGCHLD:
            self.stopping = True

    def take_over(self):
        """This process was the master before (see `replace_itself`): its workers still run."""
        state = os.environ.pop(STATE, None)
        if state is not None:
            self.old = set(json.loads(state)["workers"])
            self.was_ready = True

    def preload(self):
        self.application = load.load(self.options.application)

    def time_to_start(self):
        if len(self.workers) >= self.options.workers:
            return None
        return max(0.0, self.next_start - time.monotonic())

    def fill(self):
        while len(self.workers) < self.options.workers and time.monotonic() >= self.next_start:
            self.fork()

    def fork(self):
        ear, mouth = os.pipe()
        os.set_blocking(ear, False)
        master = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        # The child must not handle a signal by the master's handlers.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        pid = os.fork()
        if pid == 0:
            self.be_worker(master, ear, mouth)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        os.close(mouth)
        self.workers[pid] = Worker(pid, ear)

    def be_worker(self, master, ear, mouth):
        """Runs in the child: never returns."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            for fd in (*self.pipes, ear, *(worker.ear for worker in self.workers.values())):
                if fd is not None:
                    os.close(fd)
            become(self.options)
            _sendoff.die_with_parent(signal.SIGTERM)
            if os.getppid() == master:
                status = Process(self.options, self.listener, mouth, self.application).run()
        except BaseException:
            log(f"a worker has failed:\n{traceback.format_exc().rstrip()}")
        # Exits normally, so that the application's exit handlers run.
        raise SystemExit(status)

    def wait(self, seconds):
        """Waits for a signal or a worker's report."""
        ears = [worker.ear for worker in self.workers.values() if worker.ear is not None]
        readable, _, _ = select.select([self.pipes[0], *ears], [], [], seconds)
        for worker in self.workers.values():
            if worker.ear in readable:
                worker.hear()
        if self.pipes[0] in readable:
            try:
                os.read(self.pipes[0], 4096)
            except BlockingIOError:
                pass
        workers = self.workers.values()
        if len(workers) == self.options.workers and all(worker.ready for worker in workers):
            self.all_ready()

    def all_ready(self):
        if not self.was_ready:
            self.was_ready = True
            log(f"ready: {self.options.application}, {self.options.workers} workers, {self.options.threads} threads each")
        elif self.old:
            log("reloaded")
            # The previous version of the application has made them.
            _sendoff.fragment_purge(None)
        for pid in self.old:
            kill(pid, signal.SIGTERM)
        self.old.clear()

    def collect(self):
        """Collects workers that have ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.old.discard(pid)
            worker = self.workers.pop(pid, None)
            if worker is not None:
                self.ended(worker, os.waitstatus_to_exitcode(status))

    def ended(self, worker, code):
        if worker.ear is not None:
            worker.hear()
        if worker.ear is not None:
            os.close(worker.ear)
        if self.stopping:
            return
        if code == NO_APPLICATION and not worker.ready:
            return self.cannot_load()
        if code < 0:
            log(f"worker {worker.pid} was ended by {signal.Signals(-code).name}")
        elif code not in (0, STUCK):
            log(f"worker {worker.pid} has ended with status {code}")
        if code != 0 and not worker.works and time.monotonic() - worker.born < SHORT_LIFE:
            self.start_later()
            log(f"the next worker starts in {self.pause:g} s")
        else:
            self.pause = 0.0

    def start_later(self):
        self.pause = min(LONGEST_PAUSE, self.pause * 2 or FIRST_PAUSE)
        self.next_start = time.monotonic() + self.pause

    def cannot_load(self):
        """Handles a worker that could not load the application: another attempt would fail, too."""
        if not self.was_ready:
            self.status = NO_APPLICATION
            self.stopping = True
        elif self.old:
            log("the previous version goes on")
            for pid in self.workers:
                kill(pid, signal.SIGTERM)
            self.workers = {pid: Worker(pid, None) for pid in self.old}
            for worker in self.workers.values():
                worker.ready = True
            self.old.clear()
        else:
            self.start_later()

    def reload(self):
        if self.options.preload:
            self.replace_itself()
            return
        self.old.update(self.workers)
        for worker in self.workers.values():
            if worker.ear is not None:
                os.close(worker.ear)
        self.workers = {}
        self.next_start = 0.0

    def replace_itself(self):
        """Executes the program again in this process, which keeps its children and the listening socket."""
        options = self.options
        check = subprocess.run([*options.command, "--check"], cwd=options.folder, check=False)
        if check.returncode != 0:
            log("the previous version goes on")
            return
        workers = [*self.workers, *self.old]
        os.environ[STATE] = json.dumps({"workers": workers, "listener": self.listener})
        os.set_inheritable(self.listener, True)
        os.chdir(options.folder)
        sys.stderr.flush()
        os.execv(options.command[0], options.command)

    def stop_all(self):
        """Lets the workers finish their requests; kills them after the time limit."""
        everyone = set(self.workers) | self.old
        for pid in everyone:
            kill(pid, signal.SIGTERM)
        # The workers' own time limit comes first.
        deadline = time.monotonic() + self.options.stop_timeout + 2.0
        while everyone:
            pid, _ = wait_for_any()
            everyone.discard(pid)
            if pid is None:
                break
            if pid == 0:
                left = deadline - time.monotonic()
                if left <= 0:
                    for worker in everyone:
                        kill(worker, signal.SIGKILL)
                    left = 1.0
                select.select([self.pipes[0]], [], [], left)
                try:
                    os.read(self.pipes[0], 4096)
                except BlockingIOError:
                    pass


def wait_for_any():
    """The process id of a child that has ended; 0 if none has, None if there is no child."""
    try:
        return os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None, 0


def kill(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # It has ended; `collect` will hear of it.


def become(options):
    """The account of the workers, if the master is root."""
    account = options.account
    if account is not None:
        os.initgroups(account.pw_name, account.pw_gid)
        os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
        _sendoff.become(account.pw_uid)
        os.environ["HOME"] = account.pw_dir
