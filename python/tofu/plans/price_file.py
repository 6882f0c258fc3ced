"""Reads the prices of devices (docs/formats.md, "Prices")."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from tofu.errors import ConfigError

__all__ = ["Price", "read_price"]

FORMAT, VERSION = "tofu-prices", 1
_SECONDS = 3600


class Price(NamedTuple):
    """The price of a device.

    Attributes:
        per_hour: of one device.
        currency: its unit.
    """

    per_hour: float
    currency: str

    def of(self, devices: int, seconds: float) -> float:
        """The price of some devices for some seconds."""
        return self.per_hour * devices * seconds / _SECONDS

    def text(self, amount: float) -> str:
        """An amount in words, with three digits."""
        digits = f"{amount:.3g}" if amount < 1000 else f"{amount:,.0f}"
        return f"{digits} {self.currency}"


def read_price(path: Path, machine: str, where: str) -> Price:
    """The price of a machine's devices.

    Args:
        path: the file.
        machine: the name of the machine, as the user gives it.
        where: the option that names the file, for errors.

    Raises:
        ConfigError: there is no such file, it has no prices, or none of the machine.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if (document["format"], document["version"]) != (FORMAT, VERSION):
            raise ValueError(f"no {FORMAT} of version {VERSION}")
        prices: dict[str, Any] = dict(document["per_device_hour"])
        currency = document["currency"]
    except OSError as error:
        raise ConfigError(f"{where} {path}: cannot be read ({error.strerror})") from None
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f'{where} {path}: {error!r}; expected {{"format": "{FORMAT}", "version": {VERSION}, '
            '"currency": "USD", "per_device_hour": {"8xh100": 2.5}}'
        ) from None
    price: Any = prices.get(machine)
    is_number = isinstance(price, (int, float)) and not isinstance(price, bool)
    if not is_number or not 0 <= price < float("inf"):
        raise ConfigError(
            f"{where} {path}: the price of a device of {machine} is {price!r}; expected a number"
        )
    return Price(float(price), str(currency))
