"""Requests per second, and CPU time of the whole server side, of one Flask site behind

- Sendoff and sendoff-python,
- nginx and gunicorn,
- nginx and uWSGI.

Wants Debian's nginx-light, gunicorn, uwsgi-plugin-python3, python3-flask and wrk, `make dist`, root, and a quiet
machine. Usage: /usr/bin/python3 languages/python/bench.py BIN, where BIN is the folder with sendoff-python, installed into
a virtual environment of Debian's Python with --system-site-packages.
"""

import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
WORKERS = 4
ROUNDS = 3
SECONDS = 4
CONNECTIONS = 32
TARGETS = ["hello", "60KB", "1MB"]

APPLICATION = """
import os
from flask import Flask, send_file
application = Flask(__name__)
FOLDER = os.path.dirname(os.path.abspath(__file__))

@application.get("/hello")
def hello():
    return "hello"

@application.get("/60KB")
def small():
    return send_file(os.path.join(FOLDER, "60KB"), mimetype="image/jpeg")

@application.get("/1MB")
def large():
    return send_file(os.path.join(FOLDER, "1MB"), mimetype="image/jpeg")
"""

NGINX = """
daemon off; user www-data; worker_processes 2; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ worker_connections 1024; }}
http {{
    access_log off; sendfile on; tcp_nopush on;
    upstream app {{ server unix:{folder}/{socket}; keepalive 32; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{ {attach} }}
    }}
}}
"""

TICK = os.sysconf("SC_CLK_TCK")


def cpu_of(pid):
    """CPU time of a process and its descendants, in seconds."""
    total = 0.0
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total = (int(fields[11]) + int(fields[12])) / TICK
        tasks = Path(f"/proc/{pid}/task").iterdir()
        children = [child for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return total
    return total + sum(cpu_of(child) for child in children)


class Stack:
    """A web server and the application behind it."""

    def __init__(self, name, port, commands, folder):
        self.name = name
        self.url = f"http://127.0.0.1:{port}/"
        log = folder / f"{name}.log"
        self.processes = []
        for command in commands:
            with open(log, "a") as out:
                self.processes.append(subprocess.Popen(command, cwd=folder, stdout=out, stderr=out))
        for _ in range(100):
            try:
                urllib.request.urlopen(self.url + "hello").read()
                return
            except OSError:
                time.sleep(0.1)
        self.stop()
        raise SystemExit(f"{name} does not answer:\n{log.read_text()}")

    def measure(self, target):
        """Requests per second, and CPU in microseconds per response."""
        before = sum(cpu_of(process.pid) for process in self.processes)
        command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{SECONDS}", self.url + target]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        cpu = sum(cpu_of(process.pid) for process in self.processes) - before
        if "Non-2xx" in out or "Socket errors" in out:
            raise SystemExit(f"{self.name}: {out}")
        count = int(re.search(r"(\d+) requests in", out)[1])
        return float(re.search(r"Requests/sec:\s+([\d.]+)", out)[1]), cpu / count * 1e6

    def stop(self):
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def stacks(folder, programs):
    """Names, ports and commands."""
    ports = [free_port() for _ in range(3)]
    def nginx(name, port, attach):
        path = folder / f"{name}.conf"
        path.write_text(NGINX.format(folder=folder, socket=f"{name}.sock", port=port, attach=attach))
        return ["nginx", "-c", str(path)]

    sendoff = [REPOSITORY / "target/dist/sendoff", "serve", folder, "--listen", f"127.0.0.1:{ports[0]}"]
    sendoff += ["--threads", "2", "--user", "www-data", "--fastcgi", f"/=unix:{folder}/sendoff.sock"]
    ours = [programs / "sendoff-python", "app", "--bind", f"unix:{folder}/sendoff.sock"]
    ours += ["--workers", str(WORKERS), "--user", "www-data"]
    yield "sendoff", ports[0], [ours, sendoff]
    attach = "proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection '';"
    gunicorn = ["gunicorn", "app", "--bind", f"unix:{folder}/gunicorn.sock", "--workers", str(WORKERS)]
    yield "gunicorn", ports[1], [[*gunicorn, "--user", "www-data"], nginx("gunicorn", ports[1], attach)]
    attach = "include /etc/nginx/uwsgi_params; uwsgi_pass app;"
    uwsgi = ["uwsgi", "--plugin", "python3", "--socket", f"{folder}/uwsgi.sock", "--master", "--disable-logging"]
    uwsgi += ["--module", "app", "--processes", str(WORKERS), "--uid", "www-data", "--gid", "www-data"]
    yield "uwsgi", ports[2], [[*uwsgi, "--chmod-socket=666"], nginx("uwsgi", ports[2], attach)]


def main():
    programs = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="sendoff-bench-python-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        (folder / "app.py").write_text(APPLICATION)
        for target, length in (("60KB", 60_000), ("1MB", 1_000_000)):
            path = folder / target
            path.write_bytes(os.urandom(length))
            subprocess.run(["chown", "www-data", path], check=True)
        running = []
        try:
            for one in stacks(folder, programs):
                running.append(Stack(*one, folder))
            figures = {}
            for target in TARGETS:
                for _ in range(ROUNDS):
                    for stack in running:
                        figures.setdefault((target, stack.name), []).append(stack.measure(target))
        finally:
            for stack in running:
                stack.stop()
    print("| | " + " | ".join(f"{stack.name}: requests/s | µs" for stack in running) + " |")
    for target in TARGETS:
        cells = []
        for stack in running:
            rates, costs = zip(*figures[target, stack.name])
            cells.append(f"{statistics.median(rates):.0f} | {statistics.median(costs):.0f}")
        print(f"| {target} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
