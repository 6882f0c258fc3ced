"""Samplers, densities and the gradients of both; two runs of a sampler differ."""

from __future__ import annotations

from tofu.lang import Opaque, Over, Rewrite, Sum, apply, op
from tofu.tdl._shapes import broadcast, broadcast_ones, names
from tofu.tdl.numpy_elementwise import backward_broadcast_all

# Samplers whose second output is the noise that the gradient reads.
_REPARAMETRISED = ("normal", "exponential", "gumbel", "logistic", "pareto", "rayleigh", "weibull")
_OTHER = ("uniform", "bernoulli", "gamma", "powerd")
_SAMPLES = (
    *("uniform", "normal", "exponential", "gamma", "poisson", "negative_binomial"),
    "generalized_negative_binomial",
)


backward_broadcast_all.serves(*(f"_backward_broadcast_{name}" for name in _REPARAMETRISED))


def _sizes(attribute, first, count):
    """The rewrite of an attribute that gives the sizes of some dimensions."""
    return [Rewrite(attribute, {"sizes": [f"i{first + d}" for d in range(count)]})] if count else []


def _length(size):
    return 0 if size is None else 1 if isinstance(size, int) else len(size)


@op(
    name=tuple(f"_npi_{name}" for name in (*_REPARAMETRISED, *_OTHER)),
    rewrites=[Rewrite("size", {"output_shape": 0})],
    random=True,
)
def sampled(*args, out_shapes):
    """Random numbers whose parameters are broadcast to the output, and their noise."""
    ones = out_shapes[0].ones
    draw = lambda *i: apply("random", *(broadcast(x, i, ones) for x in args))  # noqa: E731
    return draw, draw


def _prefix(shapes, size=None):
    return _sizes("size", 0, _length(size))


@op(name=("_npi_normal_n", "_npi_uniform_n"), rewrites=_prefix, random=True)
def sampled_each(*args, size=None):
    """Several random numbers per element of the broadcast parameters, and their noise."""
    ones, count = broadcast_ones(*args) if args else (), _length(size)
    draw = lambda *i: apply("random", *(broadcast(x, i[count:], ones) for x in args))  # noqa: E731
    return draw, draw


def _suffix(shapes, shape=()):
    return _sizes("shape", len(shapes[0]), _length(shape))


@op(name=tuple(f"_sample_{name}" for name in _SAMPLES), rewrites=_suffix, random=True)
def sample(*args, shape=()):
    """Several random numbers per element of the parameters."""
    return lambda *i: apply("random", *(x[i[: x.ndim]] for x in args))


def _rows(shapes, shape=()):
    return _sizes("shape", len(shapes[0]) - 1, _length(shape))


@op(name="_sample_multinomial", rewrites=_rows, random=True)
def sample_multinomial(data, *, shape=()):
    """Classes drawn for each row of probabilities, and their logarithms."""
    draw, batch = Opaque("Draw"), data.ndim - 1
    result = lambda *i: draw(data[i[:batch], :])  # noqa: E731
    return result, result


@op(name="_backward_sample_multinomial")
def backward_sample_multinomial(ograd, data, drawn):
    """The gradient of the probabilities: a sum over the draws."""
    add, batch = Opaque("AddTo"), names(data.ndim - 1)
    draws = names(drawn.ndim - len(batch), "s")

    def element(*v):
        b, k = v[:-1], v[-1]
        term = lambda *s: add(ograd[b, s], data[b, :], drawn[b, s])[k]  # noqa: E731
        return Sum(Over(draws, term)) if draws else term()

    return Over([*batch, "k"], element)


@op(name="_npi_multinomial", rewrites=_prefix, random=True)
def multinomial(a=None, *, size=None):
    """The number of times each class is drawn, for every position of a shape."""
    draw = Opaque("Counts")
    if a is None:
        return lambda *i, k: apply("counts", k)
    return lambda *i, k: draw(a[:])[k]


@op(name="_sample_unique_zipfian", rewrites=[Rewrite("shape", {"output_shape": 0})], random=True)
def sample_unique_zipfian():
    """Rows of distinct classes, and the number of draws for each."""
    return lambda n, k: apply("distinct", k), lambda n: apply("draws")


@op(name=("_shuffle", "_npi_choice"), random=True)
def shuffle(*args):
    """Elements in random order, or a choice of them: everything is whole."""
    draw = Opaque("Draw")
    return lambda *i: draw(*(x[(slice(None),) * x.ndim] for x in args))[i]


# --- Densities ----------------------------------------------------------------------------


def _density(tensors, parameters):
    """A function from an index of the samples to the density, or a gradient."""
    return lambda *i: apply(
        "density", *(x[i] for x in tensors), *(x[i[: x.ndim]] for x in parameters)
    )


@op(name=tuple(f"_random_pdf_{name}" for name in _SAMPLES))
def density(samples, *args):
    """The density of each sample; parameters have several samples per element."""
    return _density([samples], args)


@op(name=tuple(f"_backward_pdf_{name}" for name in _SAMPLES))
def backward_density(ograd, samples, *args):
    """The gradients of the samples, and of the parameters: sums over their samples."""
    *parameters, out = args
    element = _density([ograd, samples, out], parameters)
    every = names(samples.ndim)

    def by_parameter(variables):
        rest = every[len(variables) :]
        return Over(variables, lambda *v: Sum(Over(rest, lambda *s: element(*v, *s))))

    return Over(every, element), *(by_parameter(every[: x.ndim]) for x in parameters)


@op(name="_random_pdf_dirichlet")
def dirichlet_density(samples, alpha):
    """The density of each sample, which is a line of the last dimension."""
    of, batch = Opaque("Dirichlet"), alpha.ndim - 1
    return lambda *i: of(samples[i, :], alpha[i[:batch], :])


@op(name="_backward_pdf_dirichlet")
def backward_dirichlet_density(ograd, samples, alpha, out):
    """The gradients of the samples and of the parameters."""
    of, every = Opaque("DirichletGradient"), names(ograd.ndim)
    variables = every[: alpha.ndim - 1]
    rest = every[len(variables) :]

    def element(i, k):
        return of(ograd[i], samples[i, :], alpha[i[: len(variables)], :], out[i])[k]

    return (
        Over([*every, "k"], lambda *v: element(v[:-1], v[-1])),
        Over(
            [*variables, "k"], lambda *v: Sum(Over(rest, lambda *s: element((*v[:-1], *s), v[-1])))
        ),
    )
