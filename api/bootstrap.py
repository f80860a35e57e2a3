"""What a service needs before it can serve: tables, an organisation, a signing secret, an admin, an API key.

Every start runs it; only the first one finds something to make. What it makes is decided inside one writing
transaction, so of several processes or nodes that start at once one makes it and the others find it made.
The configured first e-mail, password and key are used then and never again: changing them later is for
`governance users` and `governance keys`, so that an old variable in a deployment cannot bring back a revoked
key.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from api.audit.installation_key import key_file
from api.audit.mark import AuditMark
from api.audit.rekey import check_key
from api.auth import passwords
from api.auth.credentials import key_digest, key_prefix, new_key
from api.auth.private_file import make_data_folder
from api.auth.signing_secret import FILE as SECRET_FILE
from api.auth.signing_secret import open_vault, signing_secret
from api.clock import Clock, Ids, random_ids, system_clock
from api.database.connection import COPY_PROGRESS, Database
from api.database.lacking import tables_of
from api.database.lanes.room import too_little
from api.database.postgres import Postgres
from api.database.sqlite.network import in_use_elsewhere, network_file_system
from api.database.sqlite.other_name import also_named
from api.database.transaction import Transaction
from api.in_place import write_in_place
from api.settings import Settings, SettingsError
from api.store import accounts, emails

ORGANISATION = "default"
ACTOR = "first start"
DEFAULT_EMAIL = "admin@localhost"
MANY_ADDRESSES = 4 << 30
"""Bytes. A process at work has some 1.2 GB of them, and 8 MiB more for each thread."""


@dataclass(frozen=True, slots=True)
class FirstStart:
    """What was made just now; None for what was there already. Secrets are nowhere else: show them once."""

    admin_email: str | None = None
    admin_password: str | None = field(default=None, repr=False)
    """None as well when it came from the settings: whoever set it knows it."""
    api_key: str | None = field(default=None, repr=False)
    made_key: bool = False
    notes: tuple[str, ...] = ()
    """What may not be meant, and does not forbid to serve."""

    @property
    def made_anything(self) -> bool:
        return self.admin_email is not None or self.made_key


def prepare(
    settings: Settings,
    *,
    clock: Clock = system_clock,
    ids: Ids = random_ids,
    check: Callable[[Database], None] = lambda store: None,
) -> FirstStart:
    """Make what is missing. Raises SettingsError, DatabaseUnavailable, or what `check` raises.

    `check` sees the database with its tables before anything is made that is shown only once.
    """
    _need_folder_of_database(settings)
    make_data_folder(settings.data_dir)
    write_in_place(settings.data_dir)
    _refuse_lost_database(settings)
    if settings.jwt_secret or (settings.data_dir / SECRET_FILE).exists():
        signing_secret(settings)  # refused before anything is made
    store = Database(settings.database)
    try:
        if store.is_sqlite and (why := in_use_elsewhere(store.path)):
            raise SettingsError(why)
        store.refuse_foreign_file()
        mark = AuditMark(settings)
        mark.refuse(as_copy=True)
        _refuse_empty(settings, store)
        store.migrate()
        store.check_pages()
        secret = signing_secret(settings)
        check_key(settings, store)
        check(store)
        missed = store.read_here(mark.missed, store)
        email, password, hashed = None, None, None
        if store.read_here(accounts.count_admins, ORGANISATION) == 0:
            # Hashed before the transaction, which must be short; the transaction looks again.
            email, password = _first_admin(settings)
            hashed = passwords.hashed(password)
        with store.transaction():
            transaction = Transaction(store, clock(), ids, None)
            open_vault(transaction, settings, secret)
            made = _make(transaction, settings, email, password, hashed)
            transaction.flush()
        named = also_named(store.path) if store.is_sqlite else None
        notes = (
            missed,
            named,
            too_little(store, settings.lanes, settings.workers),
            _in_the_clear(store),
            _few_addresses(),
            _on_a_network(store),
            *_unheeded(settings, store),
        )
        return replace(made, notes=tuple(note for note in notes if note is not None))
    finally:
        store.close()


def _refuse_lost_database(settings: Settings) -> None:
    """The key of the audit log and the signing secret are made after the database: where one lies there was
    one, and an empty one in its place would have forgotten every halt, limit and approval."""
    if not settings.database.startswith("sqlite:///"):
        return
    path = Path(settings.database.removeprefix("sqlite:///"))
    signs = [each for each in (key_file(settings), settings.data_dir / SECRET_FILE) if each.is_file()]
    mark = AuditMark(settings)
    signs += [mark.path] if mark.names_this else []
    if signs and (not path.exists() or path.stat().st_size == 0):
        raise SettingsError(
            f"the database `{path}` is {'empty' if path.exists() else 'gone'}, but `{signs[0]}` is there, so "
            "there was one: put it, or a backup of it, in its place. To begin anew, move "
            + " and ".join(f"`{each}`" for each in signs)
            + " away"
            + (
                "; or start once without GOVERNANCE_AUDIT_KEY_FILE, and let it name the `audit-key` that "
                "this makes"
                if settings.audit_key_file in signs
                else ""
            )
        )


def _refuse_empty(settings: Settings, store: Database) -> None:
    """The same of a database of PostgreSQL, before anything is made there that services would find which run,
    and of an embedded one that has tables with nothing in them. Of keys only one that the service has made
    itself says that there was a database: one that a setting names may be there before. Nor does the signing
    secret: a first start that dies has made it before its database."""
    key, mark = key_file(settings), AuditMark(settings)
    signs = [key] if settings.audit_key_file is None and key.exists() else []
    signs += [mark.path] if mark.names_this else []
    if not signs:
        return
    with store.guarded():
        tables = tables_of(store.peewee)
        is_used = "organisations" in tables and store.rows("SELECT 1 FROM organisations LIMIT 1")
    if is_used or COPY_PROGRESS in tables:  # of which it is said that it is not whole
        return
    what, before, remedy = "PostgreSQL database", settings.data_dir / "governance.sqlite", ""
    in_the_way = signs
    if store.is_sqlite:
        what, in_the_way = f"database `{store.path}`", [*signs, Path(store.path)]
    elif before.exists():
        remedy = f", or take `{before}` along with `governance copy --to URL`"
    raise SettingsError(
        f"the {what} is empty, but `{signs[0]}` is there, so there was one: mend --database-url "
        f"or GOVERNANCE_DATABASE_URL, or put the database back from its backup{remedy}. To begin anew, move "
        + " and ".join(f"`{each}`" for each in in_the_way)
        + " away"
    )


def _need_folder_of_database(settings: Settings) -> None:
    """A mistyped address must not start a new, empty service; only the default folder is made."""
    path = Path(settings.database_url.removeprefix("sqlite:///"))
    if settings.database_url.startswith("sqlite:") and not path.parent.is_dir():
        raise SettingsError(
            f"there is no folder `{path.parent}` for the database `{path}`; make it, or mend --database-url "
            "or GOVERNANCE_DATABASE_URL"
        )


def _first_admin(settings: Settings) -> tuple[str, str]:
    email = settings.admin_email or DEFAULT_EMAIL
    password = settings.admin_password or passwords.generated()
    for name, problem in (
        ("GOVERNANCE_ADMIN_EMAIL", emails.problem_with(email)),
        ("GOVERNANCE_ADMIN_PASSWORD", passwords.policy_violation(password, email)),
    ):
        if problem is not None:
            raise SettingsError(f"{name}: {problem}")
    return email, password


def _in_the_clear(store: Database) -> str | None:
    """libpq takes a server without TLS by itself, and one that says it has none."""
    host = store.peewee.exposed if isinstance(store.peewee, Postgres) else None
    if host is None:
        return None
    return (
        f"The connection to PostgreSQL on `{host}` is not encrypted: whoever is on the way reads and changes "
        "all that is recorded. Put `?sslmode=verify-full&sslrootcert=FILE` behind the address of the "
        "database, with the certificate of its authority, or `?sslmode=disable` where that is meant."
    )


def _on_a_network(store: Database) -> str | None:
    kind = network_file_system(store.path) if store.is_sqlite else None
    if kind is None:
        return None
    return (
        f"The database `{store.path}` lies on a network file system ({kind}). Two machines that use it, also "
        "for the moment in which a new service begins before the old one has ended, destroy it. Put the data "
        "folder on a local disk, or use PostgreSQL; until then see that the old one has ended first."
    )


def _few_addresses() -> str | None:
    """Such a limit is met at any place, also where a thread begins, for which Python then waits for ever."""
    if os.name == "nt":
        return None
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY or limit >= MANY_ADDRESSES:
        return None
    return (
        f"This process may have {limit >> 20} MiB of addresses only (`ulimit -v`, `LimitAS=` of systemd). "
        "Where they run out it ends, or stands still until it is started again. Lift that limit; what bounds "
        "memory is `MemoryMax=` of systemd, or the limit of a container."
    )


def _unheeded(settings: Settings, store: Database) -> list[str]:
    """That what a setting says of the first admin and key is not so any more: who changes one may think that
    it takes the place of what became known, which goes on being good."""
    notes = []
    email = settings.admin_email or DEFAULT_EMAIL
    login = store.read_here(accounts.find_login, email)
    if login is None and settings.admin_email:
        notes.append(
            f"GOVERNANCE_ADMIN_EMAIL names nobody here: it was for the first start. Make `{email}` with "
            "`governance users add`, or leave the setting out."
        )
    elif (
        login is not None
        and settings.admin_password
        and not passwords.matches(login[1], settings.admin_password)
    ):
        notes.append(
            f"GOVERNANCE_ADMIN_PASSWORD is not the password of `{email}`, and does not change it: it was for "
            "the first start. Use `governance users password`, or leave the setting out."
        )
    if settings.api_key and key_digest(settings.api_key) not in store.read_here(accounts.active_keys)[1]:
        notes.append(
            "GOVERNANCE_API_KEY is no API key in force, and makes none nor revokes one: it was for the first "
            "start. Use `governance keys rotate`, or leave the setting out."
        )
    return notes


def _make(
    transaction: Transaction,
    settings: Settings,
    email: str | None,
    password: str | None,
    hashed: str | None,
) -> FirstStart:
    made: dict[str, Any] = {}
    if accounts.organisation(ORGANISATION) is None:
        accounts.add_organisation(transaction, ORGANISATION, "Default", ACTOR)
    if email is not None and hashed is not None and accounts.count_admins(ORGANISATION) == 0:
        user = accounts.add_user(transaction, ORGANISATION, email, "admin", hashed, ACTOR)
        if user is None:
            raise SettingsError(
                f"GOVERNANCE_ADMIN_EMAIL: `{email}` is the e-mail of a user who is no admin; "
                f"make them one with `governance users role {email} admin`"
            )
        made["admin_email"] = user["email"]
        made["admin_password"] = None if settings.admin_password else password
    if accounts.count_keys() == 0:
        key = settings.api_key or new_key()
        accounts.add_key(
            transaction, ORGANISATION, "first agent key", key_digest(key), key_prefix(key), ACTOR
        )
        made["made_key"] = True
        made["api_key"] = None if settings.api_key else key
    return FirstStart(**made)
