"""Weight updates: element-wise in the weight, its gradient and the states."""

from __future__ import annotations

from tofu.lang import Opaque, Over, Sum, apply, op
from tofu.tdl._shapes import names

_SINGLE = (
    *("sgd_update", "sgd_mom_update", "mp_sgd_update", "mp_sgd_mom_update"),
    *("nag_mom_update", "mp_nag_mom_update", "adam_update", "ftrl_update", "ftml_update"),
    *("rmsprop_update", "rmspropalex_update", "signsgd_update", "signum_update"),
    # The direction before norms scale it, and rates computed from vectors of norms.
    *("lamb_update_phase1", "mp_lamb_update_phase1", "multi_lars"),
)
# Tensors per weight in the fused forms: the weight, its gradient, its states.
_FUSED = {
    "multi_sgd_update": 2,
    "multi_sgd_mom_update": 3,
    "multi_mp_sgd_update": 3,
    "multi_mp_sgd_mom_update": 4,
}


@op(name=_SINGLE, stateful=True)
def update(*args):
    """The new weight."""
    return lambda *i: apply("update", *(x[i] for x in args))


def _fused(tensors, per_weight, shared=()):
    """One lambda per weight; each reads the `shared` tensors whole."""
    step = Opaque("Update")
    lambdas = []
    for k in range(len(tensors) // per_weight):
        group = tensors[k * per_weight : (k + 1) * per_weight]
        wholes = [x[(slice(None),) * x.ndim] for x in shared]

        def element(*i, group=group, wholes=wholes):
            values = [x[i] for x in group]
            return step(*values, *wholes) if wholes else apply("update", *values)

        lambdas.append(Over([f"w{k}_{d}" for d in range(group[0].ndim)], element))
    return tuple(lambdas)


def _describe_fused(name, per_weight):
    @op(name=name, stateful=True)
    def fused(*args):
        """The new weights, each updated separately."""
        return _fused(args, per_weight)

    @op(name=f"preloaded_{name}", stateful=True)
    def preloaded(*args):
        """The new weights; learning rates and decays are the last two tensors."""
        return _fused(args[:-2], per_weight, args[-2:])

    return fused, preloaded


for _name, _per_weight in _FUSED.items():
    _describe_fused(_name, _per_weight)


@op(name=("lamb_update_phase2", "mp_lamb_update_phase2"), stateful=True)
def lamb_update(weight, direction, weight_norm, direction_norm, weight32=None):
    """The new weight, scaled by norms of the whole weight and direction."""
    tensors = [x for x in (weight, direction, weight32) if x is not None]
    norms = weight_norm[0], direction_norm[0]
    return lambda *i: apply("update", *(x[i] for x in tensors), *norms)


@op(name=("_multi_lamb_update", "_multi_mp_lamb_update"), stateful=True)
def multi_lamb_update(*args, num_tensors=1):
    """The new weights, each scaled by norms of the whole weight."""
    step, count = Opaque("Update"), len(args) // num_tensors

    def updated(group, k):
        every = [x[(slice(None),) * x.ndim] for x in group]
        return Over(names(group[0].ndim, f"w{k}_"), lambda *i: step(*every)[i])

    return tuple(updated(args[k * count : (k + 1) * count], k) for k in range(num_tensors))


@op(name="multi_sum_sq")
def multi_sum_sq(*args):
    """The sum of squares of every tensor, as a vector."""

    def squares(x, m):
        return Sum(Over(names(x.ndim, f"x{m}_"), lambda *i: x[i] * x[i]))

    return lambda k: sum(
        (apply(f"is{m}", k) * squares(x, m) for m, x in enumerate(args[1:], 1)),
        apply("is0", k) * squares(args[0], 0),
    )


@op(name=("_multi_adamw_update", "_multi_mp_adamw_update"), stateful=True)
def multi_adamw_update(*args, num_weights):
    """The new weights, scaled by a last tensor of one element."""
    return _fused(args[:-1], (len(args) - 1) // num_weights, args[-1:])


@op(name=("_adamw_update", "_mp_adamw_update"), stateful=True)
def adamw_update(*args):
    """The new weight, scaled by a last tensor of one element."""
    *tensors, scale = args
    return lambda *i: apply("update", *(x[i] for x in tensors), scale[(0,) * scale.ndim])
