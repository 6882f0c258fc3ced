"""Scripts around a module, as people write them: each runs whole and distributed, and is compared.

All cases of a kind run in one pair of ranks. A case returns what plain torch must return, too.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

import pytest
import torch
from torch import nn
from torch.distributed.tensor.debug import CommDebugMode
from torch.nn import functional as F
from torch.nn.utils import prune

import tofu.torch
from tofu.errors import GraphError

from .ranks import on_ranks
from .scripts import Wrap, compare

# --- Losses of some outputs, and of parameters ----------------------------------------------


class Heads(nn.Module):
    """Two heads on one body."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, data):
        hidden = torch.tanh(self.body(data))
        return self.one(hidden), self.two(hidden)


def heads(choose: Callable[[Any, int], Any]) -> Callable[[Wrap], dict[str, Any]]:
    """A script whose loss in each step is chosen from the outputs of two heads."""

    def script(wrap: Wrap) -> dict[str, Any]:
        data = torch.randn(6, 4)
        model = wrap(Heads(), data)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2, weight_decay=0.5)
        result: dict[str, Any] = {}
        for step in range(3):
            choose(model(data), step).backward()
            result[f"None in {step}"] = [p.grad is None for p in model.parameters()]
            optimizer.step()
            optimizer.zero_grad()
        return {**result, **dict(model.named_parameters())}

    return script


def penalty(power: int) -> Callable[[Wrap], dict[str, Any]]:
    """A script whose loss has a penalty on parameters."""

    def script(wrap: Wrap) -> dict[str, Any]:
        data = torch.randn(6, 4)
        model = wrap(nn.Linear(4, 2), data)
        decay = sum(p.abs().pow(power).sum() for p in model.parameters())
        loss = model(data).pow(2).mean() + 1e-2 * decay
        loss.backward()
        return {"loss": loss, **{name: p.grad for name, p in model.named_parameters()}}

    return script


def test_losses_of_some_outputs_and_of_parameters() -> None:
    on_ranks(
        2, compare,
        heads(lambda made, step: made[0].square().mean()),
        heads(lambda made, step: made[step % 2].square().mean()),
        heads(lambda made, step: made[0].detach().mean() * made[1].square().mean()),
        heads(lambda made, step: (made[0] + made[1]).square().mean()),
        heads(lambda made, step: F.mse_loss(made[1], made[0].detach())),
        penalty(1), penalty(2),
    )  # fmt: skip


def differentiated(differentiate: Callable[..., Any]) -> Callable[[Wrap], dict[str, Any]]:
    """A script that differentiates outputs by chosen tensors, among them the data."""

    def script(wrap: Wrap) -> dict[str, Any]:
        data = torch.randn(6, 4, requires_grad=True)
        model = wrap(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)), data)
        made = differentiate(model(data), data, model[0].weight)
        return {
            **dict(enumerate(made or ())),
            "data": data.grad,
            **{name: p.grad for name, p in model.named_parameters()},
        }

    return script


def of_two(made: Any, data: Any, weight: Any) -> Any:
    """Differentiate an output and a tensor of a parameter, with gradients of both kinds."""
    given = [torch.full((4, 4), 2.0), weight.detach().tile(2, 1)[:6]]
    return torch.autograd.grad([weight.square(), made], [data, weight], given)


def test_backward_passes_of_chosen_tensors_are_as_in_plain_torch() -> None:
    on_ranks(2, compare, *map(differentiated, (
        lambda made, data, weight: made.mean().backward(inputs=[data, weight]),
        lambda made, data, weight: torch.autograd.grad(made.mean(), (data, weight)),
        lambda made, data, weight: torch.autograd.grad(made.sum() + weight.sum(), (data, weight)),
        lambda made, data, weight: torch.autograd.backward(
            [made, weight.exp()], [torch.ones(6, 4), torch.ones(4, 4)], inputs=[data, weight]),
        of_two,
    )))  # fmt: skip


# --- Parameters outside of the call ---------------------------------------------------------


def weights(model: Any) -> tuple[Any, Any]:
    """The weights of two layers, without their biases."""
    return model[0].weight, model[1].weight


def around(
    penalty: Callable[[Any, Any], Any], between: Callable[[Any, Any], Any]
) -> Callable[[Wrap], dict[str, Any]]:
    """A script whose loss has a penalty, and that changes or reads parameters between steps."""

    def script(wrap: Wrap) -> dict[str, Any]:
        data = torch.randn(6, 4)
        model = wrap(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3)), data)
        result: dict[str, Any] = {}
        for step in range(2):
            loss = model(data).square().mean() + penalty(*weights(model))
            loss.backward()
            for name, p in model.named_parameters():
                result[f"gradient {name} {step}"] = p.grad
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad
            result[f"{step}"] = between(*weights(model))
            result[f"loss {step}"] = loss
            model.zero_grad()
        return {**result, **dict(model.named_parameters())}

    return script


def test_parameters_are_as_in_plain_torch_outside_of_the_call() -> None:
    on_ranks(
        2, compare,
        around(lambda a, b: a.detach().sum().item() * b.sum(), lambda a, b: a.norm().item()),
        around(lambda a, b: torch.stack([a.norm(), b.norm()]).sum(), lambda a, b: f"{a.sum():.3f}"),
        around(lambda a, b: F.mse_loss(a, torch.ones(4, 4)), lambda a, b: a.tolist()),
        around(lambda a, b: F.smooth_l1_loss(b, torch.ones(3, 4)), lambda a, b: a.argmax().item()),
        around(lambda a, b: torch.cdist(a, b).mean(), set_data),
        around(lambda a, b: a[a > 0].sum() + a.norm(float("inf")), write_parts),
        around(lambda a, b: (a @ a.T * torch.eye(4)).norm(), draw),
    )  # fmt: skip


def set_data(a: Any, b: Any) -> None:
    """Assign data: of the same placement, and plain."""
    a.data, b.data = a.data * 0.5, torch.full((3, 4), 0.25)


def write_parts(a: Any, b: Any) -> float:
    """Write to rows, to a view of another shape, where a mask says so, and from another row."""
    a.data[0].zero_()
    a.data.view(-1)[5:7] = 2.0
    a.data[a.data < -0.1] = 0.5
    with torch.no_grad():
        b[1].copy_(b[0])
    return float(nn.utils.parameters_to_vector([a, b]).sum())


def draw(a: Any, b: Any) -> None:
    """Draw new values."""
    nn.init.orthogonal_(a)
    b.data.normal_()


def clip(wrap: Wrap) -> dict[str, Any]:
    """A script that clips gradients of several kinds, and counts the messages."""
    data = torch.randn(6, 4)
    model = wrap(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 3)), data)
    model(data).square().mean().backward()
    gradients = [p.grad for p in model.parameters()]
    with CommDebugMode() as messages:
        total = nn.utils.clip_grad_norm_(model.parameters(), 1e-2)
    assert messages.get_total_counts() <= 1
    largest = nn.utils.get_total_norm(gradients, float("inf"))
    norms = torch._foreach_norm(gradients, 1)
    return {
        "total": total,
        "largest": largest,
        "norms": torch.stack(norms),
        **dict(enumerate(gradients)),
    }


def test_gradients_are_clipped_in_one_message() -> None:
    on_ranks(2, compare, clip)


def fails_once() -> None:
    """A rank runs out of memory in an operator on its tile."""
    left = [True]

    def exp(data: torch.Tensor) -> torch.Tensor:
        if left and left.pop():
            raise torch.OutOfMemoryError
        return torch.ones_like(data)

    model = tofu.torch.parallelize(nn.Linear(4, 2), (1,), torch.randn(6, 4))
    with torch.library._scoped_library("aten", "IMPL") as kernels:
        kernels.impl("exp", exp, "CPU")
        with pytest.raises(torch.OutOfMemoryError):
            model.weight.exp()


def test_an_error_of_one_rank_is_not_answered_with_messages() -> None:
    on_ranks(1, fails_once)


# --- Tensors that modules share -------------------------------------------------------------


def tied(turned: bool, frozen: bool = False) -> Callable[[Wrap], dict[str, Any]]:
    """A script that distributes an embedding and a head one by one, which share a weight."""

    def script(wrap: Wrap) -> dict[str, Any]:
        embed, head = nn.Embedding(20, 8), nn.Linear(8, 20, bias=False)
        head.weight = embed.weight.requires_grad_(not frozen)
        body = nn.Linear(8, 8)
        ids = torch.randint(0, 20, (4, 5))
        if turned:
            head = wrap(head, torch.randn(4, 5, 8))
        embed = wrap(embed, ids)
        if not turned:
            head = wrap(head, torch.randn(4, 5, 8))
        body = wrap(body, torch.randn(4, 5, 8))
        found = [*embed.parameters(), *head.parameters(), *body.parameters()]
        parameters = list({id(p): p for p in found}.values())
        optimizer = torch.optim.SGD(parameters, 0.5)
        for _ in range(3):
            loss = F.cross_entropy(head(body(embed(ids))).flatten(0, 1), ids.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return {"parameters": len(parameters), "loss": loss, "tied": embed.weight is head.weight}

    return script


def test_modules_distributed_one_by_one_share_tensors() -> None:
    on_ranks(2, compare, tied(False), tied(True), tied(False, True))


# --- Assertions, and seeds in forward -------------------------------------------------------


class Called(nn.Module):
    """Calls a function on the outputs of a layer."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.layer, self.function = nn.Linear(4, 4), function

    def forward(self, *data):
        return self.function(self.layer(data[0]), *data[1:])


def called(function: Callable[..., Any], *more: Any) -> Callable[[Wrap], dict[str, Any]]:
    """A script that trains a module that calls a function."""

    def script(wrap: Wrap) -> dict[str, Any]:
        data = torch.randn(6, 4)
        model = wrap(Called(function), data, *more)
        loss = model(data, *more)
        loss.backward()
        return {"loss": loss, "gradient": model.layer.weight.grad}

    return script


def one_hot(made, labels):
    return F.mse_loss(made.softmax(-1), F.one_hot(labels, 4).to(made.dtype))


def asserted(made):
    torch._assert_async((made.detach() < 1e6).all())
    return made.square().mean()


def test_assertions_about_values_are_no_operators() -> None:
    on_ranks(2, compare, called(one_hot, torch.arange(6) % 4), called(asserted))


def seeded(made):
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return (made * torch.randn(4)).mean()


def of_a_generator(made):
    return (made * torch.randn(4, generator=torch.Generator().manual_seed(5))).mean()


@pytest.mark.parametrize("function", [seeded, of_a_generator])
def test_seeds_in_forward_are_refused(function) -> None:
    with pytest.raises(GraphError, match="forward seeds torch's random numbers or draws from a"):
        tofu.torch.plan(Called(function), (torch.randn(6, 4),), mesh=(2,))


# --- Tensors that are written to between the passes -----------------------------------------


class Gated(nn.Module):
    """Reads a parameter, a buffer and its input in its backward pass, and not its last bias."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 2)
        self.register_buffer("scale", torch.ones(()))

    def forward(self, data):
        return self.two(torch.tanh(self.one(data) * self.scale) * data)


def written(name: str) -> Callable[[Wrap], dict[str, Any]]:
    """A script that writes to a tensor after a call, and before its backward pass."""

    def script(wrap: Wrap) -> dict[str, Any]:
        data = torch.randn(6, 4)
        model = wrap(Gated(), data)
        loss = model(data).square().mean()
        with torch.no_grad():
            for each, tensor in [*model.named_parameters(), ("scale", model.scale), ("data", data)]:
                if each == name:
                    tensor.mul_(2)
        try:
            loss.backward()
        except RuntimeError as error:
            return {"raised": "modified by an inplace operation" in str(error)}
        return {name: p.grad for name, p in model.named_parameters()}

    script.__qualname__ = f"written: {name}"
    return script


def test_tensors_written_to_between_the_passes_raise_as_in_plain_torch() -> None:
    names = ("two.weight", "two.bias", "one.bias", "scale", "data", "none")
    on_ranks(2, compare, *map(written, names))


# --- Calls without gradients, recurrence, and tables ----------------------------------------


class Normed(nn.Module):
    """Depends on data and keeps statistics; says whether it has gradients."""

    def __init__(self, by_data: bool) -> None:
        super().__init__()
        self.norm, self.layer, self.by_data = nn.BatchNorm1d(4), nn.Linear(4, 4), by_data
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, data):
        self.mean = 0.9 * self.mean + 0.1 * data.detach().mean(0)
        made = self.layer(self.norm(data))
        if not torch.is_grad_enabled() and (not self.by_data or data.sum() < 1e6):
            made = made + 1
        return made


def statistics(by_data: bool) -> Callable[[Wrap], dict[str, Any]]:
    """A script with calls without gradients in `train`, planned or whole, and others."""

    def script(wrap: Wrap) -> dict[str, Any]:
        data = torch.randn(6, 4)
        model = wrap(Normed(by_data), data)
        result: dict[str, Any] = {}
        for step in range(3):
            with torch.set_grad_enabled(step != 1):
                result[f"{step}"] = model(data + step)
        return {**result, **dict(model.named_buffers())}

    script.__qualname__ = f"statistics, by data: {by_data}"
    return script


def drawn_after_dropout(wrap: Wrap) -> dict[str, Any]:
    """Draws data after calls with dropout; ranks refuse data that differs between them."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    model = wrap(model, torch.randn(6, 4))
    return {f"{rows}": tuple(model(torch.randn(rows, 4)).shape) for rows in (6, 6, 3, 3)}


class Recurrent(nn.Module):
    """A recurrent layer that may get a state."""

    def __init__(self, kind: str, **options: Any) -> None:
        super().__init__()
        self.layer = getattr(nn, kind)(4, 4, batch_first=True, **options)

    def forward(self, data, state=None):
        made, state = self.layer(data, state)
        return made.square().mean(), state


def recurrent(kind: str, with_state: bool, **options: Any) -> Callable[[Wrap], dict[str, Any]]:
    """A script that trains a recurrent layer in `eval`, as when it is frozen but for its inputs."""

    def script(wrap: Wrap) -> dict[str, Any]:
        data, state = torch.randn(3, 5, 4), torch.randn(1, 3, 4)
        given = ((state, state + 1) if kind == "LSTM" else state,) if with_state else ()
        model = wrap(Recurrent(kind, **options).eval(), data, *given)
        loss, last = model(data, *given)
        loss.backward()
        tensors = dict(zip("hc", last if isinstance(last, tuple) else (last,)))
        return {"loss": loss, **tensors, **{name: p.grad for name, p in model.named_parameters()}}

    script.__qualname__ = f"{kind}, state: {with_state}"
    return script


class Tables(nn.Module):
    """Adds tables that it keeps in a dict, grows on demand, and has from a function's cache."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.tables, self.grown = nn.Linear(4, 4), {}, None
        self.cached = functools.lru_cache(None)(lambda n: torch.arange(n).float()[:, None])

    def forward(self, data):
        length = data.shape[1]
        if length not in self.tables:
            self.tables[length] = torch.ones(length, 1)
        if self.grown is None or len(self.grown) < length:
            self.grown = torch.linspace(0, 1, length)[:, None]
        tables = self.tables[length] + self.grown[:length] + self.cached(length)
        return self.layer(data + tables).square().mean()


def by_length(wrap: Wrap) -> dict[str, Any]:
    model = wrap(Tables(), torch.ones(2, 3, 4))
    result: dict[str, Any] = {}
    for step, length in enumerate((3, 5, 4, 3)):
        result[f"{step}"] = model(torch.ones(2, length, 4))
        result[f"{step} kept"] = [*model.tables, len(model.grown)]
    return result


def test_statistics_recurrence_and_tables_are_as_in_plain_torch() -> None:
    on_ranks(
        2, compare, statistics(False), statistics(True), recurrent("LSTM", True),
        recurrent("GRU", True), recurrent("RNN", False), recurrent("LSTM", False), by_length,
        drawn_after_dropout,
    )  # fmt: skip


# --- Layers whose weights torch's hooks compute ---------------------------------------------


def computed(prepare: Callable[[Any], Any]) -> Callable[[Wrap], dict[str, Any]]:
    """A script that trains a layer whose weight is computed from other parameters."""

    def script(wrap: Wrap) -> dict[str, Any]:
        model, data = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), torch.randn(6, 4)
        prepare(model[0])
        model = wrap(model, data)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        result: dict[str, Any] = {}
        for step in range(2):
            loss = model(data).square().mean()
            if "weight" in vars(model[0]):
                loss = loss + model[0].weight.square().sum()
            loss.backward()
            optimizer.step()
            result[f"{step}"] = loss
            result[f"weight {step}"] = model[0].weight.clone()  # of the call
        with torch.no_grad():
            result["last"] = model.eval()(data[:4])
        result["last weight"] = model[0].weight
        return {**result, **{name: p.grad for name, p in model.named_parameters()}}

    script.__qualname__ = f"line {prepare.__code__.co_firstlineno}"
    return script


@pytest.mark.filterwarnings("ignore")
def test_layers_whose_weights_are_computed_train() -> None:
    on_ranks(2, compare, *map(computed, (
        lambda layer: nn.utils.weight_norm(layer),
        lambda layer: nn.utils.spectral_norm(layer),
        lambda layer: nn.utils.parametrizations.weight_norm(layer),
        lambda layer: prune.l1_unstructured(layer, "weight", 0.5),
    )), pruned_again, pruned_over_layers)  # fmt: skip


def pruned_again(wrap: Wrap) -> dict[str, Any]:
    """Prunes between steps by the weight of the last call."""
    model, data = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), torch.randn(6, 4)
    prune.l1_unstructured(model[0], "weight", 0.3)
    model = wrap(model, data)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    for step in range(3):
        if step == 1:
            prune.l1_unstructured(model[0], "weight", 0.3)
        model(data).square().mean().backward()
        optimizer.step()
    return {"mask": model[0].weight_mask, "weight": model[0].weight}


def pruned_over_layers(wrap: Wrap) -> dict[str, Any]:
    """Prunes all layers of a distributed module by one measure."""
    model, data = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), torch.randn(6, 4)
    model = wrap(model, data)
    model(data)
    layers = [(each, "weight") for each in model]
    prune.global_unstructured(layers, pruning_method=prune.L1Unstructured, amount=0.5)
    loss = model(data).square().mean()
    loss.backward()
    prune.remove(model[0], "weight")
    return {
        "loss": loss,
        "again": model(data),
        "mask": model[1].weight_mask,
        **{name: p.grad for name, p in model.named_parameters()},
    }


def before_it_was_distributed() -> None:
    """A backward pass of a call from before would read weights that are not there."""
    model, data = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), torch.randn(6, 4)
    loss = model(data).mean()
    tofu.torch.parallelize(model, (1,), data)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_backward_pass_from_before_is_refused() -> None:
    on_ranks(1, before_it_was_distributed)


# --- Writes where a mask is true ------------------------------------------------------------


class Masked(nn.Module):
    """Puts a word of its own, a vector of one row, and a number where masks are true."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.word, self.row = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(1, 4))
        self.number = nn.Parameter(torch.tensor(0.5))

    def forward(self, data, mask):
        hidden, other = self.layer(data), self.layer(data) * 2
        hidden[mask] = self.word
        other[~mask] = self.row.tanh()
        other[data > 1] = self.number
        return hidden * other


def writes_where_a_mask_is_true(wrap: Wrap) -> dict[str, Any]:
    given = torch.randn(6, 3, 4), torch.rand(6, 3) > 0.5
    model = wrap(Masked(), *given)
    loss = model(*given).square().mean()
    loss.backward()
    return {"loss": loss, **{name: p.grad for name, p in model.named_parameters()}}


def test_parameters_are_written_where_a_mask_is_true() -> None:
    on_ranks(2, compare, writes_where_a_mask_is_true)
