"""All private names of torch that this package uses, and the versions of torch that have them.

When a new torch lacks one, or changes it, this file says what tofu needs it for; nothing else in
this package imports a private name. ``_ATTRIBUTES`` are those of torch's objects.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import torch

__all__ = [
    "KNOWN", "ConstantSource", "DimDynamic", "DispatchKey", "FakeTensorMode", "FunctionalTensor",
    "ShapeEnv", "TorchDispatchMode", "aot_export_joint", "check_version", "descriptors",
    "disable_current_modes", "get_decompositions", "get_proxy_mode", "lists_of",
    "optimizers_lists_of", "peek_interpreter_stack", "pytree", "scoped_library",
]  # fmt: skip

# The oldest and the latest version on which this package's tests pass; scripts/test_torch.sh says
# the same.
KNOWN = ((2, 9), (2, 14))

try:
    # The kernels in Python that a trace would run. Without it: interpolations are taken apart.
    from torch._C import DispatchKey

    # The transformations of torch.func that run. Without it: their own errors, which tell little.
    from torch._C._functorch import peek_interpreter_stack

    # The joint graph of forward and backward, with the descriptors of its inputs and outputs, which
    # name parameters. Without it: torch.export's joint graph, by the positions of its signature.
    from torch._decomp import get_decompositions

    # Numbers that a trace knows by name, to trace floats once. Without it: a trace for each value.
    from torch._dynamo.source import ConstantSource
    from torch._functorch._aot_autograd import descriptors
    from torch._functorch.aot_autograd import aot_export_joint_with_descriptors as aot_export_joint

    # Tensors without data. Without it: the device meta, which forgets the device of a tensor.
    from torch._subclasses.fake_tensor import FakeTensorMode

    # Tells tensors that a traced forward makes from others. Without it: by what the module reaches.
    from torch._subclasses.functional_tensor import FunctionalTensor

    # The trace that is being made, to mark the operators that a checkpoint runs.
    from torch.fx.experimental.proxy_tensor import get_proxy_mode
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

    # Kernels that last as long as a trace. Without it: kernels for good.
    from torch.library import _scoped_library as scoped_library

    # The types of tensors of which functions take lists at once, to clip gradients in one message.
    # Without them: one message for each gradient.
    from torch.optim.optimizer import _foreach_supported_types as optimizers_lists_of

    # Nested arguments as a list: torch.utils.pytree from torch 2.14 on.
    from torch.utils import _pytree as pytree
    from torch.utils._foreach_utils import _foreach_supported_types as lists_of

    # Sees every operator that runs.
    from torch.utils._python_dispatch import TorchDispatchMode

    # Computes on data within a trace. Without it: values that depend on no input are not known.
    from torch.utils._python_dispatch import _disable_current_modes as disable_current_modes
except ImportError as error:
    raise ImportError(
        f"tofu.torch needs a name that torch {torch.__version__} does not have ({error}); install "
        f"torch {KNOWN[0][0]}.{KNOWN[0][1]} to {KNOWN[1][0]}.{KNOWN[1][1]}"
    ) from error

# Private attributes of torch's objects -> their purpose, and the substitute without them.
_ATTRIBUTES: Mapping[str, str] = {
    "_backward_hooks": "hooks that a trace would run once; nothing public lists them",
    "_backward_pre_hooks": "as _backward_hooks",
    "_ForceDispatchKeyGuard": "autograd inside an operator's kernel; gradients by our own formulas",
    "_dispatch_tls_local_exclude_set": "as _ForceDispatchKeyGuard",
    "_dispatch_tls_local_include_set": "as _ForceDispatchKeyGuard",
    "_init_weights": "Hugging Face's initialiser; post_init, which runs it on all parameters",
    "_buffers": "to put tensors in their places; setattr and register_buffer, for each kind",
    "_compiled_call_impl": "module.compile()'s result, which cannot be traced; nothing public",
    "_forward_hooks": "as _backward_hooks",
    "_forward_pre_hooks": "as _backward_hooks",
    "_dispatch_cache": "as py_kernels, which it remembers",
    "_checkpoint_without_reentrant_generator": "runs checkpoints; the tag of torch.compile's graph",
    "_checkpoint_without_reentrant_generator_impl": "as the one above, from torch 2.14 on",
    "_is_compiling_flag": "modules skip checks that depend on data; torch.export sets it, too",
    "_is_exporting_flag": "as _is_compiling_flag",
    "_is_view": "outputs that share memory; tensor._base",
    "_ops": "the classes of operators; type(torch.ops.aten.mm.default)",
    "_local_tensor": "the tile of a DTensor; to_local(), whose node of autograd takes 20 us",
    "_orig_mod": "tells torch.compile's modules; their class's name",
    "_parameters": "as _buffers",
    "_post_accumulate_grad_hooks": "hooks that a parameter keeps when it is distributed",
    "_schema": "names of an operator's arguments; torch.library's text of it",
    "_C": "DisableTorchFunctionSubclass, to run DTensor's own rule; nothing public",
    "_dispatch_tls_is_dispatch_key_included": "tells is_grads_batched; an exchange's own error",
    "_op_dispatcher": "tells versions that run DTensor's rules in Python; torch's version",
    "_spec": "a gradient's DTensor from its tile; DTensor.from_local, which takes 90 us",
    "_version": "tells a tensor that was written to; nothing public",
    "py_kernels": "an operator's kernels in Python; as DispatchKey",
    "_cdata": "the identity of memory; untyped_storage().data_ptr(), which fake tensors lack",
}


def check_version() -> None:
    """Warn if torch is older or newer than the versions that are known to work."""
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    oldest, latest = KNOWN
    if not oldest <= version <= latest:
        known = " to ".join(".".join(map(str, each)) for each in KNOWN)
        warnings.warn(
            f"tofu.torch is known to work with torch {known}, but this is {torch.__version__}: "
            "compare a step with plain torch's before you rely on it",
            stacklevel=3,
        )
