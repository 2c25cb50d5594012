"""A client of PostgreSQL's protocol (version 3, over the server's own socket, without a password).

Statements are sent and their answers taken apart from each other, so that one program can have several
sessions at work; rows stay the bytes that came, which is all that comparing them needs.
"""
import select
import socket
import struct
import time

ANSWER_S = 120


class Lost(Exception):
    """The server has closed the connection, or says nothing."""


class Result:
    """What one statement gave."""

    def __init__(self):
        self.tag = ""
        self.columns = []  # (name, type)
        self.rows = []  # the bytes of DataRow messages, or lines of COPY TO


class Reply:
    """What came for a string of statements: results of those that succeeded, and the error, if any."""

    def __init__(self):
        self.results = []
        self.state = None  # SQLSTATE
        self.message = ""
        self.status = "I"  # of the transaction: I(dle), T, E(failed)

    def __str__(self):
        if self.state:
            return f"{self.state} {self.message}"
        return "; ".join(f"{r.tag}, {len(r.rows)} rows" if r.rows else r.tag for r in self.results)


def fields(row):
    """The values of a DataRow, as text; None: NULL."""
    (count,) = struct.unpack_from(">H", row)
    at, values = 2, []
    for _ in range(count):
        (length,) = struct.unpack_from(">i", row, at)
        at += 4
        values.append(None if length < 0 else row[at : at + length].decode("utf8", "replace"))
        at += max(length, 0)
    return values


class Connection:
    def __init__(self, path, user, database):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(path)
        self.buffer = bytearray()
        self.reply = None
        self.result = None
        self.copy_data = None
        start = b"".join(f"{k}\0{v}\0".encode() for k, v in (("user", user), ("database", database), ("client_encoding", "UTF8")))
        self.socket.sendall(struct.pack(">II", len(start) + 9, 196608) + start + b"\0")
        self.pid = 0
        self._expect_reply()
        if self.receive().state:
            raise Lost(f"cannot connect: {self.reply.message}")

    def close(self):
        self.socket.close()

    def send(self, text, copy_data=None):
        """Statements; copy_data: what a COPY FROM STDIN among them gets, None to break it off."""
        data = text.encode() + b"\0"
        self.copy_data = copy_data
        self._expect_reply()
        try:
            self.socket.sendall(b"Q" + struct.pack(">I", len(data) + 4) + data)
        except OSError as error:
            raise Lost(str(error)) from error

    def receive(self):
        """The reply to what was sent last."""
        deadline = time.monotonic() + ANSWER_S
        while not self.answered(max(deadline - time.monotonic(), 0)):
            if time.monotonic() >= deadline:
                raise Lost(f"no answer within {ANSWER_S} s")
        return self.reply

    def ask(self, text):
        self.send(text)
        return self.receive()

    def answered(self, wait_s=0.0):
        """Whether the whole reply is here, after taking what came within that time."""
        while not self.complete:
            if not select.select([self.socket], [], [], wait_s)[0]:
                return False
            try:
                data = self.socket.recv(1 << 18)
            except OSError as error:
                raise Lost(str(error)) from error
            if not data:
                raise Lost(self.reply.message or "the connection was closed")
            self.buffer += data
            self._take_messages()
        return True

    def _expect_reply(self):
        self.reply = Reply()
        self.result = Result()
        self.complete = False

    def _take_messages(self):
        at, buffer = 0, self.buffer
        while len(buffer) - at >= 5:
            (length,) = struct.unpack_from(">I", buffer, at + 1)
            if len(buffer) - at < length + 1:
                break
            self._take(buffer[at], bytes(buffer[at + 5 : at + 1 + length]))
            at += length + 1
        del buffer[:at]

    def _take(self, kind, body):
        if kind in b"Dd":
            self.result.rows.append(body)
        elif kind == ord("C"):
            self.result.tag = body[:-1].decode()
            self._end_result()
        elif kind == ord("I"):
            self._end_result()
        elif kind == ord("T"):
            self.result.columns = list(columns(body))
        elif kind == ord("E"):
            parts = {part[:1]: part[1:].decode("utf8", "replace") for part in body.split(b"\0") if part}
            self.reply.state, self.reply.message = parts[b"C"], parts[b"M"]
        elif kind == ord("Z"):
            self.reply.status = body.decode()
            self.complete = True
        elif kind == ord("K"):
            (self.pid,) = struct.unpack_from(">I", body)
        elif kind == ord("G"):
            self._copy_in()

    def _end_result(self):
        self.reply.results.append(self.result)
        self.result = Result()

    def _copy_in(self):
        if self.copy_data is None:
            self.socket.sendall(b"f" + struct.pack(">I", 5) + b"\0")
            return
        data = self.copy_data.encode()
        # In pieces, which need not end where lines do.
        for at in range(0, len(data), 1000):
            piece = data[at : at + 1000]
            self.socket.sendall(b"d" + struct.pack(">I", len(piece) + 4) + piece)
        self.socket.sendall(b"c" + struct.pack(">I", 4))


def columns(body):
    at = 2
    for _ in range(struct.unpack_from(">H", body)[0]):
        end = body.index(0, at)
        yield body[at:end].decode(), struct.unpack_from(">I", body, end + 7)[0]
        at = end + 19
