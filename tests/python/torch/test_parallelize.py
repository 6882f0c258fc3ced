"""Uses of a distributed module besides training: other calls, states, files, and bad input."""

from __future__ import annotations

import copy
import os
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

import tofu.torch
from tofu.errors import ConfigError, ConnectionLostError, PlanError
from tofu.torch.commands.models import MODELS

from .ranks import on_ranks
from .training import difference

EQUAL = 1e-9


def made(name: str = "mlp") -> tuple[nn.Module, nn.Module, tuple[Any, ...]]:
    """A module, the same distributed over two ranks, and inputs."""
    torch.manual_seed(0)
    whole, inputs = MODELS[name](torch.float64)
    return whole, tofu.torch.parallelize(copy.deepcopy(whole), (2,), inputs), inputs


# --- Calls ----------------------------------------------------------------------------------


def other_calls() -> None:
    whole, parts, inputs = made()
    kept = {name: p.placements for name, p in parts.named_parameters()}
    for size in (4, 7, 8):
        given = [x[:size] for x in inputs]
        one, other = whole(*given), parts(*given)
        assert difference(one, other) <= EQUAL
        one.backward()
        other.backward()
    for p, q in zip(whole.parameters(), parts.parameters()):
        assert difference(p.grad, q.grad.full_tensor()) <= EQUAL
    with torch.no_grad():
        assert difference(whole.eval()(*inputs), parts.eval()(*inputs)) <= EQUAL
    assert {name: p.placements for name, p in parts.named_parameters()} == kept


def test_other_shapes_and_modes_are_planned_again() -> None:
    on_ranks(2, other_calls)


class Square(nn.Module):
    """Returns tensors, one of them twice, and something else."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, data, scale=1.0):
        made = self.inner(data) * scale
        return {"made": made, "again": [made, data], "scale": scale}


def nested_outputs() -> None:
    torch.manual_seed(0)
    whole = Square().double()
    data = torch.randn(4, 8, dtype=torch.float64, requires_grad=True)
    parts = tofu.torch.parallelize(copy.deepcopy(whole), (2,), (data,), {"scale": 2.0})
    results = whole(data, scale=2.0), parts(data, scale=2.0)
    gradients = []
    for result in results:
        assert result["scale"] == 2.0
        total = (result["made"] * result["again"][0]).sum() + (3 * result["again"][1]).sum()
        gradients.append(torch.autograd.grad(total, data)[0])
    assert difference(results[0]["made"], results[1]["made"]) <= EQUAL
    assert difference(*gradients) <= EQUAL


def test_outputs_nest_and_inputs_have_gradients() -> None:
    on_ranks(2, nested_outputs)


def dtensors() -> None:
    torch.manual_seed(0)
    whole = Square().double()
    mesh = init_device_mesh("cpu", (2,))
    data = torch.randn(4, 8, dtype=torch.float64)
    parts = tofu.torch.parallelize(copy.deepcopy(whole), mesh, (data,))
    out = parts(distribute_tensor(data, mesh, [Shard(0)]))["made"]
    assert isinstance(out, DTensor)
    out.full_tensor().square().sum().backward()
    expected = whole(data)["made"]
    expected.square().sum().backward()
    assert difference(expected, out.full_tensor()) <= EQUAL
    for p, q in zip(whole.parameters(), parts.parameters()):
        assert difference(p.grad, q.grad.full_tensor()) <= EQUAL


def test_tiles_in_are_tiles_out() -> None:
    on_ranks(2, dtensors)


def mixed() -> None:
    torch.manual_seed(0)
    whole, inputs = MODELS["gpt"](torch.float32)
    parts = tofu.torch.parallelize(copy.deepcopy(whole), (2,), inputs)
    exact = float(parts(*inputs))
    for model in (whole, parts):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(*inputs)
        loss.backward()
        assert float(loss) != exact and difference(torch.tensor(exact), loss) < 0.01
    for p, q in zip(whole.parameters(), parts.parameters()):
        assert difference(p.grad, q.grad.full_tensor()) <= 0.05
    programs = parts.forward.programs.values()
    types = [{v.dtype for o in p.plan.traced.operators for v in o.outputs} for p in programs]
    assert [torch.bfloat16 in found for found in types] == [False, True]
    assert float(parts(*inputs)) == exact


def test_autocast_is_planned_as_a_call_of_its_own() -> None:
    on_ranks(2, mixed)


class Dropped(nn.Module):
    """Dropout alone."""

    def forward(self, data):
        return nn.functional.dropout(data, 0.5)


def dropout() -> None:
    torch.manual_seed(dist.get_rank())  # only rank 0's counts
    data = torch.ones(64, 64, requires_grad=True)
    parts = tofu.torch.parallelize(Dropped(), (2,), (data,))
    torch.manual_seed(5)
    first, second = parts(data), parts(data)
    assert not torch.equal(first, second)
    halves = first[:32], first[32:]
    assert not torch.equal(*halves) and not torch.equal(first[:, :32], first[:, 32:])
    assert 0.4 < (first == 0).double().mean() < 0.6
    everyone = [torch.empty_like(first) for _ in range(2)]
    dist.all_gather(everyone, first.detach())
    assert torch.equal(*everyone)
    (gradient,) = torch.autograd.grad(first.sum(), data)
    assert torch.equal(gradient, first.detach())


def test_tiles_draw_numbers_of_their_own() -> None:
    on_ranks(2, dropout)


# --- States ---------------------------------------------------------------------------------


def clipped_and_saved(folder: str) -> None:
    from torch.distributed import checkpoint

    whole, parts, inputs = made("gpt")
    for model in (whole, parts):
        model(*inputs).backward()
    norms = [nn.utils.clip_grad_norm_(m.parameters(), 0.1) for m in (whole, parts)]
    assert difference(norms[0], norms[1]) <= EQUAL
    for model in (whole, parts):
        torch.optim.AdamW(model.parameters(), foreach=True).step()
    checkpoint.save(parts.state_dict(), checkpoint_id=folder)
    loaded = {name: torch.zeros_like(tensor) for name, tensor in whole.state_dict().items()}
    checkpoint.load(loaded, checkpoint_id=folder)
    for name, tensor in whole.state_dict().items():
        assert difference(tensor, loaded[name]) <= 1e-6, name


def test_gradients_are_clipped_and_a_checkpoint_loads_in_plain_torch(tmp_path) -> None:
    on_ranks(2, clipped_and_saved, str(tmp_path / "checkpoint"))


def saved_and_loaded(folder: str) -> None:
    from torch.distributed import checkpoint

    torch.manual_seed(0)
    whole, inputs = MODELS["mlp"](torch.float64)
    models = [tofu.torch.parallelize(copy.deepcopy(whole), mesh, inputs) for mesh in ((4,), (2, 2))]
    optimizers = [torch.optim.AdamW(model.parameters()) for model in models]
    models[0](*inputs).backward()
    optimizers[0].step()
    checkpoint.save({"model": models[0].state_dict()}, checkpoint_id=folder)
    with torch.no_grad():
        for p in models[1].parameters():
            p.zero_()
    loaded = {"model": models[1].state_dict()}
    checkpoint.load(loaded, checkpoint_id=folder)
    models[1].load_state_dict(loaded["model"])
    one, other = (model.state_dict() for model in models)
    for name, tensor in one.items():
        assert torch.equal(tensor.full_tensor(), other[name].full_tensor()), name
    assert difference(models[0](*inputs), models[1](*inputs)) <= EQUAL


def test_a_checkpoint_loads_on_another_mesh(tmp_path) -> None:
    on_ranks(4, saved_and_loaded, str(tmp_path / "checkpoint"))


class Uneven(nn.Module):
    """Sizes of 16 and 10: over 3 or 4 ranks DTensor's pieces differ from a plan's."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(10, 16), nn.Linear(16, 10)
        self.norm = nn.BatchNorm1d(16)

    def forward(self, data):
        return self.last(self.norm(torch.tanh(self.first(data)))).square().mean()


def uneven(mesh: tuple[int, ...]) -> tuple[nn.Module, nn.Module, Any, Any, Any]:
    """The module whole and distributed, with an optimizer of each, and an input."""
    torch.manual_seed(0)
    whole, data = Uneven().double(), torch.randn(7, 10, dtype=torch.float64)
    parts = tofu.torch.parallelize(copy.deepcopy(whole), mesh, (data,))
    return whole, parts, *(torch.optim.AdamW(m.parameters(), 0.01) for m in (whole, parts)), data


def trained(model: nn.Module, optimizer: Any, data: Any, steps: int) -> None:
    for _ in range(steps):
        model(data).backward()
        optimizer.step()
        optimizer.zero_grad()


def states(model: nn.Module, optimizer: Any) -> dict[str, Any]:
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    return {"model": model.state_dict(), "optim": get_optimizer_state_dict(model, optimizer)}


def resumed(mesh: tuple[int, ...], before: str, after: str, steps: int) -> None:
    """Train for two steps more than a checkpoint; equal to as many steps of the whole module."""
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import set_optimizer_state_dict

    whole, parts, one, other, data = uneven(mesh)
    trained(whole, one, data, steps)
    if before:
        loaded = states(parts, other)
        with torch.no_grad():
            for tensor in loaded["model"].values():
                tensor.zero_()
        checkpoint.load(loaded, checkpoint_id=before)
        parts.load_state_dict(loaded["model"])
        set_optimizer_state_dict(parts, other, loaded["optim"])
    trained(parts, other, data, 2)
    for name, tensor in whole.state_dict().items():
        found = parts.state_dict()[name].full_tensor()
        assert difference(tensor.double(), found.double()) <= EQUAL, name
    checkpoint.save(states(parts, other), checkpoint_id=after)


def test_a_checkpoint_goes_on_over_other_numbers_of_ranks(tmp_path) -> None:
    """Runs over 3, 4, 2 x 3, 3 and 7 ranks; over 7, DTensor leaves a rank nothing of 16 or 10."""
    before = ""
    for number, mesh in enumerate([(3,), (4,), (2, 3), (3,), (7,)]):
        after = str(tmp_path / str(number))
        on_ranks(torch.Size(mesh).numel(), resumed, mesh, before, after, 2 * number + 2)
        before = after


class Tied(nn.Module):
    """One parameter in two modules."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(8, 4)
        self.head = nn.Linear(4, 8, bias=False)
        self.head.weight = self.words.weight

    def forward(self, words):
        return self.head(self.words(words)).sum()


def tied() -> None:
    torch.manual_seed(0)
    whole = Tied()
    words = torch.arange(8)
    parts = tofu.torch.parallelize(copy.deepcopy(whole), (2,), (words,))
    assert parts.head.weight is parts.words.weight
    whole(words).backward()
    parts(words).backward()
    assert difference(whole.head.weight.grad, parts.head.weight.grad.full_tensor()) <= 1e-5


def test_tied_parameters_stay_tied() -> None:
    on_ranks(2, tied)


def without_values() -> None:
    with torch.device("meta"):
        model, _ = MODELS["mlp"](torch.float32)
    _, inputs = MODELS["mlp"](torch.float32)
    parts = tofu.torch.parallelize(model, (2,), inputs)
    assert all(not p.to_local().is_meta for p in [*parts.parameters(), *parts.buffers()])
    assert torch.equal(parts.batch.running_var.full_tensor(), torch.ones(32))
    assert parts.first.weight.full_tensor().std() > 0
    parts(*inputs).backward()


def test_parameters_without_data_are_initialized() -> None:
    on_ranks(2, without_values)


# --- Bad input ------------------------------------------------------------------------------


def wrong_meshes() -> None:
    model, inputs = MODELS["mlp"](torch.float32)
    with pytest.raises(ConfigError, match=r"mesh \(2, 2\) has 4 devices, but there are 2 ranks"):
        tofu.torch.parallelize(model, (2, 2), inputs)
    with pytest.raises(ConfigError, match="expected sizes of at least 1"):
        tofu.torch.parallelize(model, (), inputs)


def test_a_mesh_has_as_many_devices_as_there_are_ranks() -> None:
    on_ranks(2, wrong_meshes)


def wrong_plans(path: str) -> None:
    model, inputs = MODELS["mlp"](torch.float32)
    if dist.get_rank() == 0:
        text = tofu.torch.plan(model, inputs, mesh=(2,)).to_json()
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    dist.barrier()
    tofu.torch.parallelize(copy.deepcopy(model), (2,), inputs, plan=path)(*inputs).backward()
    model.second = nn.Linear(32, 16)
    with pytest.raises(PlanError, match=r"second\.weight had the shape .* plan again"):
        tofu.torch.parallelize(model, (2,), inputs, plan=path)
    with pytest.raises(PlanError, match="cannot be read"):
        tofu.torch.parallelize(model, (2,), inputs, plan=path + ".not")


def test_a_plan_fits_its_module_only(tmp_path) -> None:
    on_ranks(2, wrong_plans, str(tmp_path / "mlp.json"))


def different_modules() -> None:
    model, inputs = MODELS["mlp"](torch.float32)
    if dist.get_rank() == 1:
        inputs = tuple(torch.cat([x, x]) for x in inputs)
    with pytest.raises(PlanError, match="rank 1 has another module"):
        tofu.torch.parallelize(model, (2,), inputs)


def test_all_ranks_have_the_same_module() -> None:
    on_ranks(2, different_modules)


def different_calls() -> None:
    whole, parts, inputs = made()
    short = tuple(x[:4] for x in inputs)
    with pytest.raises(
        PlanError, match=r"rank 1 calls it with \(4, 16\) .*, rank 0 with \(8, 16\)"
    ):
        parts(*(short if dist.get_rank() == 1 else inputs))
    with pytest.raises(PlanError, match=r"rank 1 .* in eval\(\), rank 0 .* in train\(\)"):
        parts.train(dist.get_rank() == 0)(*inputs)
    assert difference(whole(*inputs), parts.train()(*inputs)) <= EQUAL  # and goes on


def test_all_ranks_make_the_same_call() -> None:
    on_ranks(2, different_calls)


def one_ends(errors: str) -> None:
    _, parts, inputs = made()
    loss = parts(*inputs)
    if dist.get_rank() == 1:
        os._exit(0)
    for call in (loss.backward, lambda: parts(*inputs)):
        with pytest.raises(ConnectionLostError, match=r"rank 0: .* another rank has ended"):
            call()
    with open(errors, "w", encoding="utf-8") as file:
        file.write("told")
    os._exit(0)  # no barrier: there is no other rank


def test_a_rank_that_ends_ends_the_others(tmp_path) -> None:
    on_ranks(2, one_ends, str(tmp_path / "errors"))
    assert (tmp_path / "errors").read_text() == "told"


def test_a_module_that_is_not_distributed_has_no_program() -> None:
    with pytest.raises(ConfigError, match=r"Linear has no program; expected the module that"):
        tofu.torch.program_of(torch.nn.Linear(2, 2))
