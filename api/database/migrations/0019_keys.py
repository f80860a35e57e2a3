"""When keys end by themselves, and when they were last used."""


def up(migrator, db):  # type: ignore[no-untyped-def]
    there = {column.name for column in db.get_columns("api_keys")}
    for name in ("expires_at", "last_used_at"):
        if name not in there:
            db.execute_sql(f"ALTER TABLE api_keys ADD COLUMN {name} TEXT")
