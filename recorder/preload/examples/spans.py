"""Spans in Python, by ctypes: flightline record -e cpu -o spans.jfr -- python3 spans.py && flightline spans spans.jfr

Works with or without the recorder. A `with` costs a microsecond or two: for requests, not for inner loops.
"""

import contextlib
import ctypes
import sys
import threading


class Ids(ctypes.Structure):
    _fields_ = [("trace_id", ctypes.c_uint8 * 16), ("span_id", ctypes.c_uint8 * 8), ("local_root_span_id", ctypes.c_uint8 * 8),
                ("flags", ctypes.c_uint8), ("reserved", ctypes.c_uint8 * 7)]


def _function(name, result, *arguments):
    # Preloaded symbols are among the symbols of the program.
    found = getattr(ctypes.CDLL(None), name, None)
    if found is None:
        return lambda *_: 0
    found.restype, found.argtypes = result, arguments
    return found


_begin = _function("flightline_span_begin", ctypes.c_uint64, ctypes.c_char_p)
_end = _function("flightline_span_end", ctypes.c_int, ctypes.c_uint64)
_enter = _function("flightline_enter", ctypes.c_uint64, ctypes.POINTER(Ids))
_exit = _function("flightline_exit", ctypes.c_int, ctypes.c_uint64)
_label = _function("flightline_label", ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)
_scope_begin = _function("flightline_scope_begin", ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_scope_enter = _function("flightline_scope_enter", ctypes.c_uint64, ctypes.c_void_p)
_scope_exit = _function("flightline_scope_exit", ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64)
_scope_end = _function("flightline_scope_end", ctypes.c_int, ctypes.c_void_p)
_current = _function("flightline_current", ctypes.c_int, ctypes.POINTER(Ids))


@contextlib.contextmanager
def span(name, **labels):
    """A span for the duration of the block, with labels."""
    token = _begin(name.encode())
    try:
        for key, value in labels.items():
            _label(key.encode(), str(value).encode())
        yield
    finally:
        _end(token)


@contextlib.contextmanager
def scope(ids):
    """Enters another thread's span by its ids."""
    token = _enter(ctypes.byref(ids))
    try:
        yield
    finally:
        _exit(token)


class Work:
    """A unit of work with labels, for the duration of the block: `with Work(task="t", attempt=0) as attempt:`"""

    def __init__(self, **labels):
        self._room = (ctypes.c_uint64 * 128)(1024)
        texts = [text.encode() for pair in labels.items() for text in (pair[0], str(pair[1]))]
        self._labels, self._count = (ctypes.c_char_p * len(texts))(*texts), len(labels)

    def __enter__(self):
        self.left_out = _scope_begin(self._room, self._labels, self._count)
        return self

    def __exit__(self, *_):
        _scope_end(self._room)

    @contextlib.contextmanager
    def inside(self):
        """Enters it on another thread, which must leave it before the block ends."""
        token = _scope_enter(self._room)
        try:
            yield
        finally:
            _scope_exit(self._room, token)


def current():
    """Ids of the thread's span; zeros: none."""
    ids = Ids()
    _current(ctypes.byref(ids))
    return ids


def show(where):
    print(where, bytes(current().span_id).hex(), flush=True)


def work(n):
    return sum(i * i for i in range(n))


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000_000
    show("before")
    with span("checkout", tenant="acme"):
        show("checkout")
        with span("charge card"):
            show("charge")
            with Work(task="charge", attempt=0) as attempt:

                def helps():
                    with attempt.inside():
                        work(n)

                helper = threading.Thread(target=helps)
                helper.start()
                work(n)
                helper.join()
        show("checkout")

        def elsewhere(ids):
            with scope(ids):
                show("thread")
                work(n)

        thread = threading.Thread(target=elsewhere, args=(current(),))
        thread.start()
        thread.join()
    show("after")


if __name__ == "__main__":
    main()
