"""Image operators: of height, width, channel, or of batches of such images."""

from __future__ import annotations

from tofu.lang import op
from tofu.tdl._shapes import instances, line


@op(name="_image_to_tensor")
def to_tensor(data):
    """Channels first, divided by 255."""
    if data.ndim == 3:
        return lambda c, y, x: data[y, x, c] / 255
    return lambda n, c, y, x: data[n, y, x, c] / 255


@op(name="_image_normalize")
def normalize(data):
    """Each channel (the dimension before height and width) normalized by its own numbers."""
    word = line(data.ndim, data.ndim - 3)
    return instances(word, (data, word))


@op(name="_backward_image_normalize")
def backward_normalize(ograd, data):
    """The head gradient over each channel's deviation."""
    word = line(data.ndim, data.ndim - 3)
    return instances(word, (ograd, word), (data, word))


@op(name="_image_crop")
def crop(data):
    """A window of the image; MXNet supports only 1 or 3 channels, so they are whole."""
    word = line(data.ndim, (data.ndim - 3, data.ndim - 2, data.ndim - 1))
    return instances(word, (data, word))


@op(name="_backward_image_crop")
def backward_crop(ograd):
    """Zeros around the head gradient, whose channels are also whole."""
    word = line(ograd.ndim, (ograd.ndim - 3, ograd.ndim - 2, ograd.ndim - 1))
    return instances(word, (ograd, word))


@op(name="_image_flip_left_right")
def flip_left_right(data):
    """The image mirrored in width, which is whole: MXNet omits the middle if it is odd.

    Its channels (MXNet supports only 1 or 3) are also whole.
    """
    word = line(data.ndim, (data.ndim - 2, data.ndim - 1))
    return instances(word, (data, word))


@op(name="_image_flip_top_bottom")
def flip_top_bottom(data):
    """The image mirrored in height, which is whole: MXNet omits the middle if it is odd.

    Its channels (MXNet supports only 1 or 3) are also whole.
    """
    word = line(data.ndim, (data.ndim - 3, data.ndim - 1))
    return instances(word, (data, word))


@op(name=("_image_resize", "_cvimresize", "_cvcopyMakeBorder"))
def resize(data):
    """The image resampled or with a border: height and width are whole."""
    word = line(data.ndim, (data.ndim - 3, data.ndim - 2))
    return instances(word, (data, word))


@op(name="_image_adjust_lighting")
def adjust_lighting(data):
    """Adds a number per channel."""
    word = line(data.ndim, data.ndim - 1)
    return instances(word, (data, word))
