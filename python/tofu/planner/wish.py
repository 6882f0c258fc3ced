"""The user's wish for a plan, the same for commands, Python and runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Optional

from tofu.config import RECOMPUTES, Config
from tofu.plans import SearchOptions

__all__ = ["Wish"]


@dataclasses.dataclass(frozen=True)
class Wish:
    """Options for a plan, as the user gives them.

    Attributes:
        options: how to search.
        limit_bytes: bytes that a worker may hold; None: any number.
        whole_share: the part of the memory of a plan that cuts every tensor by which a worker may
            hold more for tensors that stay whole; None: any, if they may stay whole at all.
        recompute: which activations are computed again, one of config.RECOMPUTES; "auto": as
            few as the limit needs.
        exact: whether to count the memory that MXNet will allocate; else a quick estimate.
        fetch: one of config.FETCHES; None: the default of a run.
        dump_dir: where every pass writes a readable file, or None.
    """

    options: SearchOptions = dataclasses.field(default_factory=SearchOptions)
    limit_bytes: Optional[int] = None
    whole_share: Optional[float] = None
    recompute: str = RECOMPUTES[0]
    exact: bool = True
    fetch: Optional[str] = None
    dump_dir: Optional[Path] = None

    @property
    def weighs_memory(self) -> bool:
        """Whether the choice of a plan depends on the memory that it takes."""
        return (self.limit_bytes, self.whole_share) != (None, None) or self.recompute == "all"

    @classmethod
    def of(
        cls, config: Config, *, time_limit_s: Optional[float] = None, exact: bool = True
    ) -> Wish:
        """The wish that a configuration states."""
        return cls(
            options=SearchOptions.of(config, time_limit_s),
            limit_bytes=config.memory_bytes,
            whole_share=config.whole_share,
            recompute=config.recompute,
            exact=exact,
            fetch=config.fetch,
            dump_dir=config.dump_dir,
        )
