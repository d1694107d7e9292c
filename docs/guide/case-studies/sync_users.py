"""Two users of a server of shell histories, one with 200,000 commands, one with 2,000. Their tokens go to tokens.txt, which sync.lua reads."""

import json
import time
import urllib.request
import uuid

BASE = "http://127.0.0.1:8888"


def call(method, path, body, token=None):
    head = {"Content-Type": "application/json"}
    if token:
        head["Authorization"] = f"Token {token}"
    request = urllib.request.Request(BASE + path, json.dumps(body).encode(), head, method=method)
    with urllib.request.urlopen(request) as answer:
        return answer.read()


def record(host, idx):
    data = {"data": "v4.local." + "x" * 260, "content_encryption_key": "k" * 140}
    return {"id": str(uuid.uuid4()), "idx": idx, "host": {"id": host, "name": ""}, "timestamp": time.time_ns(),
            "version": "v1", "tag": "history", "data": data}


with open("tokens.txt", "w", encoding="utf-8") as tokens:
    for name, count in (("old", 200_000), ("new", 2_000)):
        user = {"email": f"{name}@example.com", "username": name, "password": name}
        token = json.loads(call("POST", "/register", user))["session"]
        host = str(uuid.uuid4())
        for begin in range(0, count, 2000):
            call("POST", "/api/v0/record", [record(host, idx) for idx in range(begin, begin + 2000)], token)
        tokens.write(f"{name} {token} {host} {count}\n")
