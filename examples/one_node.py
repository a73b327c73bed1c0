"""One node on loopback, in a folder that goes afterwards: what the measuring scripts beside this file share."""
import argparse
import os
import signal
import socket
import subprocess
import tempfile
import time


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def options(about, **numbers):
    """What the command line says: the program, and numbers in this order with these defaults. `about` is the script's own account of itself."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    for name, default in numbers.items():
        parser.add_argument(name, type=int, nargs="?", default=default)
    return parser.parse_args()


def write(connection, keys, value, pipeline):
    """Writes `value` to the numbered keys, in pipelines; what is refused with BUSY is sent again after 50 ms. Yields after each pipeline how many keys are left, and how often one was refused."""
    replies = connection.makefile("rb", 1 << 16)
    left, refused = list(range(keys)), 0
    while left:
        some, left = left[:pipeline], left[pipeline:]
        names = [b"key:%d" % key for key in some]
        connection.sendall(b"".join(b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n" % (len(name), name, len(value), value) for name in names))
        again = []
        for key in some:
            reply = replies.readline()
            if reply.startswith(b"-BUSY"):
                again.append(key)
            elif reply != b"+OK\r\n":
                raise ConnectionError(f"key {key} was answered {reply[:200]!r}")
        refused += len(again)
        left = again + left
        yield len(left), refused
        if again:
            time.sleep(0.05)


class Node:
    """Stops with its `with` block. `resp` is its port, `admin` that of its metrics, `grpc` that of `rheostat ctl`. In the control group whose folder is `group`, if it is given."""

    def __init__(self, program, protocol="causal", group=None):
        self.program, self.protocol, self.group, self.owner = os.path.abspath(program), protocol, group, os.getpid()
        self.resp, self.admin, self.grpc = free_port(), free_port(), free_port()
        self.folder = tempfile.TemporaryDirectory()
        self.process = None

    def start(self, settings, more=""):
        """Starts it with a keyspace of its protocol; `settings` are the file's first keys, `more` its last tables. Returns after how many seconds it answers."""
        config = os.path.join(self.folder.name, "node.toml")
        with open(config, "w") as file:
            file.write(
                f'cluster = "measured"\nnode = "a"\ndata_center = "here"\ndata_dir = "{self.folder.name}/data"\n{settings}\n'
                f'[listen]\nresp = "127.0.0.1:{self.resp}"\nadmin = "127.0.0.1:{self.admin}"\ngrpc = "127.0.0.1:{self.grpc}"\n'
                f'[[keyspace]]\nname = "default"\nprotocol = "{self.protocol}"\n{more}\n'
            )
        began = time.time()
        with open(self.path("log"), "a") as log:
            command = [self.program, "serve", "--config", config]
            if self.group:
                command = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', self.group, *command]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self.connect().close()
        return time.time() - began

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def connect(self):
        """A connection on which the node has answered that it serves: while its data are opened it says something else."""
        # Of another process' child nothing can be asked.
        while os.getpid() != self.owner or self.process.poll() is None:
            try:
                connection = socket.create_connection(("127.0.0.1", self.resp), timeout=600)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.sendall(b"PING\r\n")
                if connection.recv(64) == b"+PONG\r\n":
                    return connection
            except OSError:
                pass
            time.sleep(0.01)
        with open(self.path("log")) as log:
            raise SystemExit(log.read())

    def resident_mb(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:")) // 1024

    def disk_mb(self):
        return sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(self.path("data")) for name in names) >> 20

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
                raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        self.folder.cleanup()
