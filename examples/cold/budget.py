#!/usr/bin/env python3
"""Whether a node with little memory takes more data than fits: budget.py PROGRAM [BUDGET_MB] [DATA_MB] [SECONDS]

Starts one node with limits.memory_bytes = BUDGET_MB, in a folder that goes afterwards, and writes values of 1000 bytes in pipelines of 500. What is refused with BUSY is sent again after
50 ms. Says each two seconds how much is left, how often a write was refused, and what the process has resident; and in the end how long it took."""
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import one_node  # noqa: E402

VALUE = b"x" * 1000
PIPELINE = 500

options = one_node.options(__doc__, budget_mb=128, data_mb=400, seconds=120)

with one_node.Node(options.program) as node:
    node.start("partitions = 2", f"[limits]\nmemory_bytes = {options.budget_mb << 20}")
    keys, left, refused, most = options.data_mb * 1000, options.data_mb * 1000, 0, 0
    began = told = time.time()
    for left, refused in one_node.write(node.connect(), keys, VALUE, PIPELINE):
        if time.time() - told > 2:
            told, now = time.time(), node.resident_mb()
            most = max(most, now)
            print(f"{told - began:5.1f} s: {left:7} left, {refused:7} refused, {now} MB resident", flush=True)
        if time.time() - began > options.seconds:
            break
    most = max(most, node.resident_mb())
    words = "written" if not left else f"NOT written: {left} keys are left"
    print(f"{options.data_mb} MB {words} in {time.time() - began:.1f} s, {refused} times refused, {most} MB resident at most")
