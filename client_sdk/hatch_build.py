"""Puts the protocol into the SDK's wheel, from the folder beside; an editable install finds it there by itself."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ProtocolHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the package of the protocol to what is built."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before each build. version: "editable" or "standard"."""
        if version != "editable":
            protocol = Path(self.root).parent / "protocol" / "changeling_protocol"
            build_data["force_include"][str(protocol)] = "changeling_protocol"
