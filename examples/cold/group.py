#!/usr/bin/env python3
"""Whether a node holds in a small container: group.py PROGRAM [GROUP_MB] [KEYS] [BYTES]

Makes a control group with a limit of memory, which is mostly root's to make, and starts one node in it with the default configuration, so that its budget is three quarters of that. Writes
KEYS values of BYTES, kills the node, starts it again and reads each seventh. The system kills the node if it has more than the group's memory; then this says so."""
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import one_node  # noqa: E402

options = one_node.options(__doc__, group_mb=96, keys=30_000, bytes=4000)

HIERARCHIES = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")]
above, limit = next((at, name) for at, name in HIERARCHIES if os.path.isdir(at) or at == HIERARCHIES[-1][0])
group = f"{above}/rheostat-{os.getpid()}"
try:
    os.mkdir(group)
except OSError as error:
    raise SystemExit(f"no control group can be made here: {error}")
try:
    try:
        with open(f"{group}/{limit}", "r+") as file:
            file.write(str(options.group_mb << 20))
    except OSError as error:
        raise SystemExit(f"the control group cannot be given a limit: {error}")
    with one_node.Node(options.program, group=group) as node:
        try:
            node.start("partitions = 2")
            began, refused = time.time(), 0
            for _, refused in one_node.write(node.connect(), options.keys, b"x" * options.bytes, 200):
                pass
            print(f"{options.keys} values written in {time.time() - began:.1f} s, {refused} times refused; {node.resident_mb()} MB resident", flush=True)
            node.kill()
            print(f"answers after {node.start('partitions = 2'):.1f} s; {node.resident_mb()} MB resident", flush=True)
            connection = node.connect()
            replies = connection.makefile("rb", 1 << 16)
            for key in range(0, options.keys, 7):
                connection.sendall(b"GET key:%d\r\n" % key)
                assert replies.readline() == b"$%d\r\n" % options.bytes, f"key {key} is lost"
                replies.read(options.bytes + 2)
            print(f"each seventh is there; {node.resident_mb()} MB resident")
        except (OSError, SystemExit) as error:
            time.sleep(0.2)
            if node.process.poll() is None:
                raise
            raise SystemExit(f"{error}\nthe node has ended: {node.process.returncode} (-9: killed by the system)")
finally:
    time.sleep(0.2)
    os.rmdir(group)
