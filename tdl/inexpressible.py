"""Operators that no description covers, each with its reason, by family."""

from __future__ import annotations

__all__ = ["REASONS"]

_FLAT = "solves a system of the whole tensors, flattened: no dimension is a batch"

_SPARSE_GRADIENT = "takes a gradient of sparse storage only, which has no tiles"

_NUMPY = {
    "_npi_tensorinv": _FLAT,
    "_npi_tensorsolve": _FLAT,
    "_backward_npi_tensorinv": _FLAT,
    "_backward_npi_tensorsolve": _FLAT,
    "_contrib_group_adagrad_update": _SPARSE_GRADIENT,
    "_sparse_adagrad_update": _SPARSE_GRADIENT,
}

_SUBGRAPH = "runs a graph of its own: what it computes is in an attribute"
_CALLBACK = "calls the user's code"
_DYNAMIC = "the output's shape depends on the values"
_SPARSE = "works on sparse storage, which has no tiles"
_CODEC = "reads an encoded image: the output's shape depends on the bytes"
_ONE_CHOICE = "one random choice for the whole tensor, which each part would make on its own"
_NO_KERNEL = "never computes anything"

_RANDOM_IMAGE = (
    *("brightness", "contrast", "saturation", "hue", "color_jitter", "lighting"),
    *("flip_left_right", "flip_top_bottom"),
)
_GRAPH_SAMPLING = (
    *("_contrib_dgl_adjacency", "_contrib_dgl_csr_neighbor_non_uniform_sample"),
    *("_contrib_dgl_csr_neighbor_uniform_sample", "_contrib_dgl_graph_compact"),
    *("_contrib_dgl_subgraph", "_contrib_edge_id"),
)
_CLASSIC = {
    **dict.fromkeys(("_cond", "_foreach", "_while_loop"), _SUBGRAPH),
    **dict.fromkeys(("_backward_cond", "_backward_foreach", "_backward_while_loop"), _SUBGRAPH),
    **dict.fromkeys(("_CachedOp", "_CachedOpThreadSafe", "_backward_CachedOp"), _SUBGRAPH),
    **dict.fromkeys(("Custom", "_CustomFunction", "_NDArray", "_Native"), _CALLBACK),
    **dict.fromkeys(("_backward_Custom", "_backward_CustomFunction"), _CALLBACK),
    **dict.fromkeys(("_backward__NDArray", "_backward__Native"), _CALLBACK),
    **dict.fromkeys(("_contrib_boolean_mask", "_backward_contrib_boolean_mask"), _DYNAMIC),
    **dict.fromkeys(("_npi_bincount", "_npi_delete", "_npi_unique", "_npx_nonzero"), _DYNAMIC),
    **dict.fromkeys(("_cvimdecode", "_cvimread", "_imdecode"), _CODEC),
    **dict.fromkeys((f"_image_random_{name}" for name in _RANDOM_IMAGE), _ONE_CHOICE),
    **dict.fromkeys(_GRAPH_SAMPLING, _SPARSE),
    **dict.fromkeys(("_contrib_SparseEmbedding", "_backward_SparseEmbedding"), _SPARSE),
    **dict.fromkeys(("_contrib_getnnz", "cast_storage"), _SPARSE),
    **dict.fromkeys(("_sparse_retain", "_backward_sparse_retain"), _SPARSE),
    **dict.fromkeys(("_square_sum", "_backward_square_sum"), _SPARSE),
    "_NoGradient": _NO_KERNEL,
    "reset_arrays": "has no output: it clears its inputs in place",
    "_backward_RROIAlign": "MXNet registers it and refuses to run it",
    "_npi_boolean_mask_assign_tensor": "the place of a value is the number of flags before it",
    "_npi_share_memory": "asks where tensors are stored, not what they hold",
    "_onehot_encode": "an old imperative function, not a node of a graph",
    "fill_element_0index": "an old imperative function, not a node of a graph",
    "_set_value": "an old imperative function, not a node of a graph",
    "_contrib_calibrate_entropy": "a search over one whole histogram: no dimension is free",
    "_sg_mkldnn_conv": "a fused graph of oneDNN, made after planning",
    "_sg_mkldnn_fully_connected": "a fused graph of oneDNN, made after planning",
    "_sg_mkldnn_selfatt_qk": "a fused graph of oneDNN, made after planning",
    "_sg_mkldnn_selfatt_valatt": "a fused graph of oneDNN, made after planning",
}

REASONS: dict[str, str] = {**_NUMPY, **_CLASSIC}
