"""Every setting, in one table: environment name, default, help.

The guide's page of settings is made from `TABLE`. A value that does not parse is a refusal to start that
names the variable, the value and what is accepted; nothing is guessed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from api.setting_names import problems_with_names
from api.setting_values import (
    EVENTS_BEFORE_RECORDS,
    MAKE_SECRET,
    address,
    database,
    days_of_records,
    hosts,
    listening,
    maybe_path,
    networks,
    one_of,
    origin_of,
    path_of,
    plain,
    seconds,
    secret_of,
    switch,
    text,
    visible,
    whole,
)
from api.setting_values import (
    SettingsError as SettingsError,
)

MOST_CONNECTIONS = 1 << 20
FILES_AT_REST = 112
"""File descriptors that are no connection's: some 60 of a service at rest, and what it opens at work."""
FEWEST_CHARACTERS = 8
"""Different ones, in a secret that cannot be guessed."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table. `default` is the text form, as one would write it in the environment."""

    name: str
    default: str
    help: str
    parse: Callable[[str], Any]
    secret: bool = False

    @property
    def field(self) -> str:
        return self.name.removeprefix("GOVERNANCE_").lower()

    @property
    def flag(self) -> str:
        """How the command line calls it, where it has a flag."""
        return "--" + self.field.replace("_", "-")


TABLE: tuple[Setting, ...] = (
    Setting("GOVERNANCE_HOST", "127.0.0.1", "address to listen on", listening),
    Setting("GOVERNANCE_PORT", "8700", "port to listen on", whole(0, 65535)),
    Setting("GOVERNANCE_WORKERS", "1", "server processes on this machine", whole(1, 64)),
    Setting("GOVERNANCE_LANES", "8", "connections a process writes events by (PostgreSQL)", whole(0, 64)),
    Setting(
        "GOVERNANCE_ENV",
        "development",
        "`production` refuses to start without a configured `GOVERNANCE_JWT_SECRET`",
        one_of("development", "production"),
    ),
    Setting("GOVERNANCE_DATA_DIR", "./data", "folder of the embedded database and signing secret", path_of),
    Setting("GOVERNANCE_POLICIES_DIR", "./policies.d", "folder of policies, presets and tools", path_of),
    Setting(
        "GOVERNANCE_DATABASE_URL",
        "",
        "`sqlite:///file` or `postgresql://...`; empty: SQLite in the data folder",
        database,
        secret=True,
    ),
    Setting(
        "GOVERNANCE_FRONTEND_URL",
        "",
        "address of the web front end in `approvalUrl`, whose pages may call the API from another origin; "
        "empty: the service's own console",
        address,
    ),
    Setting(
        "GOVERNANCE_PUBLIC_URL",
        "",
        "address by which others reach the API, as its answers name it; empty: that of the web front end",
        address,
    ),
    Setting(
        "GOVERNANCE_TRUSTED_PROXIES",
        "",
        "comma-separated addresses or networks of proxies whose `X-Forwarded-For` is believed; empty: none",
        networks,
    ),
    Setting(
        "GOVERNANCE_JWT_SECRET",
        "",
        "secret that signs access tokens, 32 bytes or more; empty: a random one kept in the data folder",
        secret_of,
        secret=True,
    ),
    Setting(
        "GOVERNANCE_JWT_SECRET_BEFORE",
        "",
        "the signing secret of before, given once after a change of it, so that secrets in the database are "
        "taken along",
        text,
        secret=True,
    ),
    Setting("GOVERNANCE_TOKEN_SECONDS", "43200", "lifetime of an access token", whole(60, 31536000)),
    Setting("GOVERNANCE_ADMIN_EMAIL", "", "e-mail of the first admin; empty: `admin@localhost`", plain),
    Setting("GOVERNANCE_ADMIN_PASSWORD", "", "first admin's password; empty: random", plain, secret=True),
    Setting("GOVERNANCE_API_KEY", "", "the first agent API key; empty: a random one", plain, secret=True),
    Setting(
        "GOVERNANCE_REQUIRE_BOUND_KEYS",
        "off",
        "`on`: events with an API key that is bound to no agent are 403, so that no agent passes for another",
        switch,
    ),
    Setting(
        "GOVERNANCE_WEBHOOK_ALLOW",
        "",
        "comma-separated `host:port` receivers that may be private or plain http",
        hosts,
    ),
    Setting(
        "GOVERNANCE_WEBHOOK_RETRY", "", "comma-separated seconds that replace the retry schedule", seconds
    ),
    Setting(
        "GOVERNANCE_MAX_BODY_BYTES",
        "1048576",
        "largest request body in bytes; larger ones are 413",
        whole(1024, 1 << 30),
    ),
    Setting(
        "GOVERNANCE_REQUEST_SECONDS",
        "60",
        "seconds that a request may take to arrive, from its first byte to the last of its body; then 408. "
        "A client that reads nothing of its answer for so long is cut off",
        whole(1, 3600),
    ),
    Setting(
        "GOVERNANCE_CONNECTIONS",
        "0",
        "connections that one server process keeps open; one more takes the place of an idle one, or "
        "of one of whoever has most of them at work, or is 503. "
        "0: three quarters of the file descriptors that it may open, and 112 fewer than these",
        whole(0, MOST_CONNECTIONS),
    ),
    Setting(
        "GOVERNANCE_KEY_EVENTS_PER_MINUTE",
        "600000",
        "events and requests to read that one API key may send a minute to one server process; more are 429; "
        "0: any number",
        whole(0, 10**9),
    ),
    Setting(
        "GOVERNANCE_KEY_BYTES_PER_DAY",
        "68719476736",
        "bytes of events that one API key may send a day to one server process, all of which are kept; more "
        "are 429; 0: any number",
        whole(0, 10**15),
    ),
    Setting(
        "GOVERNANCE_KEY_PENDING_APPROVALS",
        "1000",
        "approvals of one API key's calls that may wait at a time; a call that would need one more is 429, "
        "so that nobody buries one call among many; 0: any number",
        whole(0, 10**9),
    ),
    Setting(
        "GOVERNANCE_EVENT_DAYS",
        "0",
        "days that events and their payloads are kept, on PostgreSQL up to a day or a thirtieth longer; "
        "0: for ever. Decisions always stay, and so does the audit log unless GOVERNANCE_AUDIT_DAYS is set",
        whole(0, 36500),
    ),
    Setting(
        "GOVERNANCE_DELIVERY_DAYS",
        "30",
        "days that finished webhook deliveries are kept; 0: for ever",
        whole(0, 36500),
    ),
    Setting(
        "GOVERNANCE_ALERT_DAYS",
        "365",
        "days that alerts are kept after the last of what they tell of; 0: for ever",
        whole(0, 36500),
    ),
    Setting(
        "GOVERNANCE_AUDIT_DAYS",
        "0",
        "days that audit records are kept, at least 30; a signed checkpoint takes their place. 0: for ever",
        days_of_records,
    ),
    Setting(
        "GOVERNANCE_AUDIT_KEY_FILE",
        "",
        "the file with the key that signs checkpoints of the audit log, the same on every node; default: "
        "`audit-key` in the data folder, made at the first start",
        maybe_path,
    ),
    Setting(
        "GOVERNANCE_LOG_FORMAT",
        "text",
        "`json`: each line of the log is a JSON object, for machines that collect it",
        one_of("text", "json"),
    ),
    Setting(
        "GOVERNANCE_ACCESS_LOG",
        "off",
        "`on`: a line of the log for each request. An event then takes some four times the processor's "
        "time; the record has each of them anyway",
        switch,
    ),
    Setting(
        "GOVERNANCE_METRICS_TOKEN",
        "",
        "bearer token that `GET /metrics` asks for, 16 characters or more; empty: none",
        plain,
        secret=True,
    ),
    Setting(
        "GOVERNANCE_GIT",
        "off",
        "`commit`: an API write commits its policy file as the caller; never pushes",
        one_of("off", "commit"),
    ),
)

OF_CLIENTS: Mapping[str, str] = {
    "GOVERNANCE_URL": "the service; `http://127.0.0.1:8700` if it is not set",
    "GOVERNANCE_AGENT_ID": "the agent that they speak for",
    "GOVERNANCE_FAIL_MODE": "while the service is away: `closed` runs nothing, `open` journals what runs",
    "GOVERNANCE_JOURNAL": "the folder of that journal, and in both modes of outputs that the service did not "
    "take in time; `~/.local/state/governance/journal` if it is not set",
    "GOVERNANCE_TOKEN": "a person's token, for commands that ask a running service; goes before a login",
    "GOVERNANCE_TASK": "what a session of `governance mcp-proxy` is for",
}
"""What client, hooks and proxy are told by the same environment; no business of the service, which lets it
stand there."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The parsed settings; one field per row of `TABLE`, named like the row without its prefix."""

    host: str
    port: int
    workers: int
    lanes: int
    env: str
    data_dir: Path
    policies_dir: Path
    database_url: str = field(repr=False)
    frontend_url: str
    public_url: str
    trusted_proxies: tuple[str, ...]
    jwt_secret: str = field(repr=False)
    jwt_secret_before: str = field(repr=False)
    token_seconds: int
    admin_email: str
    admin_password: str = field(repr=False)
    api_key: str = field(repr=False)
    require_bound_keys: bool
    webhook_allow: frozenset[str]
    webhook_retry: tuple[float, ...]
    max_body_bytes: int
    request_seconds: int
    connections: int
    key_events_per_minute: int
    key_bytes_per_day: int
    key_pending_approvals: int
    event_days: int
    delivery_days: int
    alert_days: int
    audit_days: int
    audit_key_file: Path | None
    log_format: str
    access_log: bool
    metrics_token: str = field(repr=False)
    git: str

    @property
    def production(self) -> bool:
        return self.env == "production"

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every value that no line of a log may have."""
        password = urlsplit(self.database_url).password or ""
        given = (getattr(self, row.field) for row in TABLE if row.secret and row.field != "database_url")
        return tuple(each for each in (*given, password, unquote(password)) if each)

    @property
    def database(self) -> str:
        """The database address, with the embedded default filled in."""
        return self.database_url or f"sqlite:///{self.data_dir / 'governance.sqlite'}"

    @property
    def most_connections(self) -> int:
        """The rest of the file descriptors is for the database, policy files and webhooks."""
        if self.connections or os.name == "nt":
            return self.connections or MOST_CONNECTIONS
        import resource

        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if descriptors == resource.RLIM_INFINITY:
            return MOST_CONNECTIONS
        return max(1, min(descriptors * 3 // 4, descriptors - FILES_AT_REST))

    @property
    def base_url(self) -> str:
        # A service that listens everywhere is at home on the loopback address.
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        host = f"[{host}]" if ":" in host else host
        return f"http://{host}:{self.port}"

    @property
    def frontend(self) -> str:
        return self.frontend_url or self.base_url

    @property
    def public(self) -> str:
        return self.public_url or self.frontend

    @property
    def frontend_origin(self) -> str | None:
        """The origin of the web front end, as browsers write it; None when it is the service itself."""
        origin = origin_of(self.frontend)
        return None if origin == origin_of(self.base_url) else origin


def load(environment: Mapping[str, str] | None = None, **flags: str | None) -> Settings:
    """Settings from the environment, with command-line flags (by field name) on top.

    Raises SettingsError naming every variable that does not parse, and unknown `GOVERNANCE_*` names, since
    a misspelt safety setting must not be ignored.
    """
    source = os.environ if environment is None else environment
    known = {setting.name for setting in TABLE} | OF_CLIENTS.keys()
    problems = problems_with_names(source.keys(), known)
    values: dict[str, Any] = {}
    for setting in TABLE:
        flag = flags.get(setting.field)
        given = flag if flag is not None else source.get(setting.name) or setting.default
        try:
            values[setting.field] = setting.parse(given)
        except SettingsError as error:
            shown = "" if setting.secret else f" is `{visible(given)}`"
            name = setting.name if flag is None else setting.flag
            problems.append(f"{name}{shown}: {error}")
    secret = values.get("jwt_secret", "")
    for name in ("GOVERNANCE_JWT_SECRET", "GOVERNANCE_JWT_SECRET_BEFORE"):
        each = values.get(name.removeprefix("GOVERNANCE_").lower(), "")
        if each and len(each.encode()) < 32:
            problems.append(f"{name}: must be 32 bytes or more, so that it cannot be guessed")
    if secret and len(set(secret)) < FEWEST_CHARACTERS:
        problems.append(
            f"GOVERNANCE_JWT_SECRET: has fewer than {FEWEST_CHARACTERS} different characters, so that it can "
            f"be guessed; {MAKE_SECRET}"
        )
    if values.get("env") == "production" and not secret:
        problems.append(f"GOVERNANCE_JWT_SECRET: must be set with GOVERNANCE_ENV=production; {MAKE_SECRET}")
    if 0 < values.get("audit_days", 0) < (values.get("event_days") or 36501):
        problems.append(f"GOVERNANCE_AUDIT_DAYS: {EVENTS_BEFORE_RECORDS}")
    key = values.get("api_key", "")
    if key and (len(key) < 16 or not all("!" <= character <= "~" for character in key)):
        problems.append(
            "GOVERNANCE_API_KEY: must be 16 ASCII characters or more without blanks, so that it cannot be "
            "guessed and fits into a header"
        )
    token = values.get("metrics_token", "")
    if token and (len(token) < 16 or not all("!" <= character <= "~" for character in token)):
        problems.append("GOVERNANCE_METRICS_TOKEN: must be 16 ASCII characters or more without blanks")
    folder = source.get("PROMETHEUS_MULTIPROC_DIR")
    if folder is not None and not (Path(folder).is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        problems.append(
            f"PROMETHEUS_MULTIPROC_DIR is `{folder}`: must be a folder that can be written; make it, or "
            "leave the variable out"
        )
    if problems:
        raise SettingsError("\n".join(problems))
    return Settings(**values)
