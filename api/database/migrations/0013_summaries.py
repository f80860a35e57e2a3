"""What a held call is about, for lists of approvals."""


def up(migrator, db):  # type: ignore[no-untyped-def]
    if not any(column.name == "about" for column in db.get_columns("approvals")):
        db.execute_sql("ALTER TABLE approvals ADD COLUMN about TEXT")
