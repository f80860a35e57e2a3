"""The background task that reads on in the log, for as long as the process serves."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from api.alerts.detection import Detection
from api.database.connection import Database
from api.database.outage import Outage
from api.database.writer import Writer
from api.store.alerts.log_reader import Overtaken

EVERY_SECONDS: Final = 1.0
BATCH_PAUSE: Final = 0.005
"""Between two parts of a step, for everybody else."""
MOST_OF_A_STEP: Final = 5_000
"""Records that are read before what they lead to is kept."""


async def keep_watching(detection: Detection, store: Database, writer: Writer) -> None:
    """For ever."""
    outage = Outage("the watch of the detectors")
    behind = False
    while True:
        await asyncio.sleep(BATCH_PAUSE if behind else EVERY_SECONDS)
        behind = False
        try:
            behind = await take_step(detection, store, writer)
        except Overtaken:
            detection.forget()
        except Exception as error:
            detection.forget()
            outage.met(error)
        else:
            outage.over()


async def take_step(detection: Detection, store: Database, writer: Writer) -> bool:
    """Read on and keep what it leads to; returns whether there is more."""
    step = await store.read(detection.begin)
    if step is None:
        return False
    while step.behind and step.read < MOST_OF_A_STEP and not step.is_full:
        await asyncio.sleep(BATCH_PAUSE)
        await store.read(detection.read_on, step)
    await store.read(detection.count, step)
    if not step.is_empty:
        await writer.write(partial(detection.keep, step))
        detection.kept(step)
    return step.behind
