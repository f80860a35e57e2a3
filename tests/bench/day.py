"""The service as one would write it in a day, with FastAPI and SQLAlchemy: a peer in the table of rivals.

It does the core of `POST /v1/events` the usual way: a model for the body, a session for each request, objects
for the rows, policies in memory and looped over, an event row, an approval row where a call waits, and a
chained audit row, in one durable transaction. It has no rate limits, webhooks, runs, versions or halts.

It stands alone and imports nothing of the project: it runs in an environment of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from fastapi import Depends, FastAPI, Header, HTTPException
from pydantic import BaseModel
from sqlalchemy import JSON, ForeignKey, String, create_engine, event, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

KEY = os.environ["DAY_KEY"]
POLICIES: list[dict[str, Any]] = json.loads(Path(os.environ["DAY_POLICIES"]).read_text(encoding="utf-8"))

engine = create_engine(f"sqlite:///{os.environ['DAY_DATABASE']}", connect_args={"timeout": 60})
sessions = sessionmaker(engine)
# SQLite has one writer; waiting here costs less than its own retries, and the audit chain needs an order.
writing = threading.Lock()


@event.listens_for(engine, "connect")
def durable(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")


class Base(DeclarativeBase):
    pass


class EventRow(Base):
    __tablename__ = "events"

    event_id: Mapped[str] = mapped_column(String, primary_key=True)
    run_id: Mapped[str] = mapped_column(String, index=True)
    agent_id: Mapped[str] = mapped_column(String)
    event_type: Mapped[str] = mapped_column(String)
    timestamp: Mapped[datetime] = mapped_column()
    body: Mapped[dict[str, Any]] = mapped_column("metadata", JSON)
    answer: Mapped[dict[str, Any]] = mapped_column(JSON)


class ApprovalRow(Base):
    __tablename__ = "approvals"

    approval_id: Mapped[str] = mapped_column(String, primary_key=True)
    event_id: Mapped[str] = mapped_column(ForeignKey("events.event_id"))
    status: Mapped[str] = mapped_column(String)


class AuditRow(Base):
    __tablename__ = "audit"

    number: Mapped[int] = mapped_column(primary_key=True)
    event_id: Mapped[str] = mapped_column(ForeignKey("events.event_id"))
    at: Mapped[datetime] = mapped_column()
    what: Mapped[dict[str, Any]] = mapped_column(JSON)
    digest: Mapped[str] = mapped_column(String)


class Metadata(BaseModel):
    toolCallId: str  # noqa: N815
    toolName: str  # noqa: N815
    inputPayload: dict[str, Any] = {}  # noqa: N815


class Event(BaseModel):
    eventId: str  # noqa: N815
    runId: str  # noqa: N815
    agentId: str  # noqa: N815
    timestamp: datetime
    eventType: str  # noqa: N815
    metadata: Metadata


def session() -> Iterator[Session]:
    with sessions() as each:
        yield each


def matches(condition: dict[str, Any], facts: dict[str, Any]) -> bool:
    value: Any = facts
    for key in condition["field"].split("."):
        value = value.get(key) if isinstance(value, dict) else None
    if condition["operator"] == "equals":
        return bool(value == condition["value"])
    if condition["operator"] == "greater_than":
        return isinstance(value, int | float) and value > condition["value"]
    return False


app = FastAPI()


@app.get("/health")
def health() -> dict[str, str]:
    return {"status": "ok"}


@app.post("/v1/events")
def post_event(
    body: Event, db: Annotated[Session, Depends(session)], x_api_key: Annotated[str, Header()] = ""
) -> dict[str, Any]:
    if x_api_key != KEY:
        raise HTTPException(401, "no valid key")
    facts = body.metadata.model_dump()
    found = [
        policy
        for policy in POLICIES
        if all(matches(condition, facts) for condition in policy["matchConditions"])
    ]
    actions = {policy["action"] for policy in found}
    status = "allowed"
    if "block" in actions:
        status = "blocked"
    elif "require_approval" in actions:
        status = "awaiting_approval"
    answer: dict[str, Any] = {
        "eventId": body.eventId,
        "toolCallStatus": status,
        "matchedPolicies": [policy["name"] for policy in found],
    }
    with writing:
        if (before := db.get(EventRow, body.eventId)) is not None:
            return before.answer
        if status == "awaiting_approval":
            answer["approvalId"] = f"apr_{uuid.uuid4().hex}"
            db.add(
                ApprovalRow(approval_id=answer["approvalId"], event_id=body.eventId, status="pending"),
            )
        db.add(
            EventRow(
                event_id=body.eventId,
                run_id=body.runId,
                agent_id=body.agentId,
                event_type=body.eventType,
                timestamp=body.timestamp,
                body=facts,
                answer=answer,
            )
        )
        last = db.scalars(select(AuditRow.digest).order_by(AuditRow.number.desc()).limit(1)).first() or ""
        digest = hashlib.sha256((last + json.dumps(answer, sort_keys=True)).encode()).hexdigest()
        db.add(AuditRow(event_id=body.eventId, at=datetime.now(UTC), what=answer, digest=digest))
        db.commit()
    return answer


if __name__ == "__main__":
    Base.metadata.create_all(engine)
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ["DAY_PORT"]), access_log=False)
