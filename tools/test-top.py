#!/usr/bin/env python3
"""Runs gvmem top on a pseudo terminal: keys, sizes, signals, and the terminal as it was afterwards.

usage: test-top.py GVMEM [OPTION...]     the options are those of gvmem top
"""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"
SEQUENCE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
PATIENCE_S = 20


class Top:
    """One gvmem top, in a session of its own with the terminal as its controlling one."""

    def __init__(self, arguments, columns=90, lines=24):
        self.output = b""
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
            os.environ["TERM"] = "xterm"
            sys.stdin.readline()  # until the parent has seen the terminal's settings
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the caller may ignore it
            os.execv(arguments[0], arguments)
        self.before = termios.tcgetattr(self.master)
        self.send(b"\n")

    def send(self, data):
        os.write(self.master, data)

    def read(self, timeout_s):
        if not select.select([self.master], [], [], timeout_s)[0]:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:  # the other end is closed
            return False
        self.output += data
        return bool(data)

    def wait_for(self, pattern, what):
        """Forgets what came before the end of the match."""
        deadline = time.monotonic() + PATIENCE_S
        while not (match := re.search(pattern, self.output, re.S)):
            if time.monotonic() > deadline:
                sys.exit(f"test-top: {what}: nothing like {pattern} in {self.output[-600:]}")
            self.read(0.2)
        self.output = self.output[match.end() :]
        return match

    def frame(self, what):
        """One whole screen, as lines."""
        body = self.wait_for(rb"\x1b\[H(.*?q quit.*?\x1b\[0m\x1b\[0m)", what)[1]
        return [SEQUENCE.sub(b"", line).decode("utf-8", "strict") for line in re.split(rb"\r*\n", body)]

    def check_size(self, columns, lines, what):
        shown = self.frame(what)
        if len(shown) != lines or any(len(line) > columns for line in shown):
            sys.exit(f"test-top: {what}: not {lines} lines of {columns} columns: {shown}")
        return shown

    def resize(self, columns, lines):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def check_restored(self, what):
        after = termios.tcgetattr(self.master)
        if after != self.before:
            sys.exit(f"test-top: {what}: the terminal's settings are not what they were")

    def end(self, expected, what):
        deadline = time.monotonic() + PATIENCE_S
        while (done := os.waitpid(self.pid, os.WNOHANG))[0] == 0:
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
                sys.exit(f"test-top: {what}: it does not end")
            self.read(0.05)
        while self.read(0):
            pass
        code = os.waitstatus_to_exitcode(done[1])
        if code != expected:
            sys.exit(f"test-top: {what}: exit status {code}, not {expected}: {self.output[-500:]}")
        if LEAVE not in self.output or ENTER in self.output:
            sys.exit(f"test-top: {what}: the screen is not given back: {self.output[-500:]}")
        self.check_restored(what)
        os.close(self.master)


def run_keys(arguments):
    top = Top(arguments)
    top.wait_for(re.escape(ENTER), "the start")
    shown = top.check_size(90, 24, "the first screen")
    if not shown[0].startswith("gvmem top - up "):
        sys.exit(f"test-top: no title: {shown[0]}")
    if not any("[" in line and line.rstrip().endswith("%") for line in shown):
        sys.exit(f"test-top: no bar: {shown}")
    for key, text in (b"n", b"\\(name\\)"), (b"w", b"\\(waiting\\)"), (b"s", b"\\(device bytes\\)"), (b"a", b"\\(acquires/s\\)"):
        top.send(key)
        top.wait_for(text, f"key {key}")
    top.send(b"h")
    top.wait_for(rb"sort by bytes on the device", "help")
    top.send(b"h")
    top.wait_for(rb"OBJECT", "no help")
    for columns, lines in (40, 10), (200, 60), (1, 1), (90, 24):
        top.resize(columns, lines)
        if columns > 1:
            top.wait_for(rb"\x1b\[H(?:[^\n]*\n){%d}[^\n]*q quit" % (lines - 1), f"{columns} x {lines}")
    top.send(b"q")
    top.end(0, "q")


def run_signals(arguments):
    for number in signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGSEGV:
        top = Top(arguments)
        top.frame("the first screen")
        os.kill(top.pid, number)
        top.end(-number, number.name)
    top = Top(arguments)
    top.frame("the first screen")
    top.send(b"\x03")
    top.end(-signal.SIGINT, "Ctrl-C")


def run_stop(arguments):
    """By the signal: a shell's job control is missing here, and the kernel stops no orphans."""
    top = Top(arguments)
    top.frame("the first screen")
    os.kill(top.pid, signal.SIGTSTP)
    top.wait_for(re.escape(LEAVE), "the stop")
    _, status = os.waitpid(top.pid, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        sys.exit("test-top: it did not stop")
    top.check_restored("stopped")
    os.kill(top.pid, signal.SIGCONT)
    top.wait_for(re.escape(ENTER), "going on")
    top.frame("the screen after going on")
    top.send(b"q")
    top.end(0, "q after going on")


def main():
    arguments = [sys.argv[1], "top", *sys.argv[2:]]
    run_keys([*arguments, "-d", "0.3"])
    run_signals(arguments)
    run_stop(arguments)


if __name__ == "__main__":
    main()
