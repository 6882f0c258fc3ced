"""Example calls of weight updates."""

from __future__ import annotations

import dataclasses

from tofu.lang.example_calls import Case, In, case, positive, real

__all__ = ["CASES"]


def _optimizer() -> list[Case]:
    weight, half = real(6, 4), In((6, 4), dtype="float16")
    single = In((6, 4), dtype="float32")
    state = positive(6, 4)
    plain = {"lr": "0.1", "wd": "0.01"}
    scale = In((1,), "positive", dtype="float32")
    counts = {
        "sgd_update": 0,
        "sgd_mom_update": 1,
        "nag_mom_update": 1,
        "adam_update": 2,
        "ftrl_update": 2,
        "rmsprop_update": 1,
        "rmspropalex_update": 3,
        "signsgd_update": 0,
        "signum_update": 1,
    }
    cases = []
    for name, states in counts.items():
        inputs = [weight, weight, *[state] * states]
        if name == "rmspropalex_update":
            inputs = [weight, weight, In((6, 4), "int", 1), In((6, 4), "int", 1), weight]
        cases.append(case(name, *inputs, attrs=plain, imperative=True, expect="i0 i1"))
    cases += [
        case("ftml_update", weight, weight, state, state, state, attrs={**plain, "t": "1"}),
        case("mp_sgd_update", half, half, single, attrs=plain),
        case("mp_sgd_mom_update", half, half, single, single, attrs=plain),
        case("mp_nag_mom_update", half, half, single, single, attrs=plain),
        case("_adamw_update", weight, weight, state, state, scale, attrs={**plain, "eta": "1"}),
        case(
            "_mp_adamw_update",
            *(half, half, single, In((6, 4), "positive", dtype="float32"), single),
            scale,
            attrs={**plain, "eta": "1"},
        ),
    ]
    cases.append(
        case("lamb_update_phase1", weight, weight, state, state, attrs={"t": "1", "wd": "0.01"})
    )
    cases += _lamb()
    return [dataclasses.replace(c, imperative=True) for c in cases]


def _lamb() -> list[Case]:
    """LAMB's updates, which norms scale, and the norms."""
    first, rate = {"t": "1", "wd": "0.01"}, {"lr": "0.1"}
    single = In((6, 4), dtype="float32")
    state, half = In((6, 4), "positive", dtype="float32"), In((6, 4), dtype="float16")
    norm, vector = In((1,), "positive", dtype="float32"), In((6,), "positive", dtype="float32")
    many = {"learning_rates": "(0.1, 0.2)", "wds": "(0.01, 0)", "step_count": "(1, 1)"}
    many["num_tensors"] = "2"
    shapes = ((6, 4), (2,))
    plain = [In(s, k, dtype="float32") for s in shapes for k in ("real", "real", *["positive"] * 2)]
    mixed = [
        In(s, k, dtype=t)
        for s in shapes
        for k, t in zip(
            ("real", "real", "positive", "positive", "real"),
            ("float16", "float16", "float32", "float32", "float32"),
        )
    ]
    options = {"attrs": many, "expect": "", "outputs": 2}
    expect = {"expect": "i0 i1"}
    return [
        case("mp_lamb_update_phase1", half, half, state, state, single, attrs=first, **expect),
        case("lamb_update_phase2", single, single, norm, norm, attrs=rate, **expect),
        case("mp_lamb_update_phase2", half, single, norm, norm, single, attrs=rate, **expect),
        case("multi_lars", *[vector] * 4, attrs={"eta": "0.1", "eps": "1e-8"}, expect="i0"),
        case("_multi_lamb_update", *plain, shaped=(0, 4), **options),
        case("_multi_mp_lamb_update", *mixed, shaped=(0, 5), **options),
        case("multi_sum_sq", single, attrs={"num_arrays": "1"}, expect="x0_0 x0_1"),
        case("multi_sum_sq", single, vector, attrs={"num_arrays": "2"}, expect="x0_0 x0_1 x1_0"),
    ]


def _fused_optimizer() -> list[Case]:
    cases = []
    scale = In((1,), "positive", dtype="float32")
    fused = {"lrs": "(0.1, 0.2)", "wds": "(0.01, 0)", "num_weights": "2"}
    for name, kinds in {
        "multi_sgd_update": "ww",
        "multi_sgd_mom_update": "www",
        "multi_mp_sgd_update": "hhs",
        "multi_mp_sgd_mom_update": "hhss",
    }.items():
        types = {"w": "float32", "h": "float16", "s": "float32"}
        inputs = [In(s, dtype=types[k]) for s in ((6, 4), (2,)) for k in kinds]
        more = {"outputs": 2, "imperative": True, "expect": "w0_0 w0_1 w1_0"}
        more["shaped"] = (0, len(kinds))
        cases.append(case(name, *inputs, attrs=fused, **more))
        rates = In((2,), "positive", dtype="float32"), In((2,), "positive", dtype="float32")
        preloaded = {"num_weights": "2"}
        cases.append(case(f"preloaded_{name}", *inputs, *rates, attrs=preloaded, **more))
    for name, kinds in {"_multi_adamw_update": "wwpp", "_multi_mp_adamw_update": "hhpps"}.items():
        options = {"w": ("real", "float32"), "h": ("real", "float16")}
        options.update(p=("positive", "float32"), s=("real", "float32"))
        inputs = [
            In(shape, options[k][0], dtype=options[k][1]) for shape in ((6, 4), (2,)) for k in kinds
        ]
        attrs = {**fused, "etas": "(1, 1)"}
        more = {"outputs": 2, "expect": "w0_0 w0_1 w1_0", "shaped": (0, len(kinds))}
        cases.append(case(name, *inputs, scale, attrs=attrs, **more))
    return [dataclasses.replace(c, imperative=True) for c in cases]


CASES = [*_optimizer(), *_fused_optimizer()]
