"""Losses of whole sequences: ranks may share the samples."""

from __future__ import annotations

from tofu.lang import Opaque, Over, op


@op(name="tofu.ctc_loss.default")
def ctc_loss(logs, labels, kept, steps, counts, *, blank=0, zero_infinity=False):
    """The losses of samples, and their gradients."""
    function = Opaque("Alignments")

    def of_sample(n):
        return function(logs[:, n, :], labels[n, :], kept[n, :], steps[n], counts[n])

    return Over(["n"], lambda n: of_sample(n)[0]), Over(
        ["t", "n", "c"], lambda t, n, c: of_sample(n)[t, c]
    )
