#!/usr/bin/env python3
"""How long walks over keys take that are on disk only: walk.py PROGRAM [BUDGET_MB] [KEYS] [BYTES]

Starts one node with limits.memory_bytes = BUDGET_MB, in a folder that goes afterwards, and writes KEYS values of BYTES. Then it asks for DBSIZE twice, and walks over all keys by SCAN with
COUNT 1000. An answer is waited for 100 s."""
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import one_node  # noqa: E402

options = one_node.options(__doc__, budget_mb=64, keys=200_000, bytes=300)


def scan(replies, connection):
    cursor, found = b"0", 0
    while True:
        connection.sendall(b"SCAN %s COUNT 1000\r\n" % cursor)
        assert replies.readline() == b"*2\r\n"
        replies.readline()
        cursor = replies.readline().strip()
        count = int(replies.readline()[1:])
        for _ in range(2 * count):
            replies.readline()
        found += count
        if cursor == b"0":
            return found


def dbsize(replies, connection):
    connection.sendall(b"DBSIZE\r\n")
    return int(replies.readline()[1:])


with one_node.Node(options.program) as node:
    node.start("partitions = 2", f"[limits]\nmemory_bytes = {options.budget_mb << 20}")
    began = time.time()
    for _ in one_node.write(node.connect(), options.keys, b"x" * options.bytes, 1000):
        pass
    print(f"{options.keys} keys written in {time.time() - began:.1f} s")
    time.sleep(4)
    connection = node.connect()
    connection.settimeout(100)
    replies = connection.makefile("rb", 1 << 16)
    for name, walk in [("DBSIZE", dbsize), ("DBSIZE", dbsize), ("SCAN", scan)]:
        began = time.time()
        try:
            print(f"{name}: {walk(replies, connection)} keys in {time.time() - began:.2f} s", flush=True)
        except TimeoutError:
            raise SystemExit(f"{name}: no answer within 100 s")
