"""An agent that lives until it is killed: asks, writes down what it was told, does it, reports it.

    python -m tests.faults.client_agent RUN LEDGER

A line of the ledger stands for a tool that ran, or was refused; it is written before the next call is asked
about, in one write, so that a killed agent leaves whole lines.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time

from governance_client import AgentRun, Governance

THREADS = 3


def work(run: AgentRun, ledger: int, first: bool) -> None:
    # One thread alone wires, always the same, so that its lines are in the order of its knowledge.
    tools = ("read", "read", "pay", "wire") if first else ("read", "write")
    while True:
        tool = random.choice(tools)
        payload = {} if tool == "wire" else {"number": random.randrange(5)}
        decision = run.check(tool, payload, wait=False)
        told = {"call": decision.tool_call_id, "tool": tool, "status": decision.status}
        line = json.dumps({**told, "run": run.run_id, "offline": decision.decided_offline})
        os.write(ledger, line.encode() + b"\n")
        if decision.allowed:
            run.completed(decision, {"done": tool})
        time.sleep(random.uniform(0, 0.01))


def main() -> None:
    run_id, path = sys.argv[1:]
    ledger = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    run = Governance.from_env().run("outlive them", run_id=run_id).begin()
    for number in range(THREADS):
        threading.Thread(target=work, args=(run, ledger, number == 0)).start()


if __name__ == "__main__":
    main()
