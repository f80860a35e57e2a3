"""The client of the Agent Governance Service; imports httpx and the standard library alone."""

VERSION = "0.1.0"
