#!/usr/bin/env python3
"""What a cluster costs as it grows: idle, and for each write, by data centers, partitions, keyspaces and protocol.

    examples/growing/measure.py [PROGRAM]          # PROGRAM: target/release/rheostat

Clusters of processes run on this machine, one after the other, with their data in a temporary folder. Each is left alone until it is quiet, and watched
for 20 s. Then it is kept awake by two writes a second, and watched for 10 s. Then it gets 20,000 writes of 100 bytes at one data center, in
pipelines of 50; what all nodes do meanwhile is counted, heartbeats included. Processor time is that of the processes, so other load on the machine moves
it less than a clock would be moved.
"""

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

PROGRAM = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "target/release/rheostat")
PORT = 28600
WRITES = 20_000
PIPELINE = 50
TICKS = os.sysconf("SC_CLK_TCK")

# Data centers, nodes in each, partitions, keyspaces, protocol, replicas.
SHAPES = [
    (1, 1, 1, 1, "causal", 1),
    (2, 1, 4, 1, "causal", 1),
    (3, 1, 4, 1, "causal", 1),
    (5, 1, 4, 1, "causal", 1),
    (10, 1, 4, 1, "causal", 1),
    (3, 1, 16, 1, "causal", 1),
    (3, 1, 64, 1, "causal", 1),
    (3, 1, 64, 4, "causal", 1),
    (3, 1, 4, 1, "eventual", 1),
    (3, 1, 4, 1, "cops", 1),
    (3, 1, 4, 1, "strong", 1),
    (3, 1, 4, 1, "staged", 1),
    (3, 3, 6, 1, "causal", 1),
    (3, 3, 6, 1, "causal", 3),
]


def describe(folder, shape):
    data_centers, nodes, partitions, keyspaces, protocol, replicas = shape
    lines = ['cluster = "growing"', f"partitions = {partitions}", f"base_port = {PORT}", 'folder = "nodes"']
    for number in range(data_centers):
        lines += ["[[data_center]]", f'name = "dc{number}"', f"nodes = {nodes}"]
    for number in range(keyspaces):
        lines += ["[[keyspace]]", f'name = "k{number}"', f'protocol = "{protocol}"']
        lines += [f"replicas = {replicas}"] if replicas > 1 else []
    path = os.path.join(folder, "cluster.toml")
    with open(path, "w") as file:
        file.write("\n".join(lines) + "\n")
    return path


def cluster(verb, path):
    done = subprocess.run([PROGRAM, "ctl", "cluster", verb, path], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"ctl cluster {verb}: {done.stderr}")


class Cluster:
    """The processes of a cluster, and what they have used."""

    def __init__(self, folder, shape):
        self.count = shape[0] * shape[1]
        nodes = os.path.join(folder, "nodes")
        names = sorted(os.listdir(nodes))
        self.pids = [int(open(os.path.join(nodes, name, "pid")).read().split()[0]) for name in names]

    def used(self):
        """Seconds of processor time, frames and bytes sent to other nodes, of all processes together."""
        seconds = 0.0
        for pid in self.pids:
            fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
            seconds += (int(fields[11]) + int(fields[12])) / TICKS
        frames = sent = 0.0
        for number in range(self.count):
            page = urllib.request.urlopen(f"http://127.0.0.1:{PORT + 10 * number + 2}/metrics", timeout=10).read().decode()
            total = lambda name: sum(float(value) for value in re.findall(rf"^{name}{{[^}}]*}} (\S+)$", page, re.M))
            frames += total("rheostat_peer_sent_frames_total")
            sent += total("rheostat_peer_sent_bytes_total")
        return seconds, frames, sent

    def resident_mb(self):
        """Resident pages of all processes, in MB."""
        return sum(int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{pid}/status").read()).group(1)) for pid in self.pids) / 1024


def write(count, pipeline):
    """Writes at the first node."""
    with socket.create_connection(("127.0.0.1", PORT), timeout=30) as connection:
        answers = connection.makefile("rb")
        value = b"x" * 100
        for first in range(0, count, pipeline):
            connection.sendall(b"".join(b"SET key%d %b\r\n" % (number % 1000, value) for number in range(first, first + pipeline)))
            for _ in range(pipeline):
                answer = answers.readline()
                if not answer.startswith(b"+OK"):
                    sys.exit(f"a write was answered with {answer!r}")


def rate(before, after, seconds):
    return [(late - early) / seconds for late, early in zip(after, before)]


def main():
    print("| data centers | nodes in each | partitions | keyspaces | protocol | replicas | MB resident, a node | idle: % of a core, a node | idle: KB/s sent, a node "
          "| awake: % of a core, a node | awake: KB/s sent, a node | a write: processor time, all nodes | a write: bytes sent, all nodes |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for shape in SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            path = describe(folder, shape)
            cluster("up", path)
            try:
                running = Cluster(folder, shape)
                time.sleep(8)
                before = running.used()
                time.sleep(20)
                idle = rate(before, running.used(), 20)
                resident = running.resident_mb() / running.count
                write(1, 1)
                before = running.used()
                for _ in range(20):
                    write(1, 1)
                    time.sleep(0.5)
                awake = rate(before, running.used(), 10)
                before = running.used()
                write(WRITES, PIPELINE)
                time.sleep(0.2)
                cost = rate(before, running.used(), WRITES)
            finally:
                cluster("down", path)
        a_node = lambda used: f"{used[0] / running.count * 100:.2f} | {used[2] / running.count / 1000:.1f}"
        print(f"| {' | '.join(str(part) for part in shape)} | {resident:.0f} | {a_node(idle)} | {a_node(awake)} | {cost[0] * 1e6:.1f} us | {cost[2]:.0f} |", flush=True)


main()
