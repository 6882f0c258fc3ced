"""Example calls of samplers, of densities, and of the gradients of both."""

from __future__ import annotations

from typing import Any

from tofu.lang.example_calls import Case, In, back, case, ints, positive

__all__ = ["CASES"]

_PARAMETERS = {
    "normal": ("loc", "scale"),
    "gumbel": ("loc", "scale"),
    "logistic": ("loc", "scale"),
    "uniform": ("low", "high"),
    "gamma": ("shape", "scale"),
    "exponential": ("scale",),
    "rayleigh": ("scale",),
    "pareto": ("a",),
    "weibull": ("a",),
    "powerd": ("a",),
    "bernoulli": ("prob",),
}
_WITH_NOISE = ("normal", "gumbel", "logistic", "exponential", "rayleigh", "pareto", "weibull")
# Other required attributes, by operator.
_MORE = {"bernoulli": {"logit": "None", "is_logit": "False"}}
# Number of parameters of the classic family's distributions.
_CLASSIC = (
    ("uniform", 2),
    ("normal", 2),
    ("exponential", 1),
    ("gamma", 2),
    ("poisson", 1),
    ("negative_binomial", 2),
    ("generalized_negative_binomial", 2),
)


def _samplers() -> list[Case]:
    cases = []
    size = {"size": "(6, 4)"}
    for name, parameters in _PARAMETERS.items():
        noise = name in _WITH_NOISE
        more: dict[str, Any] = {"outputs": 2 if noise else 1, "numpy": True, "dtype": "float32"}
        more["expect"] = "i0 i1"
        fixed = {**dict.fromkeys(parameters, "0.7"), **_MORE.get(name, {})}
        by_input = {**dict.fromkeys(parameters, "None"), **_MORE.get(name, {})}
        shapes = ((6, 1), (4,))[: len(parameters)]
        inputs = [positive(*s) for s in shapes]
        op = f"_npi_{name}"
        cases.append(case(op, attrs={**fixed, **size}, **more))
        cases.append(case(op, *inputs, attrs={**by_input, **size}, **more))
        if noise:
            reads = " ".join(["g0 z1", *(f"i{k}" for k in range(len(inputs))), "o0 o1"])
            options = {"attrs": {**by_input, **size}, "forward": op, "imperative": True}
            cases.append(back(f"_backward_broadcast_{name}", reads, *inputs, **options, **more))
    for name in ("normal", "uniform"):
        parameters = _PARAMETERS[name]
        outputs = 2 if name == "normal" else 1
        more = {"outputs": outputs, "numpy": True, "dtype": "float32"}
        by_input = {**dict.fromkeys(parameters, "None"), "size": "(6,)"}
        inputs = [positive(4, 1), positive(2)]
        cases.append(case(f"_npi_{name}_n", *inputs, attrs=by_input, expect="i0 i1 i2", **more))
    return cases


def _classic_samplers() -> list[Case]:
    cases = []
    for name, count in _CLASSIC:
        inputs = [positive(6, 2)] * count
        for shape, expect in (("(4,)", "i0 i1 i2"), ("()", "i0 i1")):
            more: dict[str, Any] = {"attrs": {"shape": shape}, "dtype": "float32"}
            cases.append(case(f"_sample_{name}", *inputs, expect=expect, **more))
    return cases


def _classes() -> list[Case]:
    rows = In((6, 4), "share")  # if a row sums to less than 1, MXNet draws invalid classes
    cases = []
    for shape, expect, outs in (("()", "i0", "i0"), ("(2,)", "i0 i1", "i0 s0")):
        attrs = {"shape": shape, "get_prob": "True", "dtype": "float32"}
        options: dict[str, Any] = {"attrs": attrs, "outputs": 2, "dtype": "float32"}
        cases.append(case("_sample_multinomial", rows, expect=expect, **options))
        options.update(forward="_sample_multinomial", expect=outs, imperative=True)
        cases.append(back("_backward_sample_multinomial", "g1 i0 o0", rows, **options))
    share = In((4,), "share")
    numpy: dict[str, Any] = {"numpy": True, "expect": "i0"}
    drawn = {"n": "20", "size": "(6,)", "pvals": "None"}
    fixed = {"n": "20", "size": "(6,)", "pvals": "(0.2, 0.3, 0.5)"}
    choice = {"a": "6", "size": "(4,)", "replace": "True", "weighted": "False"}
    cases += [
        case("_npi_multinomial", share, attrs=drawn, **numpy),
        case("_npi_multinomial", attrs=fixed, **numpy),
        case("_npi_choice", attrs=choice, numpy=True, expect=""),
        case("_shuffle", positive(6, 4), expect=""),
        case(
            "_sample_unique_zipfian",
            attrs={"range_max": "50", "shape": "(6, 4)"},
            outputs=2,
            expect="n",
        ),
    ]
    return cases


def _densities() -> list[Case]:
    cases = []
    for name, count in (*_CLASSIC, ("dirichlet", 1)):
        whole = name in ("poisson", "negative_binomial", "generalized_negative_binomial")
        samples = ints(5, 6, 2, 4) if whole else positive(6, 2, 4)
        parameters = [positive(6, 2)] * count
        if name == "uniform":
            parameters = [In((6, 2), "int", 1), positive(6, 2)]
        if name == "dirichlet":
            samples, parameters = In((6, 2, 4), "share"), [positive(6, 4)]
        expect = "i0 i1" if name == "dirichlet" else "i0 i1 i2"
        cases.append(case(f"_random_pdf_{name}", samples, *parameters, expect=expect))
        reads = " ".join(["g0", *(f"i{k}" for k in range(count + 1)), "o0"])
        options = {"forward": f"_random_pdf_{name}", "expect": expect}
        cases.append(back(f"_backward_pdf_{name}", reads, samples, *parameters, **options))
    return cases


CASES = [*_samplers(), *_classic_samplers(), *_classes(), *_densities()]
