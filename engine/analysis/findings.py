"""How a finding of lint about a policy says what it found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.model import Json, Policy
from schemas.lint_codes import CODES, Level


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing about one policy. `pointer` is a JSON pointer into its document, `related` other policies.

    `call` is the witness, as `ToolCall.of` takes it; `outcome` says what the engine did with it.
    """

    code: str
    message: str
    policy: Policy
    pointer: str = ""
    call: Mapping[str, Json] | None = None
    outcome: str = ""
    related: tuple[str, ...] = ()

    @property
    def level(self) -> Level:
        return CODES[self.code][0]
