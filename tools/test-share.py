#!/usr/bin/env python3
"""Shows that gvmem share gives up on a process that does not answer, after the seconds of --timeout.

usage: test-share.py GVMEM

Every driver call is traced to a pipe that holds few lines. The process that imports is stopped at its
first call; it cannot be done by then, as its other calls do not fit into the pipe.
"""
import fcntl
import os
import select
import signal
import subprocess
import sys
import tempfile
import time

PATIENCE_S = 60  # half of the default of --timeout
PIPE_BYTES = 4096  # an import of 64 chunks is traced by more


def parent(process):
    with open(f"/proc/{process}/stat", encoding="ascii") as stat:
        return int(stat.read().rpartition(")")[2].split()[1])


def is_importer(line, master):
    """The line was traced by a process that the master has started."""
    try:
        return parent(int(line.split()[0])) == master
    except (OSError, ValueError, IndexError):  # a thread that has ended
        return False


def main():
    with tempfile.TemporaryDirectory() as folder:
        pipe = os.path.join(folder, "trace")
        os.mkfifo(pipe)
        trace = os.open(pipe, os.O_RDWR | os.O_CLOEXEC)
        fcntl.fcntl(trace, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        command = [sys.argv[1], "share", "-n", "1", "-l", "128M", "-c", "2M", "-t", "1"]
        environment = dict(os.environ, GVMEM_TRACE=pipe)
        master = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        deadline, line, stopped = time.monotonic() + PATIENCE_S, b"", None
        while master.poll() is None:
            if time.monotonic() > deadline:
                master.kill()
                sys.exit("test-share: it waits longer than it was asked to")
            if not select.select([trace], [], [], 0.1)[0]:
                continue
            if stopped is not None:
                os.read(trace, 65536)
                continue
            line += os.read(trace, 1)
            if line.endswith(b"\n"):
                if is_importer(line.decode(), master.pid):
                    stopped = int(line.split()[0])
                    os.kill(stopped, signal.SIGSTOP)
                line = b""
        said = master.stderr.read()
        if stopped is None or master.returncode != 1 or "within 1 seconds" not in said:
            sys.exit(f"test-share: exit status {master.returncode}, process {stopped} was stopped: {said}")


if __name__ == "__main__":
    main()
