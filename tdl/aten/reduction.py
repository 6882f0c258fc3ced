"""Reductions over some dimensions. Means have become sums before descriptions are read."""

from __future__ import annotations

from tofu.lang import Max, Min, Opaque, Over, Sum, apply, op
from tofu.tdl._shapes import axes_of, axis_of, names, whole


def _reduced(data, reducer, axes, keepdim):
    """The lambda of a reduction: kept dimensions of size 1 have variables of their own."""
    every = names(data.ndim)
    variables = [
        f"one{d}" if d in axes else every[d] for d in range(data.ndim) if keepdim or d not in axes
    ]
    summed = [every[d] for d in axes]

    def body(*index):
        by_name = dict(zip(variables, index))
        return reducer(
            Over(summed, lambda *v: data[[{**by_name, **dict(zip(summed, v))}[n] for n in every]])
        )

    if not summed:
        return lambda *i: data[i]
    return Over(variables, body)


@op(name=("aten.sum.dim_IntList", "aten.sum.default"))
def sum_(data, *, dim=None, keepdim=False):
    """The sum over some dimensions, or all."""
    return _reduced(data, Sum, axes_of(dim, data.ndim), keepdim)


@op(name=("aten.amax.default", "aten.max.default"))
def amax(data, *, dim=None, keepdim=False):
    """The largest element along some dimensions."""
    return _reduced(data, Max, axes_of(dim, data.ndim), keepdim)


@op(name=("aten.amin.default", "aten.min.default"))
def amin(data, *, dim=None, keepdim=False):
    """The smallest element along some dimensions."""
    return _reduced(data, Min, axes_of(dim, data.ndim), keepdim)


@op(
    name=(
        *("aten.max.dim", "aten.min.dim", "aten.argmax.default", "aten.argmin.default"),
        *("aten.prod.dim_int", "aten.any.dim", "aten.all.dim", "aten.any.dims", "aten.all.dims"),
        *("aten.var.correction", "aten.var_mean.correction", "aten.linalg_vector_norm.default"),
        *("aten.std.correction", "aten.logsumexp.default", "aten.any.default", "aten.all.default"),
        *("aten.median.dim", "aten.nanmedian.dim", "aten.median.default", "aten.mode.default"),
        *("aten.nanmedian.default", "aten.kthvalue.default", "aten.aminmax.default"),
        *("aten.nansum.default", "aten.std_mean.correction", "aten.norm.ScalarOpt_dim"),
        *("aten.prod.default", "aten.count_nonzero.default", "aten.count_nonzero.dim_IntList"),
    )
)
def along(data, *, dim=None, keepdim=False, out_shapes):
    """A function of all elements along some dimensions, which are whole."""
    axes = axes_of(dim, data.ndim) if dim != () else tuple(range(data.ndim))
    function = Opaque("Along")
    every = names(data.ndim)
    variables = [
        f"one{d}" if d in axes else every[d] for d in range(data.ndim) if keepdim or d not in axes
    ]

    def body(*index):
        by_name = dict(zip(variables, index))
        return function(
            data[[slice(None) if d in axes else by_name[n] for d, n in enumerate(every)]]
        )

    return (Over(variables, body),) * len(out_shapes)


@op(
    name=(
        *("aten.cumsum.default", "aten.cumprod.default", "aten.logcumsumexp.default"),
        *("aten.cummax.default", "aten.cummin.default"),
    )
)
def running(data, *, dim, out_shapes):
    """A function of the preceding elements along a dimension, which is whole."""
    if not data.ndim:
        return (lambda: apply("running", data[()]),) * len(out_shapes)
    axis = axis_of(dim, data.ndim)
    function = Opaque("Running")
    return (lambda *i: function(data[whole(i, axis)])[i[axis]],) * len(out_shapes)
