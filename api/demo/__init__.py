"""A day of agent events, played against a running service: `governance demo`."""
