"""Test programs in processes that need not import the library: forks of a process that has imported it."""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

# It forks for every message, and answers by the id of that process and then, once it has ended, by its status. A fork
# becomes the main program of its process, and ends as any other.
SERVER = """
import json, os, signal, socket, sys
import loaderx.cli, loaderx.loader
import loaderx.commands.conversion, loaderx.commands.outputs, loaderx.commands.sheet, loaderx.commands.stages
server = socket.socket(fileno=int(sys.argv[1]))
while True:
    message, streams = b"", []
    while not message.endswith(b"\\n"):
        part, more, _, _ = socket.recv_fds(server, 1 << 16, 3)
        if not part:
            sys.exit()
        message, streams = message + part, streams + more
    child = os.fork()
    if child == 0:
        break
    for stream in streams:
        os.close(stream)
    server.sendall(b"%d\\n" % child)
    _, status = os.waitpid(child, 0)
    server.sendall(b"%d\\n" % os.waitstatus_to_exitcode(status))
server.close()
for number, stream in enumerate(streams):
    os.dup2(stream, number)
    os.close(stream)
sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)
sys.stderr = sys.__stderr__ = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)
order = json.loads(message)
for number in order["ignored"]:
    signal.signal(number, signal.SIG_IGN)
os.chdir(order["cwd"])
sys.path[0] = order["cwd"]
sys.argv[1:] = order["arguments"]
exec(order["program"])
"""


class Fork:
    """Process, with those methods of `subprocess.Popen` that tests use."""

    def __init__(self, server, streams):
        self._server = server
        self.stdin, self.stdout, self.stderr = streams
        self.pid = self._number()
        self.returncode = None

    def _number(self):
        """Return the next line of the process that forks. Later lines stay in the socket, for `poll`."""
        line = b""
        while not line.endswith(b"\n"):
            part = self._server.recv(1)
            assert part, "the process that forks has ended"
            line += part
        return int(line)

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def poll(self):
        if self.returncode is None and select.select([self._server], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self):
        if self.returncode is None:
            self.returncode = self._number()
        return self.returncode

    def communicate(self):
        """Close standard input, and return all of standard output and standard error."""
        self.stdin.close()
        shown = self.stdout.read(), self.stderr.read()
        self.wait()
        return shown


class Forking:
    """Process that forks. Of its forks one lives at a time."""

    def __init__(self):
        self._ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", SERVER, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def close(self):
        """End the process that forks."""
        self._ours.close()
        try:
            self._process.wait(10)
        finally:
            self._process.kill()
            self._process.wait()

    @contextlib.contextmanager
    def started(self, program, *arguments, ignored=()):
        """Start a program in the current folder, with pipes for its streams."""
        pipes = [os.pipe() for _ in range(3)]
        ours = [pipes[0][1], pipes[1][0], pipes[2][0]]
        theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
        order = {
            "program": program,
            "arguments": [str(argument) for argument in arguments],
            "cwd": str(Path.cwd()),
            "ignored": [int(number) for number in ignored],
        }
        message = json.dumps(order).encode() + b"\n"
        sent = socket.send_fds(self._ours, [message], theirs)
        self._ours.sendall(message[sent:])
        for stream in theirs:
            os.close(stream)
        streams = [os.fdopen(stream, mode) for stream, mode in zip(ours, "wrr", strict=True)]
        process = Fork(self._ours, streams)
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            for stream in streams:
                stream.close()

    def run(self, program, *arguments):
        """Run a program up to its end, and return what `subprocess.run` does."""
        with self.started(program, *arguments) as process:
            out, err = process.communicate()
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)
