"""Attention as one operator, whose kernel each rank selects for its own tiles and device.

torch chooses a kernel of its own for each device, with operators of their own that keep different
tensors for the backward pass. Here all give their values and the logarithms of the weights' sums,
from which any of them computes the gradients. Nothing that is planned depends on the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Optional

import torch
from torch.nn.functional import pad

from tofu.torch.tiles.exchange import shares_of

__all__ = ["attention"]

aten: Any = torch.ops.aten
Tensor = Any  # torch.Tensor, whose methods are untyped
_FLASH, _EFFICIENT, _CUDNN = 1, 2, 3  # torch's numbers of kernels
_REST = "Tensor? mask, bool is_causal, float? scale, bool grouped, int? begin, int? key_begin"
_FORWARD = f"(Tensor query, Tensor key, Tensor value, {_REST}) -> (Tensor, Tensor)"
_BACKWARD = (
    "(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor out, Tensor logsumexp, "
    f"{_REST}) -> (Tensor, Tensor, Tensor)"
)


class _Attention:
    """A kernel's call: queries (n, h, q, e), keys (n, g, k, e), values (n, g, k, d), of g groups.

    Args:
        query, key, value: the tensors.
        mask: of a shape that broadcasts to (n, h, q, k): added to the scores, or false where a
            query does not see a key; None: every query sees every key.
        is_causal: whether query i sees the keys up to i only.
        scale: of the scores; None: one by the root of e.
        grouped: whether h may differ from g.
    """

    def __init__(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor],
        is_causal: bool, scale: Optional[float], grouped: bool,
    ) -> None:  # fmt: skip
        self._tensors = query, key, value
        self._is_causal = is_causal
        self._scale = query.shape[-1] ** -0.5 if scale is None else scale
        if mask is not None and mask.dtype == torch.bool:
            mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(~mask, -torch.inf)
        self._mask = mask
        self._kernel = aten._fused_sdp_choice(
            query, key, value, mask, 0.0, is_causal, scale=scale,
            enable_gqa=grouped,
        )  # fmt: skip

    def forward(self) -> tuple[Tensor, Tensor]:
        """The weighted values (n, h, q, d), and the logarithms (n, h, q) of the weights' sums."""
        out, logs = self._ways()[0]()
        if self._mask is not None:  # kernels differ for a query that sees no key
            logs = logs.masked_fill((self._mask == -torch.inf).all(-1), -torch.inf)
        return out, logs

    def backward(self, grad: Tensor, out: Tensor, logs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of queries, keys and values."""
        grad = grad if grad.stride(-1) == 1 else grad.contiguous()
        if self._mask is not None:
            logs = logs.masked_fill(logs == -torch.inf, 0)
        query_grad, key_grad, value_grad = self._ways()[1](grad, out, logs.contiguous())
        return query_grad, key_grad, value_grad

    def _ways(self) -> tuple[Any, Any]:
        """Both passes of the kernel that torch chooses."""
        if self._kernel == _FLASH and self._tensors[0].device.type == "cpu":
            return self._flash_cpu, self._flash_cpu_backward
        known = {
            _FLASH: (self._flash, self._flash_backward),
            _EFFICIENT: (self._efficient, self._efficient_backward),
            _CUDNN: (self._cudnn, self._cudnn_backward),
        }
        return known.get(self._kernel, (self._in_parts, self._in_parts_backward))

    # --- Kernels ------------------------------------------------------------------------------

    def _flash_cpu(self) -> Any:
        return aten._scaled_dot_product_flash_attention_for_cpu(
            *self._tensors, 0.0, self._is_causal, attn_mask=self._mask, scale=self._scale
        )

    def _flash_cpu_backward(self, grad: Tensor, out: Tensor, logs: Tensor) -> Any:
        return aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad, *self._tensors, out, logs, 0.0, self._is_causal,
            attn_mask=self._mask, scale=self._scale,
        )  # fmt: skip

    def _flash(self) -> tuple[Tensor, Tensor]:
        out, logs, *_ = aten._scaled_dot_product_flash_attention(
            *map(_eights, self._tensors), 0.0, self._is_causal, scale=self._scale
        )
        return out[..., : self._tensors[2].shape[-1]], logs

    def _flash_backward(self, grad: Tensor, out: Tensor, logs: Tensor) -> Any:
        found = aten._scaled_dot_product_flash_attention_backward(
            *map(_eights, (grad, *self._tensors, out)), logs, None, None,
            *self._lengths, 0.0, self._is_causal, self._seed((2,), torch.uint64),
            self._seed((), torch.uint64), scale=self._scale,
        )  # fmt: skip
        return [each[..., : own.shape[-1]] for each, own in zip(found, self._tensors)]

    def _efficient(self) -> tuple[Tensor, Tensor]:
        out, logs, *_ = aten._scaled_dot_product_efficient_attention(
            *self._tensors, self._whole_mask(), True, 0.0, self._is_causal, scale=self._scale
        )
        return out, logs[..., : self._lengths[0]]  # it comes in blocks of 32

    def _efficient_backward(self, grad: Tensor, out: Tensor, logs: Tensor) -> Any:
        logs = pad(logs, (0, -self._lengths[0] % 32), value=torch.inf)
        return aten._scaled_dot_product_efficient_attention_backward(
            grad, *self._tensors, self._whole_mask(), out, logs, self._seed(), self._seed(), 0.0,
            [True, True, True, False], self._is_causal, scale=self._scale,
        )[:3]  # fmt: skip

    def _cudnn(self) -> tuple[Tensor, Tensor]:
        out, logs, *_ = aten._scaled_dot_product_cudnn_attention(
            *self._tensors, self._whole_mask(), True, 0.0, self._is_causal, scale=self._scale
        )
        return out, logs.reshape(out.shape[:3])

    def _cudnn_backward(self, grad: Tensor, out: Tensor, logs: Tensor) -> Any:
        return aten._scaled_dot_product_cudnn_attention_backward(
            grad, *self._tensors, out, logs.unsqueeze(-1), self._seed(), self._seed(),
            self._whole_mask(), None, None, *self._lengths, 0.0, self._is_causal,
            scale=self._scale,
        )  # fmt: skip

    @property
    def _lengths(self) -> tuple[int, int]:
        """The numbers of queries and keys."""
        return self._tensors[0].shape[2], self._tensors[1].shape[2]

    def _seed(self, shape: tuple[int, ...] = (), dtype: torch.dtype = torch.int64) -> Tensor:
        """A seed of dropout, which nothing reads without dropout."""
        return torch.empty(shape, dtype=dtype, device=self._tensors[0].device)

    def _whole_mask(self) -> Optional[Tensor]:
        """The mask of all heads and queries, whose lines begin at multiples of eight elements."""
        if self._mask is None:
            return None
        lines = _eights(self._mask)[..., : self._mask.shape[-1]]
        return lines.expand(*self._tensors[0].shape[:2], *self._lengths)

    # --- Without a kernel ---------------------------------------------------------------------

    def _precise(self, *tensors: Tensor) -> Iterator[Tensor]:
        """Tensors with a head for every query head, in single precision or better."""
        heads = self._tensors[0].shape[1]
        for each in tensors:
            each = each.float() if each.dtype in (torch.float16, torch.bfloat16) else each
            repeated = heads // each.shape[1]
            yield each if repeated == 1 else each.repeat_interleave(repeated, 1)

    def _scores(self, query: Tensor, key: Tensor) -> Tensor:
        scores = query @ key.transpose(-2, -1) * self._scale
        if self._mask is not None:
            scores = scores + self._mask
        if self._is_causal:
            scores.masked_fill_(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
        return scores

    def _in_parts(self) -> tuple[Tensor, Tensor]:
        query, key, value = self._precise(*self._tensors)
        scores = self._scores(query, key)
        logs = scores.logsumexp(-1)
        return (_weights(scores, logs) @ value).to(self._tensors[0].dtype), logs

    def _in_parts_backward(self, grad: Tensor, out: Tensor, logs: Tensor) -> Any:
        query, key, value, grad, out = self._precise(*self._tensors, grad, out)
        weights = _weights(self._scores(query, key), logs)
        value_grad = weights.transpose(-2, -1) @ grad
        dots = (grad * out).sum(-1, keepdim=True)
        scores = weights * (grad @ value.transpose(-2, -1) - dots) * self._scale
        found = scores @ key, scores.transpose(-2, -1) @ query, value_grad
        return [
            each.unflatten(1, (own.shape[1], -1)).sum(2).to(own.dtype)
            for each, own in zip(found, self._tensors)
        ]


def _weights(scores: Tensor, logs: Tensor) -> Tensor:
    """The weights; zero for a query that sees no key."""
    return (scores - logs.masked_fill(logs == -torch.inf, 0).unsqueeze(-1)).exp()


def _eights(tensor: Tensor) -> Tensor:
    """The tensor with zeros after each line, up to a multiple of eight elements."""
    return pad(tensor, (0, -tensor.shape[-1] % 8))


# --- Operators ----------------------------------------------------------------------------------


def _attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor],
    is_causal: bool, scale: Optional[float], grouped: bool,
    begin: Optional[int], key_begin: Optional[int],
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The weighted values (n, h, q, d), and the logarithms (n, h, q) of the weights' sums.

    `begin` is the number of the first query if the queries are a part, and `key_begin` that of the
    first key; None: they are whole. A query that sees no key has zeros, and -inf. `_Attention`
    tells the other arguments.
    """
    blocks = _seen(query.shape[2], key.shape[2], is_causal, begin, key_begin)
    found = [
        _Attention(
            query[:, :, q], key[:, :, k], value[:, :, k], mask, causal, scale, grouped
        ).forward()
        for q, k, causal in blocks
    ]
    if len(blocks) == 1 and blocks[0][0] == slice(None):
        return found[0]
    out, logs = _shapes(query, key, value)
    out.zero_()
    logs.fill_(-torch.inf)
    for (q, _, _), (more, more_logs) in zip(blocks, found):
        both = torch.stack([logs[:, :, q], more_logs])
        share, more_share = shares_of(both).unsqueeze(-1)
        out[:, :, q] = (out[:, :, q] * share).add_(more * more_share)
        logs[:, :, q] = both.logsumexp(0)
    return out, logs


def _attention_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor,
    mask: Optional[Tensor], is_causal: bool, scale: Optional[float], grouped: bool,
    begin: Optional[int], key_begin: Optional[int],
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of queries, keys and values; see `_attention`."""
    blocks = _seen(query.shape[2], key.shape[2], is_causal, begin, key_begin)
    found = [
        _Attention(
            query[:, :, q], key[:, :, k], value[:, :, k], mask, causal, scale, grouped
        ).backward(grad[:, :, q], out[:, :, q], logsumexp[:, :, q])
        for q, k, causal in blocks
    ]
    if len(blocks) == 1 and blocks[0][:2] == (slice(None), slice(None)):
        return found[0]
    gradients = tuple(torch.zeros_like(each) for each in (query, key, value))
    for (q, k, _), parts in zip(blocks, found):
        for whole, part, place in zip(gradients, parts, (q, k, k)):
            whole[:, :, place] += part
    return gradients


def _seen(
    queries: int, keys: int, is_causal: bool, begin: Optional[int], key_begin: Optional[int]
) -> list[tuple[slice, slice, bool]]:
    """Blocks of queries and keys that see each other, and whether query i sees only i + 1 keys.

    All queries see the keys before the first query, and none those after the last one; queries
    before the first key see none. Kernels need not know where queries and keys begin.
    """
    every = slice(None)
    if not is_causal or begin is None is key_begin:
        return [(every, every, is_causal)]
    first = (begin or 0) - (key_begin or 0)  # the first query's number among the keys
    if first < 0:
        size = min(queries + first, keys)
        return [(slice(-first, None), slice(size), True)] if size > 0 else []
    edge = min(first, keys)
    before, own = (every, slice(edge), False), (every, slice(edge, first + queries), True)
    return [*([before] if edge else []), *([own] if edge < keys else [])]


def _shapes(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    """Results without data, in memory as most kernels leave them: by sequence, then by head."""
    n, h, q, _ = query.shape
    precise = torch.float64 if query.dtype == torch.float64 else torch.float32
    out = query.new_empty((n, q, h, value.shape[-1])).transpose(1, 2)
    return out, query.new_empty((n, h, q), dtype=precise)


def _shapes_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any
) -> tuple[Tensor, Tensor, Tensor]:
    query_grad, key_grad, value_grad = (
        each.new_empty((n, s, h, e)).transpose(1, 2)
        for each in (query, key, value)
        for n, h, s, e in [each.shape]
    )
    return query_grad, key_grad, value_grad


for _name, _function, _fake, _schema in (
    ("tofu::attention", _attention, _shapes, _FORWARD),
    ("tofu::attention_backward", _attention_backward, _shapes_backward, _BACKWARD),
):
    torch.library.custom_op(_name, _function, mutates_args=(), schema=_schema)
    torch.library.register_fake(_name, _fake)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    *tensors, ctx.is_causal, ctx.scale, ctx.grouped, ctx.begin, ctx.key_begin = inputs
    ctx.save_for_backward(*tensors, *output)


def _gradients(ctx: Any, grad: Tensor, _: Tensor) -> Any:
    query, key, value, mask, out, logs = ctx.saved_tensors
    found = torch.ops.tofu.attention_backward(
        grad, query, key, value, out, logs, mask, ctx.is_causal, ctx.scale, ctx.grouped,
        ctx.begin, ctx.key_begin,
    )  # fmt: skip
    return (*found, None, None, None, None, None, None)


torch.library.register_autograd("tofu::attention", _gradients, setup_context=_keep)


# --- Calls --------------------------------------------------------------------------------------


def attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor] = None,
    dropout_p: float = 0.0, is_causal: bool = False, *,
    scale: Optional[float] = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """Torch's ``scaled_dot_product_attention``, with its arguments, as the one operator.

    With dropout, or a mask that learns, its parts: products, softmax and dropout.
    """
    tensors = query, key, value
    learned = attn_mask is not None and attn_mask.requires_grad
    if dropout_p or learned or not _fit(*tensors, attn_mask, is_causal, enable_gqa):
        if attn_mask is not None and attn_mask.dtype == torch.bool:  # that function adds any mask
            hidden = attn_mask.logical_not()
            attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype)
            attn_mask = attn_mask.masked_fill(hidden, float("-inf"))
        # Also raises torch's errors.
        return aten._scaled_dot_product_attention_math(
            *tensors, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
        )[0]
    if query.ndim == 3:
        if attn_mask is not None and attn_mask.ndim == 3:
            attn_mask = attn_mask.unsqueeze(0)
        tensors = query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0)
    out = torch.ops.tofu.attention(*tensors, attn_mask, is_causal, scale, enable_gqa, None, None)[0]
    return out.squeeze(0) if query.ndim == 3 else out


def _fit(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Optional[Tensor],
    is_causal: bool,
    grouped: bool,
) -> bool:
    """Whether the operator's shapes and types are those of the arguments."""
    heads, groups = query.shape[-3], key.shape[-3]
    return bool(
        query.ndim == key.ndim == value.ndim
        and query.ndim in (3, 4)
        and query.shape[:-3] == key.shape[:-3] == value.shape[:-3]
        and groups == value.shape[-3]
        and (heads == groups or (grouped and heads % groups == 0))
        and query.shape[-1] == key.shape[-1]
        and key.shape[-2] == value.shape[-2]
        and query.dtype == key.dtype == value.dtype
        and all(each.numel() for each in (query, key, value))
        and (mask is None or (not is_causal and 2 <= mask.ndim <= query.ndim))
    )
