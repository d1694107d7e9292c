"""A small shop: each request counts in redis and sums up a cart. GET /release?2 switches to a release whose cart looks every item up in a list."""
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

REDIS = int(sys.argv[2])
ITEMS = [f"item-{i % 900}" for i in range(1000)]
local = threading.local()
release = 1


def redis(command):
    if not hasattr(local, "redis"):
        local.redis = socket.create_connection(("127.0.0.1", REDIS))
    local.redis.sendall(command)
    return local.redis.recv(4096)


def cart_1(items):
    return sorted(set(items))


def cart_2(items):
    found = []
    for item in items:
        if item not in found:
            found.append(item)
    return sorted(found)


class Shop(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        global release
        if self.path.startswith("/release?"):
            release = int(self.path.partition("?")[2])
        for _ in range(5):
            redis(b"INCR carts\r\n")
        body = f"{len((cart_1 if release == 1 else cart_2)(ITEMS))} items\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Shop).serve_forever()
