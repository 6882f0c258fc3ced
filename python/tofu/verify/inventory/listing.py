"""Lists the operators that the installed MXNet registers."""

from __future__ import annotations

import ctypes

from mxnet.base import _LIB, check_call

from tofu.mx.graphs.gradient import RENAMED

__all__ = ["registered_operators"]


def registered_operators() -> dict[str, list[str]]:
    """Returns operator -> its aliases, sorted by name, without the operators that tofu adds."""
    count = ctypes.c_uint()
    names = ctypes.POINTER(ctypes.c_char_p)()
    check_call(_LIB.NNListAllOpNames(ctypes.byref(count), ctypes.byref(names)))
    by_name: dict[str, list[str]] = {}
    for number in range(count.value):
        text = names[number]
        handle, canonical = ctypes.c_void_p(), ctypes.c_char_p()
        check_call(_LIB.NNGetOpHandle(text, ctypes.byref(handle)))
        check_call(_LIB.MXSymbolGetAtomicSymbolName(handle, ctypes.byref(canonical)))
        aliases = by_name.setdefault((canonical.value or b"").decode(), [])
        if text is not None and text != canonical.value:
            aliases.append(text.decode())
    return {
        name: sorted(aliases)
        for name, aliases in sorted(by_name.items())
        if not name.startswith("_tofu_") and name not in RENAMED
    }
