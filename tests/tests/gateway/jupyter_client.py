"""Works in a JupyterLab: jupyter_client.py TOKEN DIRECT URL... The URLs are the server's own and those of servers before it."""

import base64
import json
import random
import re
import sys
import uuid

import requests
import websocket

LIMIT = 60


class Lab:
    def __init__(self, url, token):
        self.url, self.fields = url, {"Authorization": f"token {token}"} if token else {}
        self.session = requests.Session()
        self.session.verify = self.session.trust_env = False
        self.session.headers.update(self.fields)

    def ask(self, method, path, status=200, **more):
        response = self.session.request(method, self.url + path, timeout=LIMIT, **more)
        assert response.status_code == status, f"{method} {path}: {response.status_code} {response.text[:500]}"
        return response

    def socket(self, path):
        url = re.sub("^http", "ws", self.url) + path
        return websocket.create_connection(url, timeout=LIMIT, header=self.fields, sslopt={"cert_reqs": 0})


def pages(lab, direct):
    """The page and its scripts are the same as from JupyterLab itself."""
    # A number in the page counts its loads.
    page, own = (re.sub(r'"store_id": \d+', "", one.ask("GET", "lab").text) for one in (lab, direct))
    assert "token" in Lab(lab.url, "").ask("GET", "login?next=/hub/ann/lab").text
    Lab(lab.url, "").ask("GET", "lab", 302, allow_redirects=False)
    assert page == own
    scripts = re.findall(r'src="/[^"]*?(static/lab/[^"]*\.js[^"]*)"', page)
    assert scripts, page[:2000]
    for path in [*scripts, "lab/api/settings?1", "lab/api/themes/@jupyterlab/theme-light-extension/index.css"]:
        assert lab.ask("GET", path).content == direct.ask("GET", path).content, path


def files(lab):
    content = random.Random(7).randbytes(5_000_000)
    model = {"type": "file", "format": "base64", "content": base64.b64encode(content).decode()}
    lab.ask("PUT", "api/contents/data.bin", 201, json=model)
    assert lab.ask("GET", "files/data.bin?download=1").content == content
    answer = lab.ask("GET", "api/contents/data.bin?format=base64&type=file").json()
    assert base64.b64decode(answer["content"]) == content
    assert [entry["name"] for entry in lab.ask("GET", "api/contents").json()["content"]] == ["data.bin"]
    lab.ask("DELETE", "api/contents/data.bin", 204)
    lab.ask("GET", "api/contents/data.bin", 404)


class Kernel:
    def __init__(self, lab):
        self.lab, self.session = lab, uuid.uuid4().hex
        self.id = lab.ask("POST", "api/kernels", 201, json={"name": "python3"}).json()["id"]
        self.socket = lab.socket(f"api/kernels/{self.id}/channels?session_id={self.session}")

    def begin(self, code):
        header = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "session": self.session, "username": "ann"}
        header |= {"version": "5.3", "date": "2026-01-01T00:00:00Z"}
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": True}
        message = {"header": header, "parent_header": {}, "metadata": {}, "channel": "shell", "content": content}
        self.socket.send(json.dumps(message))
        return header["msg_id"]

    def events(self, request):
        """Messages about a request, until the kernel is idle and has replied."""
        missing = {"idle", "reply"}
        while missing:
            message = json.loads(self.socket.recv())
            if message["parent_header"].get("msg_id") != request:
                continue
            yield message
            if message["msg_type"] == "execute_reply":
                missing.discard("reply")
            elif message["msg_type"] == "status":
                missing.discard(message["content"]["execution_state"])

    def output(self, code):
        events = list(self.events(self.begin(code)))
        return "".join(event["content"]["text"] for event in events if event["msg_type"] == "stream"), events

    def answer(self, question, text):
        message = {"header": {**question["header"], "msg_type": "input_reply", "msg_id": uuid.uuid4().hex}, "metadata": {}}
        message |= {"parent_header": question["header"], "channel": "stdin", "content": {"value": text}}
        self.socket.send(json.dumps(message))


def kernels(lab):
    kernel = Kernel(lab)
    assert kernel.output("print(6*7)")[0] == "42\n"
    assert kernel.output("for number in range(40000): print(number)")[0] == "".join(f"{n}\n" for n in range(40_000))
    assert kernel.output("print('x' * 4_000_000)")[0] == "x" * 4_000_000 + "\n"
    _, events = kernel.output("1/0")
    assert any(event["msg_type"] == "error" and event["content"]["ename"] == "ZeroDivisionError" for event in events)
    # The kernel asks the user.
    said = ""
    for event in kernel.events(kernel.begin("print('Grüße,', input('Who? '))")):
        if event["msg_type"] == "input_request":
            kernel.answer(event, "Ann")
        elif event["msg_type"] == "stream":
            said += event["content"]["text"]
    assert said == "Grüße, Ann\n", said
    # An endless loop says that it runs, and is interrupted by another request.
    kinds = []
    for event in kernel.events(kernel.begin("print('runs', flush=True)\nwhile True: pass")):
        kinds.append(event["content"].get("ename", event["msg_type"]))
        if event["msg_type"] == "stream":
            lab.ask("POST", f"api/kernels/{kernel.id}/interrupt", 204)
    assert "KeyboardInterrupt" in kinds, kinds
    kernel.socket.close()
    lab.ask("DELETE", f"api/kernels/{kernel.id}", 204)


def terminal(lab):
    name = lab.ask("POST", "api/terminals", json={}).json()["name"]
    socket = lab.socket(f"terminals/websocket/{name}")
    socket.send(json.dumps(["stdin", "echo $((6*7))-seen\r"]))
    shown = ""
    while "42-seen" not in shown:
        kind, *rest = json.loads(socket.recv())
        shown += rest[0] if kind == "stdout" else ""
    socket.close()
    lab.ask("DELETE", f"api/terminals/{name}", 204)


def main(token, direct, *urls):
    requests.packages.urllib3.disable_warnings()
    for url in urls:
        lab = Lab(url, token)
        pages(lab, Lab(direct, token))
        files(lab)
        kernels(lab)
        terminal(lab)
    print("all as expected")


main(*sys.argv[1:])
