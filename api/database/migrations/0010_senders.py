"""A delivery under lease says which sender holds it, so that what a dead one of several held is known."""


def up(migrator, db):  # type: ignore[no-untyped-def]
    if not any(column.name == "leased_by" for column in db.get_columns("deliveries")):
        db.execute_sql("ALTER TABLE deliveries ADD COLUMN leased_by BIGINT")
