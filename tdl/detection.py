"""Boxes and anchors, image by image."""

from __future__ import annotations

from tofu.lang import Opaque, Over, apply, like, op
from tofu.tdl._shapes import instances, letters, names, zero

# --- Single-shot detection ------------------------------------------------------------------


@op(name="_contrib_MultiBoxPrior")
def multi_box_prior(data):
    """Anchors for every position, which depend only on the size of the image."""
    return instances("...", (data, ""))


@op(name="_contrib_MultiBoxTarget")
def multi_box_target(anchor, label, prediction):
    """Targets of each image's boxes: offsets, their mask, classes."""
    return instances("n. n. n.", (anchor, ""), (label, "n"), (prediction, "n"))


@op(name="_contrib_MultiBoxDetection")
def multi_box_detection(probability, location, anchor):
    """The boxes of each image, by probability."""
    return instances("n..", (probability, "n"), (location, "n"), (anchor, ""))


@op(name="_backward__contrib_MultiBoxPrior")
def backward_multi_box_prior(ograd, data, out):
    """Zero."""
    return zero(data, "")


@op(name="_backward__contrib_MultiBoxTarget")
def backward_multi_box_target():
    """Zero for anchors, labels and predictions."""
    return instances("... n.. n..")


@op(name="_backward__contrib_MultiBoxDetection")
def backward_multi_box_detection(ograd, probability, location, anchor, out):
    """Zero."""
    reads = (ograd, "n"), (probability, "n"), (location, "n"), (anchor, ""), (out, "n")
    return instances("n.. n. ...", *reads)


# --- Proposals, whose first column is the image's number ------------------------------------


@op(name=("_contrib_MultiProposal", "_contrib_Proposal"))
def proposal(*args, out_shapes):
    """Regions and their scores, image after image; the first column is the image's number."""
    best = Opaque("Proposal")
    wholes = [x[(slice(None),) * x.ndim] for x in args]
    element = lambda r, p: apply("numbered", r, best(*wholes)[p])  # noqa: E731
    return tuple(Over(["r", f"p{k}"], element) for k in range(len(out_shapes)))


@op(name=("_backward__contrib_MultiProposal", "_backward__contrib_Proposal"))
def backward_proposal():
    """Zero."""
    return instances("n... n... n.")


# --- Boxes -----------------------------------------------------------------------------------


@op(name="_contrib_box_nms")
def box_nms(data):
    """The boxes that do not overlap a better one, and their numbers, counted over all images."""
    return instances(f"{'.' * data.ndim} {'.' * data.ndim}", (data, ""))


@op(name="_backward_contrib_box_nms")
def backward_box_nms(*args):
    """The head gradients, put back at the boxes' places by their numbers."""
    return instances("." * args[0].ndim, *((x, "") for x in args))


@op(name="_contrib_box_iou")
def box_iou(lhs, rhs):
    """The overlap of every box with every other."""
    overlap = Opaque("Overlap")
    left, right = names(lhs.ndim - 1), names(rhs.ndim - 1, "j")
    count = len(left)
    return Over(
        [*left, *right],
        lambda *v: overlap(lhs[(*v[:count], slice(None))], rhs[(*v[count:], slice(None))]),
    )


@op(name="_backward_contrib_box_iou")
def backward_box_iou(ograd, *, out_shapes):
    """Zero."""
    left = len(out_shapes[0]) - 1
    word = letters(ograd.ndim)
    return (
        *instances(word[:left] + ".", (ograd, word[:left])),
        *instances(word[left:] + ".", (ograd, "." * left + word[left:]), tag="r"),
    )


@op(name="_contrib_bipartite_matching")
def bipartite_matching(data):
    """The partner of each row, and of each column."""
    batch = letters(data.ndim - 2)
    return instances(f"{batch}. {batch}.", (data, batch))


@op(name="_backward_contrib_bipartite_matching")
def backward_bipartite_matching(rows, columns):
    """Zero."""
    batch = letters(rows.ndim - 1)
    return instances(f"{batch}..", (rows, batch), (columns, batch))


@op(name="_contrib_box_encode")
def box_encode(samples, matches, anchors, refs, means, stds):
    """Training targets of each box, and their mask."""
    reads = (samples, "nb"), (matches, "nb"), (anchors, "nb"), (refs, "n"), (means, ""), (stds, "")
    return instances("nb. nb.", *reads)


@op(name="_contrib_box_decode")
def box_decode(data, anchors):
    """Corners from offsets, with one set of anchors for all images."""
    return instances("nb.", (data, "nb"), (anchors, "0b"))


# --- Others ------------------------------------------------------------------------------------


@op(name="_contrib_index_array")
def index_array(data, *, axes=None):
    """The index of each element, or a part of the index."""
    used = range(data.ndim) if axes is None else [a % data.ndim for a in axes]
    return lambda *i, k: like(apply("index", *(i[d] for d in used), k), data[i])


@op(name="_contrib_hawkesll")
def hawkes(lda, alpha, beta, state, lags, marks, valid_length, max_time):
    """The likelihood of each sequence of events, and the state after it."""
    shared = (alpha, ""), (beta, "")
    reads = ((x, "n") for x in (lda, state, lags, marks, valid_length, max_time))
    return instances("n n.", *shared, *reads)


@op(name="_contrib_backward_hawkesll")
def backward_hawkes(likelihood, state_grad, lda, alpha, beta, *args):
    """The gradient of each input; shared parameters sum over the sequences."""
    reads = ((x, "n") for x in (likelihood, state_grad, lda, *args))
    return instances("n. . . n. n. n. n n", *reads, (alpha, ""), (beta, ""))


@op(name=("_contrib_fft", "_contrib_ifft", "_contrib_count_sketch"))
def per_line(*args):
    """A function of the last dimension."""
    batch = letters(args[0].ndim - 1)
    return instances(f"{batch}.", (args[0], batch), *((x, "") for x in args[1:]))


@op(name=("_backward__contrib_fft", "_backward__contrib_ifft"))
def backward_per_line(ograd, data):
    """The gradient of data, line by line."""
    batch = letters(ograd.ndim - 1)
    return instances(f"{batch}.", (ograd, batch), (data, batch))


@op(name="_backward__contrib_count_sketch")
def backward_count_sketch(ograd, data, h, s):
    """The gradient of data; the hashes get zeros."""
    batch = letters(ograd.ndim - 1)
    reads = (ograd, batch), (data, batch), (h, ""), (s, "")
    return *instances(f"{batch}.", *reads), *instances(". .", (h, ""), (s, ""), tag="z")
