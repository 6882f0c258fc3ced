"""Shapes that MXNet does not infer."""

import mxnet as mx
import pytest

from tofu.errors import GraphError
from tofu.mx.graphs.infer import infer
from tofu.mx.nnvm import Graph

DATA, MASK = mx.sym.var("data"), mx.sym.var("mask")


def test_a_shape_that_depends_on_values_needs_a_cut_of_the_block():
    graph = Graph.from_symbol(mx.sym.contrib.boolean_mask(DATA, MASK, name="chosen"))
    known = {"data": ((4, 3), "float32"), "mask": ((4,), "float32")}
    expected = r"'chosen' .*depends on values: .*compute this operator outside of the block"
    with pytest.raises(GraphError, match=expected):
        infer(graph, known)


def test_a_shape_that_is_not_given_is_asked_for():
    graph = Graph.from_symbol(mx.sym.broadcast_add(DATA, MASK))
    with pytest.raises(GraphError, match=r"'mask' .*give the shape of every input, parameter"):
        infer(graph, {"data": ((4, 3), "float32")})


def test_types_that_do_not_fit_print_nothing(capsys):
    graph = Graph.from_symbol(mx.sym.dot(DATA, MASK))
    with pytest.raises(GraphError, match="Incompatible attr"):
        infer(graph, {"data": ((4, 3), "float32"), "mask": ((3, 4), "float64")})
    assert capsys.readouterr().out == ""
