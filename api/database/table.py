"""What all tables have in common: the one database of the process."""

from __future__ import annotations

from peewee import DatabaseProxy, Model

database = DatabaseProxy()


class Table(Model):
    class Meta:
        database = database
        legacy_table_names = False
