"""The worker of sidecar.yaml: one of its replicas at a time makes a report, and another continues if it dies."""
import os
import time

from leasehold import Agent, Lost

agent = Agent(os.environ.get("LEASEHOLD_AGENT", "http://localhost:7474"))
while True:
    try:
        with agent.lock("report") as hold:
            for part in range(10):
                hold.check()
                print("part", part, "with token", hold.token)
                time.sleep(1)  # the work
    except (Lost, OSError) as e:
        print("again in a second:", e)
        time.sleep(1)
