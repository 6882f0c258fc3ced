"""Sequences of unequal length: time is whole, every other dimension is free."""

from __future__ import annotations

from tofu.lang import op
from tofu.tdl._shapes import instances, letters, line, zero


def _words(ndim, axis):
    """The data's dimensions with time whole, and the batch's letter."""
    return line(ndim, axis), letters(ndim)[1 - axis]


def _reads(data, word, lengths, batch):
    return [(data, word), *((x, batch) for x in lengths)]


def _by(lengths, batch):
    return zero(lengths[0], batch) if lengths else ()


@op(name="SequenceMask")
def sequence_mask(data, *length, axis=0):
    """A value after each sequence's end; nothing changes without lengths."""
    word, batch = _words(data.ndim, axis) if length else (letters(data.ndim), "")
    return instances(word, *_reads(data, word, length, batch))


@op(name="_backward_SequenceMask")
def backward_sequence_mask(ograd, *length, axis=0):
    """Zeros after each sequence's end; zero for the lengths."""
    word, batch = _words(ograd.ndim, axis) if length else (letters(ograd.ndim), "")
    return *instances(word, *_reads(ograd, word, length, batch)), *_by(length, batch)


@op(name="SequenceReverse")
def sequence_reverse(data, *length):
    """Each sequence reversed."""
    word, batch = _words(data.ndim, 0)
    return instances(word, *_reads(data, word, length, batch))


@op(name="_backward_SequenceReverse")
def backward_sequence_reverse(ograd, *length):
    """Each sequence of the head gradient reversed; zero for the lengths."""
    word, batch = _words(ograd.ndim, 0)
    return *instances(word, *_reads(ograd, word, length, batch)), *_by(length, batch)


@op(name="SequenceLast")
def sequence_last(data, *length, axis=0):
    """The last element of each sequence."""
    word, batch = _words(data.ndim, axis)
    return instances(word.replace(".", ""), *_reads(data, word, length, batch))


@op(name="_backward_SequenceLast")
def backward_sequence_last(ograd, *length, axis=0, out_shapes):
    """Zeros except at the end of each sequence; zero for the lengths."""
    word, batch = _words(len(out_shapes[0]), axis)
    reads = _reads(ograd, word.replace(".", ""), length, batch)
    return *instances(word, *reads), *_by(length, batch)
