"""Files with the prices of devices."""

import json

import pytest

from tofu.errors import ConfigError
from tofu.plans.price_file import read_price

PRICES = {
    "format": "tofu-prices", "version": 1, "currency": "USD", "per_device_hour": {"8xh100": 3.6},
}  # fmt: skip


def test_devices_cost_by_the_hour(tmp_path):
    path = tmp_path / "prices.json"
    path.write_text(json.dumps(PRICES))
    price = read_price(path, "8xh100", "--price")
    assert price.of(4, 0.5) == pytest.approx(0.002)
    assert [price.text(amount) for amount in (0.01234, 12, 1234.5)] == [
        "0.0123 USD", "12 USD", "1,234 USD",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": 2}, "no tofu-prices of version 1"),
        ({"per_device_hour": 3}, 'expected {"format": "tofu-prices"'),
        ({"per_device_hour": {}}, "the price of a device of 8xh100 is None; expected a number"),
        ({"per_device_hour": {"8xh100": -1}}, "of 8xh100 is -1; expected a number"),
        ({"per_device_hour": {"8xh100": True}}, "of 8xh100 is True; expected a number"),
    ],
)
def test_what_is_no_price_is_refused(tmp_path, changes, reason):
    path = tmp_path / "prices.json"
    path.write_text(json.dumps({**PRICES, **changes}))
    with pytest.raises(ConfigError) as error:
        read_price(path, "8xh100", "--price")
    assert str(error.value).startswith(f"--price {path}: ")
    assert reason in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"--price .*nosuch: cannot be read \(No such file"):
        read_price(tmp_path / "nosuch", "8xh100", "--price")
