#!/usr/bin/env python3
"""Writes the binary profiles of this folder: `generate.py`. Without other packages; the encoding is protobuf's."""

import gzip
import os
import struct


def varint(number):
    number &= (1 << 64) - 1
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def number(field, value):
    return varint(field << 3) + varint(value)


def message(field, data):
    return varint(field << 3 | 2) + varint(len(data)) + data


def packed(field, values):
    return message(field, b"".join(map(varint, values)))


class Profile:
    """A profile; stacks are leaf first, and a location is an address with its lines, innermost first."""

    def __init__(self, types):
        self.strings, self.functions, self.locations = [""], {}, {}
        self.samples, self.mappings, self.more, self.types = [], [], [], types

    def text(self, text):
        if text not in self.strings:
            self.strings.append(text)
        return self.strings.index(text)

    def mapping(self, start, limit, file):
        self.mappings.append((start, limit, self.text(file)))
        return len(self.mappings)

    def function(self, name):
        return self.functions.setdefault(name, len(self.functions) + 1)

    def location(self, lines, address=0, mapping=0):
        key = (tuple(lines), address, mapping)
        return self.locations.setdefault(key, len(self.locations) + 1)

    def sample(self, stack, values, labels=()):
        ids = [at if isinstance(at, int) else self.location([at] if isinstance(at, str) else at) for at in stack]
        self.samples.append((ids, values, labels))

    def value_type(self, field, kind, unit):
        return message(field, number(1, self.text(kind)) + number(2, self.text(unit)))

    def label(self, key, value, unit):
        body = number(1, self.text(key))
        body += number(2, self.text(value)) if isinstance(value, str) else number(3, value)
        return message(3, body + (number(4, self.text(unit)) if unit else b""))

    def parts(self):
        types = b"".join(self.value_type(1, *kind) for kind in self.types)
        samples = b""
        for ids, values, labels in self.samples:
            labels = b"".join(self.label(*label) for label in labels)
            samples += message(2, packed(1, ids) + packed(2, values) + labels)
        tables = b""
        for at, (start, limit, file) in enumerate(self.mappings, 1):
            tables += message(3, number(1, at) + number(2, start) + number(3, limit) + number(5, file))
        for (lines, address, mapping), at in self.locations.items():
            body = number(1, at) + (number(2, mapping) if mapping else b"") + (number(3, address) if address else b"")
            for line, name in enumerate(lines, 10):
                body += message(4, number(1, self.function(name)) + number(2, line))
            tables += message(4, body)
        for name, at in self.functions.items():
            name = self.text(name)
            tables += message(5, number(1, at) + number(2, name) + number(3, name) + number(4, self.text("cart.x")))
        more = b"".join(part(self) for part in self.more)
        strings = b"".join(message(6, text.encode()) for text in self.strings)
        return types, samples, tables, more, strings


def go_cpu():
    profile = Profile([("samples", "count"), ("cpu", "nanoseconds")])
    profile.mapping(0x400000, 0x500000, "/srv/shop")
    profile.sample(["main.total", "main.main", "runtime.main"], [3, 30_000_000])
    profile.sample(["runtime.mallocgc", "main.total", "main.main", "runtime.main"], [1, 10_000_000])
    types, samples, tables, more, strings = profile.parts()
    period = profile.value_type(11, "cpu", "nanoseconds") + number(12, 10_000_000)
    # Go writes the time first.
    return number(9, 1_700_000_000_000_000_000) + types + number(10, 10_000_000_000) + period + samples + tables + strings


def go_heap(default=None):
    units = ("count", "bytes", "count", "bytes")
    profile = Profile(list(zip(("alloc_objects", "alloc_space", "inuse_objects", "inuse_space"), units)))
    size = [("bytes", 1024, None)]
    profile.sample(["main.load", "main.main"], [10, 10_240, 2, 2_048], size)
    profile.sample(["main.save", "main.main"], [5, 5_120, 0, 0], size)
    profile.sample(["main.load", "main.main"], [1, 4_096, 1, 4_096], [("bytes", 4096, None)])
    period = profile.value_type(11, "space", "bytes") + number(12, 524_288)
    if default:
        profile.more.append(lambda profile: number(14, profile.text(default)))
    types, samples, tables, more, strings = profile.parts()
    # Go writes the period first.
    return period + types + samples + number(9, 1_700_000_000_000_000_000) + more + tables + strings


def pprof_rs():
    profile = Profile([("samples", "count"), ("cpu", "nanoseconds")])
    label = [("thread", "worker-1", None)]
    chain = [["<alloc::vec::Vec<T,A> as core::ops::drop::Drop>::drop", "shop::total"], "shop::main", "std::rt::lang_start"]
    profile.sample(chain, [2, 20_000_000], label)
    profile.sample(["shop::main", "std::rt::lang_start"], [1, 10_000_000], label)
    return b"".join(profile.parts())


def pyroscope_python():
    profile = Profile([("cpu", "nanoseconds")])
    profile.sample(["/srv/cart.py total", "/srv/shop.py <module>"], [30_000_000], [("thread_id", "4711", None)])
    profile.sample(["/srv/cart.py total", "/srv/shop.py <module>"], [10_000_000], [("thread_id", "4712", None)])
    profile.more.append(lambda profile: profile.value_type(11, "cpu", "nanoseconds") + number(12, 10_000_000))
    return b"".join(profile.parts())


def node_wall():
    profile = Profile([("sample", "count"), ("wall", "nanoseconds")])
    profile.sample(["total", "(anonymous:L#3:C#9)"], [4, 40_000_000])
    profile.sample(["(idle)"], [2, 0])
    profile.sample(["(garbage collector)"], [1, 10_000_000])
    return b"".join(profile.parts())


def inlined():
    profile = Profile([("samples", "count")])
    # memcpy is inlined into format, which is inlined into print.
    place = profile.location(["memcpy", "format", "print"], 0x401136)
    profile.sample([place, "main"], [5])
    profile.sample([["format", "print"], "main"], [2])
    profile.sample(["print", "main"], [1])
    return b"".join(profile.parts())


def labels():
    profile = Profile([("samples", "count")])
    profile.sample(["parse", "main"], [5], [("task", "import", None), ("rows", 100, "count")])
    profile.sample(["parse", "main"], [3], [("task", "export", None), ("rows", 100, "count")])
    profile.sample(["main"], [2], [("task", "import", None), ("rows", 7, "count")])
    profile.sample(["main"], [9])
    return b"".join(profile.parts())


def no_functions():
    profile = Profile([("samples", "count")])
    shop, edge = profile.mapping(0x400000, 0x500000, "/srv/shop"), profile.mapping(0x7F0000, 0x7F9000, "/usr/lib/libedge.so.3")
    stack = [profile.location([], 0x7F1000, edge), profile.location([], 0x40ABCD, shop), profile.location([], 0x12345)]
    profile.sample(stack, [5])
    return b"".join(profile.parts())


def drop_frames():
    profile = Profile([("objects", "count"), ("space", "bytes")])
    drop = r"malloc|.*::Alloc::operator\(\)|new_.*"
    profile.more.append(lambda profile: number(7, profile.text(drop)) + number(8, profile.text("new_cart")))
    profile.sample(["sbrk", "malloc", "load", "main"], [1, 100])
    # The caller of an inlined malloc stays.
    profile.sample([["malloc", "save"], "main"], [1, 20])
    profile.sample(["(anonymous namespace)::Alloc::operator()(int)", "sort", "main"], [1, 3])
    profile.sample(["malloc", "new_cart", "main"], [1, 4])
    # Roots stay.
    profile.sample(["main", "new_thread"], [1, 5])
    return b"".join(profile.parts())


def comments():
    profile = Profile([("samples", "count")])
    profile.sample(["total", "main"], [5])
    profile.more.append(lambda profile: number(13, profile.text("a comment; with 1 number")) + number(13, profile.text("x 2")))
    return b"".join(profile.parts())


def no_samples():
    return b"".join(Profile([("samples", "count"), ("cpu", "nanoseconds")]).parts())


def difference():
    profile = Profile([("samples", "count"), ("cpu", "nanoseconds")])
    profile.sample(["load", "main"], [3, 30])
    profile.sample(["save", "main"], [-2, -20])
    return b"".join(profile.parts())


def otlp(kinds):
    """OTLP profiles, v1development: a profile for each kind; the first entry of a table is empty."""
    strings = ["", "main", "total", "memcpy"] + [text for kind in kinds for text in kind]
    functions = [b""] + [number(1, at) for at in (1, 2, 3)]
    # memcpy is inlined into total.
    locations = [b"", message(3, number(1, 1)), message(3, number(1, 3)) + message(3, number(1, 2))]
    stacks = [b"", packed(1, [2, 1]), packed(1, [1])]
    profiles = b""
    for at, (kind, unit) in enumerate(kinds):
        body = message(1, number(1, strings.index(kind)) + number(2, strings.index(unit)))
        for stack, value in ((1, 5), (2, 2), (1, 1)):
            body += message(2, number(1, stack) + packed(4, [value * 10**at]))
        profiles += message(2, body)
    tables = message(1, b"") + b"".join(message(2, entry) for entry in locations)
    tables += b"".join(message(3, entry) for entry in functions) + message(4, b"")
    tables += b"".join(message(5, text.encode()) for text in strings)
    tables += message(6, b"") + b"".join(message(7, entry) for entry in stacks)
    return message(1, message(2, profiles)) + message(2, tables)


def gperftools():
    """Not profile.proto: 64-bit words, as gperftools and its readers before 2016 have them."""
    words = [0, 3, 0, 10_000, 0, 2, 2, 0x401136, 0x401200, 0, 1, 0]
    return struct.pack(f"<{len(words)}Q", *words) + b"400000-500000 r-xp 00000000 08:01 1 /srv/shop\n"


def main():
    folder = os.path.dirname(os.path.abspath(__file__))
    profiles = {
        "pprof-go-cpu.pb.gz": go_cpu(),
        "pprof-go-cpu-unpacked.pb": go_cpu(),
        "pprof-go-heap.pb.gz": go_heap(),
        "pprof-go-heap-unpacked.pb": go_heap(),
        "pprof-go-heap-event.pb.gz": go_heap(),
        "pprof-go-allocs.pb.gz": go_heap("alloc_space"),
        "pprof-rs.pb": pprof_rs(),
        "pprof-pyroscope-python.pb.gz": pyroscope_python(),
        "pprof-node-wall.pb.gz": node_wall(),
        "pprof-inlined.pb.gz": inlined(),
        "pprof-labels.pb.gz": labels(),
        "pprof-number-label.pb.gz": labels(),
        "pprof-no-functions.pb.gz": no_functions(),
        "pprof-drop-frames.pb.gz": drop_frames(),
        "pprof-comments.pb.gz": comments(),
        "pprof-no-samples.pb.gz": no_samples(),
        "pprof-difference.pb.gz": difference(),
        "otlp-samples.otlp": otlp([("samples", "count")]),
        "otlp-two-types.otlp": otlp([("samples", "count"), ("cpu", "nanoseconds")]),
        "refused-gperftools.prof": gperftools(),
    }
    for name, data in profiles.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(gzip.compress(data, mtime=0) if name.endswith(".gz") else data)


if __name__ == "__main__":
    main()
