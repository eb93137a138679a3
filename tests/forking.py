"""Programs as processes of their own that need not import anything: forks of one process that has done so."""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from tests.waiting import PATIENCE

IMPORTS = """
import jax
import loaderx.cli, loaderx.loader
import loaderx.commands.conversion, loaderx.commands.outputs, loaderx.commands.sheet, loaderx.commands.stages
"""
# Every connection begins a program. Its process is the child of one that reports the id of it and, in the end, its
# status. It becomes the main program of its process, and ends as any other.
SERVER = """
import builtins, faulthandler, json, os, select, signal, socket, sys, warnings

def receive(connection):
    message, files = b"", []
    while not message.endswith(b"\\n"):
        part, more, _, _ = socket.recv_fds(connection, 1 << 16, 4)
        message, files = message + part, files + more
    return json.loads(message), files

def serve(server):
    reporting = []
    # Until whoever started this process closes its standard input, or ends.
    while select.select([server, 0], [], [])[0] == [server]:
        connection, _ = server.accept()
        order, files = receive(connection)
        connection.close()
        reporting.append(os.fork())
        if reporting[-1] == 0:
            server.close()
            return report(order, files)
        for file in files:
            os.close(file)
        reporting = [each for each in reporting if os.waitpid(each, os.WNOHANG) == (0, 0)]
    for each in reporting:
        os.waitpid(each, 0)
    sys.exit()

def report(order, files):
    *streams, report = files
    child = os.fork()
    if child == 0:
        os.close(report)
        return order, streams
    for stream in streams:
        os.close(stream)
    os.write(report, b"%d\\n" % child)
    _, status = os.waitpid(child, 0)
    os.write(report, b"%d\\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)

def become(order, streams):
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)
    sys.stderr = sys.__stderr__ = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    for number in order["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    settings = order["environment"].items() - os.environ.items()
    os.environ.clear()
    os.environ.update(order["environment"])
    # Settings that Python and libraries read when they are started and imported.
    if "PYTHONFAULTHANDLER" in os.environ:
        faulthandler.enable()
    if "PYTHONWARNINGS" in os.environ:
        warnings.simplefilter(os.environ["PYTHONWARNINGS"])
    sys.modules["numba"].core.config.reload_config()
    for name, value in settings:
        if name.startswith("JAX_"):
            sys.modules["jax"].config.update(name.lower(), {"0": False, "1": True}.get(value, value))
    os.chdir(order["cwd"])
    file, text = order["file"], order["program"]
    folders = os.environ.get("PYTHONPATH", "")
    sys.path[:1] = [os.path.dirname(file) if file else order["cwd"], *filter(None, folders.split(os.pathsep))]
    sys.argv[:] = [file or "-c", *order["arguments"]]
    names, code = globals(), compile(text, file or "<string>", "exec")
    own = {"__name__": "__main__", "__builtins__": builtins, **({"__file__": file} if file else {})}
    names.clear()
    names.update(own)
    exec(code, names)

become(*serve(socket.socket(fileno=int(sys.argv[1]))))
"""


class Fork:
    """A process, with those methods of `subprocess.Popen` that tests use."""

    def __init__(self, arguments, streams, report):
        self.args = arguments
        self.stdin, self.stdout, self.stderr = streams
        self._report = report
        self.pid = self._number()
        self.returncode = None

    def _number(self):
        """Return the next line of the report. The lines after it stay in the pipe, for `wait`."""
        line = b""
        while not line.endswith(b"\n"):
            part = os.read(self._report, 1)
            assert part, "the process that forks has ended"
            line += part
        return int(line)

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def poll(self):
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout=None):
        if self.returncode is None:
            if not select.select([self._report], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout)
            self.returncode = self._number()
            os.close(self._report)
        return self.returncode

    def communicate(self, timeout=None):
        """Close standard input, and return all of standard output and standard error."""
        if self.stdin:
            self.stdin.close()
        shown = ["", ""]

        def read(number, stream):
            with stream:
                shown[number] = stream.read()

        streams = [pair for pair in enumerate((self.stdout, self.stderr)) if pair[1]]
        readers = [threading.Thread(target=read, args=pair, daemon=True) for pair in streams]
        for reader in readers:
            reader.start()
        self.wait(timeout)
        for reader in readers:
            reader.join(timeout)
        return tuple(shown)

    def close(self):
        """Kill it if it has not ended, and close its streams."""
        self.kill()
        self.wait()
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream:
                stream.close()


def opened(given, name):
    """Return the stream that a program gets as one of its standard ones, and our end of it if it is a pipe."""
    if hasattr(given, "fileno"):
        return os.dup(given.fileno()), None
    if name != "stdin":
        reading, writing = os.pipe()
        return writing, os.fdopen(reading, encoding="utf-8", errors="replace")
    if given == subprocess.PIPE:
        reading, writing = os.pipe()
        return reading, os.fdopen(writing, "w")
    return os.open(os.devnull, os.O_RDONLY), None


class Server:
    """The process that forks, once it has imported what takes long."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory()
        self.path = str(Path(self._folder.name) / "socket")
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(self.path)
            listening.listen()
            self._process = subprocess.Popen(
                [sys.executable, "-c", IMPORTS + SERVER, str(listening.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[listening.fileno()],
            )

    def close(self):
        """End it."""
        self._process.stdin.close()
        try:
            self._process.wait(10)
        finally:
            self._process.kill()
            self._process.wait()
            self._folder.cleanup()


class Forking:
    """Starts programs as forks of the server at a path."""

    def __init__(self, path):
        self._path = path

    def start(self, program, *arguments, cwd=None, env=None, ignored=(), **streams):
        """Start a program, which is a text or the path of a file.

        `stdin`, `stdout` and `stderr` are open files; without them, no input and pipes.
        """
        file = str(program) if isinstance(program, Path) else ""
        order = {
            "program": program.read_text("utf-8") if file else program,
            "file": file,
            "arguments": [str(argument) for argument in arguments],
            "cwd": str(cwd or Path.cwd()),
            "environment": dict(os.environ if env is None else env),
            "ignored": [int(number) for number in ignored],
        }
        message = json.dumps(order).encode() + b"\n"
        with contextlib.ExitStack() as stack:
            ours, theirs = [], []
            for name in ("stdin", "stdout", "stderr"):
                stream, pipe = opened(streams.get(name), name)
                stack.callback(os.close, stream)
                theirs.append(stream)
                ours.append(pipe)
            report, reporting = os.pipe()
            stack.callback(os.close, reporting)
            connection = stack.enter_context(socket.socket(socket.AF_UNIX))
            connection.connect(self._path)
            sent = socket.send_fds(connection, [message], [*theirs, reporting])
            if sent < len(message):
                connection.sendall(message[sent:])
        return Fork([program, *arguments], ours, report)

    @contextlib.contextmanager
    def started(self, program, *arguments, **options):
        """Start a program, with pipes for its streams, that is ended with the block."""
        process = self.start(program, *arguments, **{"stdin": subprocess.PIPE, **options})
        try:
            yield process
        finally:
            process.close()

    def run(self, program, *arguments, timeout=PATIENCE, **options):
        """Run a program up to its end, and return what `subprocess.run` does."""
        process = self.start(program, *arguments, **options)
        try:
            out, err = process.communicate(timeout)
        finally:
            process.close()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)
