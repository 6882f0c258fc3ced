"""Symbols as JSON."""

import ctypes
import gc

import mxnet as mx

from tofu.mx.nnvm import symbol_text


class Mallinfo(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_ = [(f"other{i}", ctypes.c_size_t) for i in range(7)]
    _fields_ += [(name, ctypes.c_size_t) for name in ("used", "free", "keepcost")]


def used_bytes():
    gc.collect()
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = Mallinfo
    return libc.mallinfo2().used


def symbol(name):
    found = mx.sym.var("data")
    for i in range(40):
        found = mx.sym.FullyConnected(found, num_hidden=8, name=f"{name}_fc{i}")
    return found


def test_it_is_what_mxnet_writes():
    cast = mx.sym.amp_cast(symbol("a"), dtype="float16")
    for each in (symbol("a"), cast):
        assert symbol_text(each) == each.tojson()


def test_it_keeps_nothing():
    def write(count):
        for i in range(count):
            symbol_text(symbol(f"b{i}"))

    write(5)
    before = used_bytes()
    write(20)
    assert used_bytes() - before < 200_000  # tojson() leaks 1.2 MB
