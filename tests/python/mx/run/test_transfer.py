"""Whole arrays become tiles, and tiles whole arrays, over CPU contexts."""

import types

import mxnet as mx
import numpy as np
import pytest

from tofu.boxes import Box
from tofu.errors import GraphError
from tofu.mx.run.transfer import Tiles, gather, parts_of, relay, scatter, spread_parts, views_of
from tofu.plans.layout import Layout, Variable, variables_of

from ..models import random

CONTEXTS = [mx.cpu(i) for i in range(4)]
SHAPE = (4, 6, 8)


def box(*ranges):
    return Box.between([r[0] for r in ranges], [r[1] for r in ranges])


LAYOUTS = {
    "rows": [box((i, i + 1), (0, 6), (0, 8)) for i in range(4)],
    "columns": [box((0, 4), (0, 6), (2 * i, 2 * i + 2)) for i in range(4)],
    "blocks": [box((2 * i, 2 * i + 2), (3 * j, 3 * j + 3), (0, 8)) for i in (0, 1) for j in (0, 1)],
    "two copies": [box((0, 4), (3 * j, 3 * j + 3), (0, 8)) for j in (0, 1, 0, 1)],
    "replicated": [box((0, 4), (0, 6), (0, 8))] * 4,
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_scatter_and_gather(name, dtype):
    layout = Layout(SHAPE, dtype, tuple(LAYOUTS[name]))
    whole = (random(SHAPE) * 100).astype(dtype)
    tiles = scatter(whole, layout, CONTEXTS)
    for tile, part, context in zip(tiles, layout.boxes, CONTEXTS):
        expected = whole.asnumpy()[tuple(map(slice, part.begin, part.end))]
        np.testing.assert_array_equal(tile.asnumpy(), expected)
        assert (tile.context, tile.dtype) == (context, np.dtype(dtype))
    result = gather(tiles, layout, mx.cpu(2))
    np.testing.assert_array_equal(result.asnumpy(), whole.asnumpy())
    assert (result.context, result.dtype) == (mx.cpu(2), np.dtype(dtype))


@pytest.mark.parametrize("name", LAYOUTS)
def test_given_arrays_are_filled(name):
    layout = Layout(SHAPE, "float32", tuple(LAYOUTS[name]))
    whole = random(SHAPE)
    out = [mx.nd.zeros(part.shape, ctx) for part, ctx in zip(layout.boxes, CONTEXTS)]
    assert [a is b for a, b in zip(scatter(whole, layout, CONTEXTS, out=out), out)] == [True] * 4
    back = mx.nd.zeros(SHAPE)
    assert gather(out, layout, mx.cpu(), out=back) is back
    np.testing.assert_array_equal(back.asnumpy(), whole.asnumpy())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("target", LAYOUTS)
@pytest.mark.parametrize("source", LAYOUTS)
def test_relay_is_scatter_of_the_whole(source, target, dtype):
    layouts = [Layout(SHAPE, dtype, tuple(LAYOUTS[name])) for name in (source, target)]
    whole = random(SHAPE).astype(dtype)
    tiles = Tiles(scatter(whole, layouts[0], CONTEXTS), layouts[0])
    found = relay(tiles, layouts[1], CONTEXTS)
    out = [mx.nd.zeros(part.shape, ctx, dtype) for part, ctx in zip(layouts[1].boxes, CONTEXTS)]
    assert relay(tiles, layouts[1], CONTEXTS, out=out)[0] is out[0]
    for expected, *results in zip(scatter(whole, layouts[1], CONTEXTS), found, out):
        for result in results:
            assert (result.context, result.dtype) == (expected.context, expected.dtype)
            np.testing.assert_array_equal(result.asnumpy(), expected.asnumpy())


def test_relay_makes_no_array_of_the_whole(monkeypatch):
    shapes = []
    empty = mx.nd.empty
    monkeypatch.setattr(
        mx.nd, "empty", lambda shape, *args: shapes.append(shape) or empty(shape, *args)
    )
    source, target = (Layout(SHAPE, "float32", tuple(LAYOUTS[n])) for n in ("rows", "columns"))
    tiles = Tiles([mx.nd.ones((1, 6, 8), ctx) for ctx in CONTEXTS], source)
    relay(tiles, target, CONTEXTS)
    assert shapes == [(4, 6, 2)] * 4


def spread(whole, layout, factors):
    """The tiles of an array after each worker has multiplied its part of another layout."""
    tiles = Tiles(scatter(whole, layout, CONTEXTS), layout)
    parts = parts_of(tiles, factors, CONTEXTS)
    for part, box, context in zip(parts, factors.boxes, CONTEXTS):
        assert (part.shape, part.context, part.dtype) == (box.shape, context, whole.dtype)
        part *= 1 + factors.boxes.index(box)
    spread_parts(Tiles(parts, factors), tiles)
    return tiles.arrays


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("target", LAYOUTS)
@pytest.mark.parametrize("source", LAYOUTS)
def test_parts_reach_all_tiles(source, target, dtype):
    layout, factors = (Layout(SHAPE, dtype, tuple(LAYOUTS[name])) for name in (source, target))
    whole = random(SHAPE).astype(dtype)
    expected = whole.asnumpy()
    for part in set(factors.boxes):
        expected[tuple(map(slice, part.begin, part.end))] *= 1 + factors.boxes.index(part)
    found = spread(whole, layout, factors)
    for tile, part in zip(found, layout.boxes):
        wanted = expected[tuple(map(slice, part.begin, part.end))]
        np.testing.assert_array_equal(tile.asnumpy(), wanted)


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_parts_of_a_matrix_are_written_where_it_is(workers, monkeypatch):
    contexts, shape = CONTEXTS[:workers], (12, 2)
    whole = Layout(shape, "float32", (Box.whole(shape),) * workers)
    size = 12 // workers
    rows = Layout(
        shape, "float32", tuple(box((i * size, i * size + size), (0, 2)) for i in range(workers))
    )
    tiles = Tiles([mx.nd.zeros(shape, context) for context in contexts], whole)
    monkeypatch.setattr(mx.nd, "empty", None)  # nothing is copied to other memory
    parts = parts_of(tiles, rows, contexts)
    for worker, part in enumerate(parts):
        part += worker
        assert tiles.arrays[worker].asnumpy().sum() == worker * size * 2
    spread_parts(Tiles(parts, rows), tiles)
    for tile in tiles.arrays:
        assert tile.asnumpy()[:, 0].tolist() == [i // size for i in range(12)]


@pytest.mark.parametrize("dtype", ["int32", "float64"])
@pytest.mark.parametrize("target", LAYOUTS)
@pytest.mark.parametrize("source", LAYOUTS)
def test_views_do_what_parts_do(source, target, dtype):
    layout, other = (Layout(SHAPE, dtype, tuple(LAYOUTS[name])) for name in (source, target))
    tiles = Tiles(scatter((random(SHAPE) * 100).astype(dtype), layout, CONTEXTS), layout)
    views = views_of(tiles, other)
    in_one_piece = {("replicated", "rows"), ("two copies", "blocks")}
    assert (views is not None) == (source == target or (source, target) in in_one_piece)
    if views is None:
        return
    expected = Tiles([tile.copy() for tile in tiles.arrays], layout)
    parts = parts_of(expected, other, CONTEXTS)
    for own in (views.arrays, parts):
        for part, box in zip(own, other.boxes):
            part *= 2 + other.boxes.index(box)
    views.spread()
    spread_parts(Tiles(parts, other), expected)
    for tile, wanted in zip(tiles.arrays, expected.arrays):
        np.testing.assert_array_equal(tile.asnumpy(), wanted.asnumpy())


def blocked_weights():
    """Weights that oneDNN has put into its blocked layout, one per worker."""
    found = []
    for context in CONTEXTS:
        weight = mx.nd.ones((16, 16, 3, 3), context)
        mx.nd.Convolution(
            mx.nd.ones((1, 16, 8, 8), context), weight, no_bias=True, kernel=(3, 3), num_filter=16
        ).wait_to_read()
        found.append(weight)
    return found


def test_tiles_in_the_blocked_layout_are_written():
    shape = (16, 16, 3, 3)
    whole = Layout(shape, "float32", (Box.whole(shape),) * 4)
    rows = Layout(
        shape, "float32", tuple(box((4 * i, 4 * i + 4), *map(_to, shape[1:])) for i in range(4))
    )
    tiles = Tiles(blocked_weights(), whole)
    parts = parts_of(tiles, rows, CONTEXTS)
    for worker, part in enumerate(parts):
        part += worker
    spread_parts(Tiles(parts, rows), tiles)
    outs = blocked_weights()
    relay(Tiles(parts, rows), whole, CONTEXTS, out=outs, blocked=True)
    for tile in (*tiles.arrays, *outs):
        assert tile.asnumpy()[:, 3, 1, 2].tolist() == [1 + i // 4 for i in range(16)]


def _to(size):
    return (0, size)


def test_nothing_is_recorded():
    layout = Layout(SHAPE, "float32", tuple(LAYOUTS["blocks"]))
    whole = random(SHAPE)
    whole.attach_grad()
    with mx.autograd.record():
        result = gather(scatter(whole, layout, CONTEXTS), layout, mx.cpu())
    with pytest.raises(mx.base.MXNetError):
        result.backward()


def test_a_scalar_tensor_is_one_part():
    layout = Layout((1,), "float32", (box((0, 1)),) * 2)
    assert gather(scatter(mx.nd.ones((1,)), layout, CONTEXTS[:2]), layout, mx.cpu()).asscalar() == 1


def test_a_copy_on_the_wanted_context_is_preferred():
    layout = Layout((2,), "float32", (box((0, 2)),) * 2)
    tiles = [mx.nd.zeros((2,), mx.cpu(0)), mx.nd.ones((2,), mx.cpu(1))]
    assert gather(tiles, layout, mx.cpu(1)).asnumpy().tolist() == [1, 1]


def test_disagreement_is_an_error():
    layout = Layout(SHAPE, "float32", tuple(LAYOUTS["rows"]))
    with pytest.raises(GraphError, match=r"scatter: found an array of shape \(2, 3\)"):
        scatter(mx.nd.zeros((2, 3)), layout, CONTEXTS)
    with pytest.raises(GraphError, match=r"relay: found an array of shape \(2, 3\)"):
        relay(Tiles([], Layout((2, 3), "float32", ())), layout, CONTEXTS)
    with pytest.raises(GraphError, match="and 2 workers, expected"):
        gather([mx.nd.zeros((1, 6, 8))] * 2, layout, mx.cpu())


def test_variables_are_read_with_the_tile_of_every_worker():
    tiles = [("w@0", (0, 0), (2, 3)), ("w@1", (2, 0), (4, 3))]
    step = types.SimpleNamespace(variables=[("w", "parameter", (4, 3), "float64", tiles)])
    layout = Layout((4, 3), "float64", (box((0, 2), (0, 3)), box((2, 4), (0, 3))))
    assert variables_of(step) == {"w": Variable("w", "parameter", layout, ("w@0", "w@1"))}
