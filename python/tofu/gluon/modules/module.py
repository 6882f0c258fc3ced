"""Seams of the Module API: a Module's executor and update run partitioned.

A Module is partitioned if it trains dense parameters on one context of the script. Others run as
in plain MXNet, after a warning with the reason unless they only predict.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Sequence
from typing import Any, Callable, Optional

from mxnet import gluon
from mxnet.base import MXNetError

from tofu.gluon.session import messages
from tofu.gluon.session.session import Session, active
from tofu.gluon.updates import trainer_states

from .arguments import Live, make_arguments
from .partitioned_executor import PartitionedExecutor

__all__ = ["bind_executor", "collect_arrays", "init_optimizer", "install_monitor", "update"]


_DISTRIBUTED = (
    "its kvstore reduces whole gradients over several processes; a gluon.Trainer on a Gluon block "
    "reduces tiles"
)


class TrainerUpdater:
    """A Module's updater: a Trainer that updates tiles.

    Args:
        trainer: the Trainer, with the Module's optimizer.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    @property
    def optimizer(self) -> Any:
        """The optimizer."""
        return self._trainer._optimizer

    @property
    def states(self) -> dict[int, Any]:
        """The optimizer's states, whole, by the parameter's number."""
        return trainer_states.whole_states(self._trainer)

    def update(self, parameters: Sequence[Any]) -> None:
        """Update the parameters by their present gradients, as a Module does, old or new.

        parameters: in the Module's order, by which the optimizer's states are numbered.
        """
        if self._trainer._params != parameters:  # bound again, or another bucket
            trainer_states.merge_states(self._trainer)
            self._trainer._params = list(parameters)
        if not self._trainer._kv_initialized:
            self._trainer._init_kvstore()
        for parameter in parameters:
            if parameter.grad_req != "null":
                parameter.data()._fresh_grad = True
        self._trainer._update(True)

    def __call__(self, index: Any, gradient: Any, weight: Any) -> None:
        """Update whole weights, as MXNet's updater does; a Module calls this after ``disable``."""
        trainer_states.merge_states(self._trainer)
        self._trainer._updaters[0](index, gradient, weight)

    def get_states(self, dump_optimizer: bool = False) -> bytes:
        """The states as plain MXNet's updater pickles them."""
        states = self.states
        return pickle.dumps((states, self.optimizer) if dump_optimizer else states)

    def set_states(self, states: bytes) -> None:
        """Set the states; the next update divides them."""
        self._trainer._updaters[0].set_states(states)
        vars(self._trainer).pop("_tofu", None)


def bind_executor(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap DataParallelExecutorGroup._bind_ith_exec: make an executor that runs partitioned."""

    def _bind_ith_exec(
        self: Any, i: int, data_shapes: Any, label_shapes: Any, shared_group: Any
    ) -> Any:
        session = active()
        shared = None if shared_group is None else shared_group.execs[i]
        described = [*data_shapes, *(label_shapes or ())]
        context = self.contexts[i]
        if isinstance(shared, PartitionedExecutor):
            arguments = make_arguments(self, described, context, shared.parameters)
            return PartitionedExecutor(self.symbol, context, *arguments, shared.mode)
        if session is not None and shared is None and _is_wanted(self, session):
            with contextlib.suppress(MXNetError):  # MXNet's own function tells the error
                arguments = make_arguments(self, described, context, {})
                return PartitionedExecutor(self.symbol, context, *arguments)
        return original(self, i, data_shapes, label_shapes, shared_group)

    return _bind_ith_exec


def collect_arrays(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap DataParallelExecutorGroup._collect_arrays: gather parameters only when read."""

    def _collect_arrays(self: Any) -> None:
        executor = self.execs[0]
        if not isinstance(executor, PartitionedExecutor):
            original(self)
            return
        inputs, parameters = executor.inputs, executor.parameters
        part = self.slices[0] if self.slices else slice(0, 1)
        self.data_arrays = [[(part, inputs[name])] for name, *_ in self.data_shapes]
        self.state_arrays = [[inputs[name]] for name in self.state_names]
        self.label_arrays = None
        if self.label_shapes is not None:
            self.label_arrays = [[(part, inputs[name])] for name, *_ in self.label_shapes]
        trained = [parameters[name] for name in self.arg_names if name in self.param_names]
        self.param_arrays = Live([each.data for each in trained])
        self.grad_arrays = Live([_gradient(each) for each in trained])
        self.aux_arrays = Live([parameters[name].data for name in self.aux_names])
        self.input_grad_arrays = None
        if self.inputs_need_grad:
            named = [name for name, *_ in self.data_shapes if name in self.arg_names]
            self.input_grad_arrays = [[inputs[name].grad] for name in named]

    return _collect_arrays


def init_optimizer(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap Module.init_optimizer: have a Trainer update the tiles."""

    def _init_optimizer(self: Any, kvstore: Any = "local", *args: Any, **kwargs: Any) -> None:
        executor = _executor_of(self)
        if executor is not None and _is_distributed(kvstore):
            executor.stay_whole(_DISTRIBUTED)
        elif executor is not None:
            kvstore = None  # with one context there is nothing to reduce
        preload, self._preload_opt_states = self._preload_opt_states, None
        before = self._updater
        original(self, kvstore, *args, **kwargs)
        if executor is not None and self._updater is not before and self._kvstore is None:
            self._updater = _trainer_updater(self, executor)
        if preload is not None:
            self.load_optimizer_states(preload)

    return _init_optimizer


def update(original: Callable[[Any], None]) -> Callable[[Any], None]:
    """Wrap Module.update: update tiles."""

    def _update(self: Any) -> None:
        executor = _executor_of(self)
        if executor is None or not isinstance(self._updater, TrainerUpdater):
            original(self)
            return
        assert self.binded and self.params_initialized and self.optimizer_initialized
        self._params_dirty = True
        self._updater.update(_ordered(self, executor))

    return _update


def install_monitor(original: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Wrap Monitor.install: let an executor know when the Monitor collects."""

    def install(self: Any, exe: Any) -> None:
        original(self, exe)
        if isinstance(exe, PartitionedExecutor):
            exe.monitors.append(self)

    return install


def _executor_of(module: Any) -> Optional[PartitionedExecutor]:
    group = module._exec_group
    executor = group.execs[0] if group is not None and group.execs else None
    return executor if isinstance(executor, PartitionedExecutor) else None


def _is_wanted(group: Any, session: Session) -> bool:
    """Whether to partition a Module; warns if it trains and has to run serially.

    Raises:
        ConfigError: it trains and has to run serially, and a setting forbids that.
    """
    if all(group.grad_req.get(name) == "null" for name in group.param_names):
        return False
    reason = _reason_for_serial(group)
    if reason is None:
        return True
    name = f"module {group.symbol.name or group.symbol.list_outputs()[0]}"
    messages.check_serial(name, reason, session)
    messages.warn_serial(name, reason)
    return False


def _reason_for_serial(group: Any) -> Optional[str]:
    if len(group.contexts) != 1:
        return (
            f"it is bound to the contexts {group.contexts}, expected one; tofu splits it over the "
            "workers"
        )
    if group.group2ctxs[0] is not None:
        return "group2ctxs places its operators on contexts, expected none"
    attributes = group.symbol.attr_dict()
    sparse = [name for name, each in attributes.items() if "__storage_type__" in each]
    if sparse:
        return f"argument {sparse[0]} has a storage type, expected dense arguments"
    return None


def _is_distributed(kvstore: Any) -> bool:
    kind = kvstore if isinstance(kvstore, str) else getattr(kvstore, "type", "")
    return "dist" in kind


def _gradient(parameter: Any) -> Callable[[], Any]:
    return lambda: None if parameter.grad_req == "null" else parameter.grad()


def _ordered(module: Any, executor: PartitionedExecutor) -> list[Any]:
    """The parameters in the order in which a Module's optimizer numbers them."""
    return [executor.parameters[name] for name in module._exec_group.param_names]


def _trainer_updater(module: Any, executor: PartitionedExecutor) -> TrainerUpdater:
    optimizer = module._optimizer
    names = dict(optimizer.param_dict)
    trainer = gluon.Trainer(_ordered(module, executor), optimizer, kvstore=None)
    optimizer.param_dict = names  # a Module's multipliers go by names
    trainer._updaters = [module._updater]
    return TrainerUpdater(trainer)
