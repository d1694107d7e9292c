#!/usr/bin/env python3
"""The hottest functions of a program, live:
    flightline record -o - -- ./server | flightline tail - --samples | python3 follow.py
Only the standard library is needed. Fields: docs/guide/tasks/follow-recordings.md, "NDJSON"."""
import collections
import json
import sys

own, lost, told = collections.Counter(), 0, 0
for line in sys.stdin:
    item = json.loads(line)
    if item["type"] == "sample" and item["kind"] == "cpu" and item["stack"]:
        frames = item["stack"]["frames"]
        own[frames[0]["function"] if frames else "?"] += item["weight"]["samples"]
    elif item["type"] == "loss":
        lost += item["events"] or 0
    if own.total() >= 2 * told + 1000:
        told = own.total()
        print(f"{told} samples, {lost} lost; hottest: {own.most_common(1)[0][0]}", file=sys.stderr)
for function, samples in own.most_common(10):
    print(f"{samples}\t{100 * samples / own.total():.1f}%\t{function}")
print(f"{own.total()} samples, {lost} lost")
