"""The script of a Spec: trains its net and keeps the results."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Optional

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

from .build import Net, build, disturbed
from .spec import TRAINERS, Spec

Arrays = dict[str, np.ndarray]

LOSSES = {
    "l2": gluon.loss.L2Loss,
    "huber": gluon.loss.HuberLoss,
    "cross entropy": gluon.loss.SoftmaxCrossEntropyLoss,
    "logistic": gluon.loss.SigmoidBinaryCrossEntropyLoss,
}


@dataclasses.dataclass
class Result:
    """The results of a run.

    Attributes:
        values: outputs, predictions, gradients, weights and running statistics by name.
        before: the parameters before each step, and
        gradients: what each step updated them with, and
        after: what the update made of them; all three of a traced run only.
    """

    values: Arrays = dataclasses.field(default_factory=dict)
    before: list[Arrays] = dataclasses.field(default_factory=list)
    gradients: list[Arrays] = dataclasses.field(default_factory=list)
    after: list[Arrays] = dataclasses.field(default_factory=list)

    def keep(self, name: str, value: Any) -> None:
        self.values[name] = value.asnumpy().astype(np.float64)


def train(
    spec: Spec,
    dtype: str,
    *,
    traced: bool = False,
    forced: Optional[Sequence[Arrays]] = None,
    noise: int = 0,
) -> Result:
    """Train as the Spec says.

    Args:
        spec: the net and its script.
        dtype: of all arrays.
        traced: whether to read all parameters around each step.
        forced: parameters to put in place before each step, or None.
        noise: inputs and weights change by one rounding; each number gives other changes.
    """
    script = _Script(spec, dtype, traced, noise)
    for step in range(len(spec.batches)):
        if forced is not None and step:
            for name, parameter in script.parameters().items():
                parameter.set_data(mx.nd.array(forced[step][name], dtype=dtype))
        script.step(step)
    script.end()
    return script.result


def trainers(spec: Spec, parameters: Sequence[Any]) -> list[gluon.Trainer]:
    """The Trainers of a script: one, or two that share the trained parameters.

    parameters: all of them, in a Trainer's order.
    """
    name, options = spec.optimizer
    trained = [parameter for parameter in parameters if parameter.grad_req != "null"]
    shares = [trained[::2], trained[1::2]]
    if TRAINERS not in spec.habits or not all(shares):
        shares = [parameters]
    return [gluon.Trainer(share, name, dict(options)) for share in shares]


class _Script:
    """A net, its Trainer, and what they have computed so far."""

    def __init__(self, spec: Spec, dtype: str, traced: bool, noise: int) -> None:
        self.spec, self.dtype, self.traced, self.noise = spec, dtype, traced, noise
        self.net: Net = build(spec, dtype, noise)
        self.result = Result()
        if "add gradients" in spec.habits:
            for parameter in self.net.collect_params().values():
                if parameter.grad_req != "null":
                    parameter.grad_req = "add"
        self.trainers = trainers(spec, list(self.parameters().values()))
        if "predict first" in spec.habits:
            self.predict(0, "first")

    def step(self, step: int) -> None:
        """One training step."""
        spec, result = self.spec, self.result
        if "predict between" in spec.habits and step:
            self.predict(step, f"step {step}")
        if self.traced and step:
            result.before.append(self.values())
        inputs = self.inputs(step)
        if "input gradients" in spec.habits:
            for declared, array in zip(spec.inputs, inputs):
                if not declared.words:
                    array.attach_grad()
        for _ in range(2 if "add gradients" in spec.habits else 1):
            outputs = self.backward(inputs, step)
        for i, output in enumerate(outputs):
            result.keep(f"step {step} output {i}", output)
        if self.traced and not step:  # shapes, and so values, exist only now
            result.before.append(self.values())
        if self.traced or step == len(spec.batches) - 1:
            gradients = {
                name: parameter.grad().asnumpy()
                for name, parameter in self.parameters().items()
                if parameter.grad_req != "null"
            }
            result.gradients.append(gradients)
            for name, value in gradients.items():
                result.values[f"step {step} gradient {name}"] = value.astype(np.float64)
        for i, array in enumerate(inputs):
            if array.grad is not None:
                result.keep(f"step {step} gradient of input {i}", array.grad)
        for trainer in self.trainers:
            trainer.step(spec.batches[step])
        if self.traced:
            result.after.append(self.values())
        if "add gradients" in spec.habits:
            self.net.collect_params().zero_grad()

    def backward(self, inputs: list[Any], step: int) -> list[Any]:
        """The outputs, after a backward pass."""
        spec = self.spec
        with autograd.record():
            outputs = _listed(self.net(*inputs))
            losses = self.losses(outputs)
            if "call twice" in spec.habits:
                again = _listed(self.net(*self.inputs(step, another=50)))
                losses += self.losses(again)
            if "one sum" in spec.habits:
                losses = [mx.nd.add_n(*(loss.mean() for loss in losses))]
        if "head gradients" in spec.habits:
            heads = [
                mx.nd.full(loss.shape, 0.5 + i, dtype=self.dtype) for i, loss in enumerate(losses)
            ]
            autograd.backward(losses, heads)
        elif len(losses) > 1:
            autograd.backward(losses)
        else:
            losses[0].backward()
        return outputs

    def losses(self, outputs: list[Any]) -> list[Any]:
        """One loss for each output."""
        found = []
        for number, (name, output) in enumerate(zip(self.spec.losses, outputs)):
            random = np.random.RandomState(number)
            if name == "square":
                found.append(mx.nd.square(output).mean())
            elif name == "projection":
                found.append((output * self.array(random.normal(size=output.shape))).sum())
            else:
                loss = LOSSES[name]()
                if "hybridized loss" in self.spec.habits:
                    loss.hybridize()
                if name == "cross entropy":
                    label = random.randint(0, output.shape[1], output.shape[0])
                else:
                    label = random.randint(0, 2, output.shape)
                found.append(loss(output, self.array(label)))
        return found

    def predict(self, step: int, when: str) -> None:
        """Keep the outputs outside of training."""
        for i, output in enumerate(_listed(self.net(*self.inputs(step, another=100)))):
            self.result.keep(f"{when} prediction {i}", output)

    def inputs(self, step: int, another: int = 0) -> list[Any]:
        """The inputs of a step, or others of the same shapes."""
        spec, found = self.spec, []
        for number, declared in enumerate(spec.inputs):
            draw = np.random.RandomState((spec.seed, step + another, number))
            shape = (spec.batches[step], *declared.shape)
            if declared.words:
                found.append(self.array(draw.randint(0, declared.words, shape)))
                continue
            drawn = disturbed(draw.normal(size=shape), self.dtype, self.noise, spec.seed)
            found.append(mx.nd.array(drawn, dtype=self.dtype))
        return found

    def array(self, values: Any) -> Any:
        """An array of the same numbers in every dtype."""
        return mx.nd.array(np.asarray(values, dtype=np.float32), dtype=self.dtype)

    def parameters(self) -> dict[str, Any]:
        """The parameters by the net's names for them, each once, in a Trainer's order."""
        names = {p.name: (n, p) for n, p in self.net._collect_params_with_prefix().items()}
        return dict(names[name] for name in sorted(names))

    def values(self) -> Arrays:
        """The parameters' values."""
        return {name: p.data().asnumpy() for name, p in self.parameters().items()}

    def end(self) -> None:
        """Keep the trained parameters."""
        for name, value in self.values().items():
            if not self.traced or "running" in name:
                self.result.values[f"parameter {name}"] = value.astype(np.float64)


def replay(spec: Spec, result: Result, dtype: str) -> list[Arrays]:
    """The updates that a plain Trainer makes of a run's own gradients."""
    parameters: dict[str, Any] = {}
    for name in result.gradients[0]:
        value = result.before[0][name]
        parameters[name] = gluon.Parameter(name, shape=value.shape, dtype=dtype)
        parameters[name].initialize(mx.init.Zero())
    those = trainers(spec, list(parameters.values()))
    found = []
    for step, batch in enumerate(spec.batches):
        for name, parameter in parameters.items():
            parameter.set_data(mx.nd.array(result.before[step][name], dtype=dtype))
            with autograd.record():
                product = parameter.data() * 1
            product.backward(mx.nd.array(result.gradients[step][name], dtype=dtype))
        for trainer in those:
            trainer.step(batch)
        found.append({name: p.data().asnumpy() for name, p in parameters.items()})
    return found


def _listed(outputs: Any) -> list[Any]:
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
