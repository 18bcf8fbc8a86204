"""An application whose pages are made of fragments."""

import os
import time
from urllib.parse import parse_qs

from sendoff import fragment, fragments


def runs():
    """Counts the fragments that were made, by all processes."""
    with open("runs", "ab", buffering=0) as file:
        file.write(b".")
        return os.fstat(file.fileno()).st_size


def make(text=b"run ", size=0):
    return b"%s%d%s" % (text, runs(), b"x" * size)


def application(environ, start_response):
    asked = {name: values[0] for name, values in parse_qs(environ["QUERY_STRING"], keep_blank_values=True).items()}
    ttl = int(asked.get("ttl", 600))

    def slow():
        if "wait" in asked:
            open("pipe", "rb").read()
        if "dies" in asked:
            os._exit(9)
        if "fails" in asked:
            raise ValueError("no fragment")
        if "purges" in asked:
            fragments.purge(["post-1"])
        return make(size=int(asked.get("size", 0)))

    path = environ["PATH_INFO"]
    if path == "/one":
        body = [fragment(asked.get("key", "k"), ttl, slow, ["post-1", "all"])]
    elif path == "/three":
        body = [fragment(f"k{n}", ttl, make) for n in range(3)]
    elif path == "/large":
        body = [b"<p>", *(fragment(f"l{n}", ttl, lambda: b"%d" % n * 100000) for n in range(3)), b"</p>"]
    elif path == "/purge":
        fragments.purge([asked["tag"]] if "tag" in asked else None)
        body = [b"purged"]
    elif path == "/delete":
        fragments.delete(asked["key"])
        body = [b"deleted"]
    elif path == "/fetch":
        body = [fragments.fetch("k") or b"none"]
    elif path == "/store":
        since = fragments.purges()
        if "purges" in asked:
            fragments.purge(["other"])
        body = [b"%d" % fragments.store("k", ttl, b"stored", ["post-1"], since)]
    else:
        body = [b"hello %d" % os.getpid()]
    start_response("200 OK", [("Content-Type", "text/plain")])
    return body
