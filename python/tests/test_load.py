"""load(): what arrives in the server's memory. A cursor stands for the server here, and reads it as gvmem/gstore_arrow.h
says; with PostgreSQL it is tested in tests/postgres.
"""
import array
import ctypes
import struct

import numpy
import pytest

import gvmem
from gvmem import _gvmem

SIZES = {"s": "h", "i": "i", "l": "q", "I": "I", "f": "f", "g": "d", "tdD": "i", "ttu": "q", "e": "e", "tsu:": "q", "tsu:UTC": "q"}


def take(data, place, what):
    return data[place[0] : place[0] + place[1]] if place[0] else what


def bit(data, row):
    return bool(data[row // 8] >> row % 8 & 1)


def read_values(format, data, rows):
    if format == "b":
        return [bit(data, row) for row in range(rows)]
    if format.startswith(("w:", "d:")):
        width = int(format[2:]) if format[0] == "w" else 16
        return [bytes(data[width * row : width * (row + 1)]) for row in range(rows)]
    assert len(data) == rows * struct.calcsize(SIZES[format]), "as long as its rows"
    return list(struct.unpack(f"<{rows}{SIZES[format]}", data))


def read_elements(data, format, values, places, count):
    valid = take(data, places[3], None)
    return [None if valid and not bit(valid, i) else value for i, value in enumerate(read_values(format, values, count))]


def read_image(data):
    """{name: (format, [values])}"""
    length, rows, version, count, format, head, column = struct.unpack_from("<QQIIB3xII", data)
    assert (version, format, head, column) == (_gvmem.ARROW_VERSION, ord("a"), 64, 192) and length <= len(data)
    columns = {}
    for i in range(count):
        name, format, element = (text.rstrip(b"\0").decode() for text in struct.unpack_from("<64s16s16s", data, 64 + 192 * i))
        numbers = struct.unpack_from("<9Q", data, 64 + 192 * i + 112)
        places = [numbers[2 * j : 2 * j + 2] for j in range(4)]
        assert all(place[0] % 64 == 0 and sum(place) <= length for place in places)
        validity, values = take(data, places[0], None), take(data, places[2], b"")
        if format == "n":
            found = [None] * rows
        elif format in ("U", "Z", "+L"):
            offsets = struct.unpack(f"<{rows + 1}q", take(data, places[1], b""))
            if format == "+L":
                values = read_elements(data, element, values, places, numbers[8])
            found = [values[offsets[row] : offsets[row + 1]] for row in range(rows)]
            found = [bytes(text).decode() if format == "U" else bytes(text) if format == "Z" else text for text in found]
        elif format.startswith("+w:"):
            width = int(format[3:])
            assert numbers[8] == width * rows
            values = read_elements(data, element, values, places, numbers[8])
            found = [values[width * row : width * (row + 1)] for row in range(rows)]
        else:
            found = read_values(format, values, rows)
        if validity is not None:
            found = [value if bit(validity, row) else None for row, value in enumerate(found)]
        columns[name] = (format + element, found)
    return rows, columns


class Cursor:
    """The server."""

    def __init__(self, keeper):
        self.keeper, self.loaded, self.said, self.fails = keeper, [], [], None
        self.make_row = lambda function, answer: (answer,)
        self.objects = {}

    def cursor(self):
        return self

    def close(self):
        pass

    def execute(self, sql, parameters):
        function = sql.split("(")[0].removeprefix("SELECT ")
        self.said.append(function)
        if function == self.fails:
            raise RuntimeError("the server refuses it")
        if function == "gstore_load_begin":
            token = f"/load/{len(self.said)}"
            self.objects[token] = self.keeper.create(token, parameters[1])
            self.answer = token
        elif function == "gstore_load":
            rows, columns = read_image(self.objects.pop(parameters[1]).copy_out())
            self.loaded.append(columns)
            self.answer = rows
        else:
            assert function == "gstore_revoke" and self.objects.pop(parameters[0])

    def fetchone(self):
        return self.make_row(self.said[-1], self.answer)


@pytest.fixture
def cursor(keeper, server, monkeypatch):
    def open_load(token):
        client = _gvmem.connect(server.path)
        return client, client.open(token, 0)

    monkeypatch.setattr(_gvmem, "open_load", open_load)
    made = Cursor(keeper)
    yield made
    assert made.objects == {}


def load(cursor, **columns):
    rows = gvmem.load(cursor, "t", columns)
    assert len(cursor.loaded) == 1
    for _, values in cursor.loaded[0].values():
        assert len(values) == rows
    return cursor.loaded.pop()


@pytest.mark.parametrize("code, format", [("i2", "s"), ("i4", "i"), ("i8", "l"), ("u4", "I"), ("f4", "f"), ("f8", "g"), ("?", "b")])
@pytest.mark.parametrize("rows", [0, 1, 13, 400000])
def test_array_of_numpy_arrives(cursor, code, format, rows):
    values = numpy.arange(rows).astype(code)
    assert load(cursor, x=values, y=values[::-1]) == {"x": (format, values.tolist()), "y": (format, values[::-1].tolist())}


def test_array_without_numpy_arrives(cursor):
    assert load(cursor, x=array.array("i", [1, -2]), y=(ctypes.c_double * 2)(0.5, 1)) == {"x": ("i", [1, -2]), "y": ("g", [0.5, 1.0])}


def test_array_of_an_object_arrives_by_dlpack_and_buffer(cursor, keeper):
    class Tensor:
        """Without a buffer, as PyTorch's."""

        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **arguments):
            return self.array.__dlpack__(**arguments)

    with keeper.create(None, 1 << 20) as obj:
        obj.copy_in(numpy.arange(4, dtype="f8"))
        with obj.read("f8", 4) as a:
            assert load(cursor, x=a, y=Tensor(a)) == {"x": ("g", [0, 1, 2, 3]), "y": ("g", [0, 1, 2, 3])}
    assert load(cursor, x=Tensor(numpy.arange(3)))["x"] == ("l", [0, 1, 2])
    assert load(cursor, x=Tensor(numpy.arange(0)))["x"] == ("l", [])
    assert load(cursor, x=Tensor(numpy.zeros((0, 16), "u1")), y=Tensor(numpy.zeros((4, 2), "f4")[::-1][:0])) == {"x": ("w:16", []), "y": ("+w:2f", [])}
    with pytest.raises(TypeError, match="2 dimensions"):
        gvmem.load(cursor, "t", {"x": Tensor(numpy.zeros((3, 0), "f4"))})
    with pytest.raises(BufferError, match="not next to each other"):
        gvmem.load(cursor, "t", {"x": Tensor(numpy.arange(6)[::2])})


def test_texts_arrive(cursor):
    texts = ["é", None, "", "long" * 1000, "\U0001f600"]
    assert load(cursor, t=texts, b=[b"a\0", None, b"", b"\xff", b"1"], n=numpy.array(["a", "bc", "", "d", "e"])) == {
        "t": ("U", texts), "b": ("Z", [b"a\0", None, b"", b"\xff", b"1"]), "n": ("U", ["a", "bc", "", "d", "e"])}
    assert load(cursor, t=[None, None])["t"] == ("n", [None, None])
    assert load(cursor, t=[])["t"] == ("U", [])


def test_values_say_more(cursor):
    offsets = numpy.array([0, 2, 2, 5])
    assert load(
        cursor,
        text=gvmem.Values(b"abcde", offsets=offsets, validity=[True, False, True]),
        narrow=gvmem.Values(b"abcde", offsets=offsets.astype("i4"), format="Z"),
        lists=gvmem.Values(numpy.arange(5, dtype="i4"), offsets=offsets),
        flags=gvmem.Values(numpy.array([1, 0, 1, 1, 0], "?"), offsets=offsets),
        nulls=gvmem.Values(numpy.arange(3.0), validity=numpy.array([True, True, False])),
        zoned=gvmem.Values(numpy.arange(3), format="tsu:UTC"),
        uuid=gvmem.Values(numpy.arange(48, dtype="u1").reshape(3, 16)),
        vectors=numpy.arange(6, dtype="f4").reshape(3, 2),
        masked=numpy.ma.masked_array([1, 2, 3], mask=[False, True, False]),
        unmasked=numpy.ma.masked_array([1, 2, 3]),
    ) == {
        "text": ("U", ["ab", None, "cde"]), "narrow": ("Z", [b"ab", b"", b"cde"]), "lists": ("+Li", [[0, 1], [], [2, 3, 4]]),
        "flags": ("+Lb", [[True, False], [], [True, True, False]]), "nulls": ("g", [0.0, 1.0, None]), "zoned": ("tsu:UTC", [0, 1, 2]),
        "uuid": ("w:16", [bytes(range(16 * i, 16 * i + 16)) for i in range(3)]), "vectors": ("+w:2f", [[0, 1], [2, 3], [4, 5]]), "masked": ("l", [1, None, 3]), "unmasked": ("l", [1, 2, 3]),
    }


def test_times_of_numpy_arrive(cursor):
    days = numpy.array(["1970-01-02", "NaT", "1969-12-31"], "M8[D]")
    stamps = numpy.array(["1970-01-01T00:00:01.5", "2000-01-01", "NaT"], "M8[ms]")
    assert load(cursor, d=days, t=stamps, s=stamps[:0:-1].repeat([1, 2]).astype("M8[ns]")) == {
        "d": ("tdD", [1, None, -1]), "t": ("tsu:", [1500000, 946684800000000, None]), "s": ("tsu:", [None, 946684800000000, 946684800000000])}


def test_halves_arrive_wherever_they_are(cursor):
    values = numpy.arange(12, dtype="f2").reshape(3, 4)
    assert load(cursor, a=values, b=values[:, ::2], c=values[::-1], d=numpy.asfortranarray(values)) == {
        "a": ("+w:4e", values.tolist()), "b": ("+w:2e", values[:, ::2].tolist()), "c": ("+w:4e", values[::-1].tolist()),
        "d": ("+w:4e", values.tolist())}


def test_times_that_are_masked_are_null(cursor):
    days = numpy.ma.masked_array(numpy.array([1, 2**40, "NaT", 4], "M8[D]"), mask=[False, True, False, False])
    stamps = numpy.ma.masked_array(numpy.array([1000, 1, 3000, "NaT"], "M8[ns]"), mask=[False, True, True, False])
    bare = numpy.ma.masked_array(numpy.arange(4).astype("M8[s]"))
    far = numpy.ma.masked_array(numpy.array([2**62, 1, 2**62, 2]).view("M8[h]"), mask=[True, False, True, False])
    assert load(cursor, d=days, t=stamps, b=bare, f=far) == {
        "f": ("tsu:", [None, 3600000000, None, 7200000000]),
        "d": ("tdD", [1, None, None, 4]), "t": ("tsu:", [1, None, None, None]), "b": ("tsu:", [0, 1000000, 2000000, 3000000])}


def test_times_without_a_unit_are_null(cursor):
    times = numpy.array(["NaT", "NaT"], "M8")
    assert load(cursor, t=times, m=numpy.ma.masked_array(times, mask=[True, False])) == {"t": ("tsu:", [None, None]), "m": ("tsu:", [None, None])}


@pytest.mark.parametrize("order", "<>")
def test_times_of_either_byte_order_arrive(cursor, order):
    times = numpy.array([1, -2, "NaT"], order + "M8[D]")
    assert load(cursor, d=times, s=times[::-1], t=times.astype(order + "M8[us]")) == {
        "d": ("tdD", [1, -2, None]), "s": ("tdD", [None, -2, 1]), "t": ("tsu:", [86400000000, -172800000000, None])}


@pytest.mark.parametrize("value, unit, text", [
    (2**31, "D", "32 bits"), (-(2**31) - 1, "D", "32 bits"), (2**62, "D", "32 bits"), (2**62, "s", "microseconds"),
    (-(2**61), "h", "microseconds"), (2**60, "W", "microseconds"), (300000, "Y", "microseconds"), (2**60, "M", "microseconds"),
    (1001, "ns", "whole"), (-1, "ns", "whole"), (-(2**63) + 1, "as", "whole"), (1, "10ns", "whole"),
])
def test_time_that_does_not_fit_is_refused(cursor, value, unit, text):
    times = numpy.array([0, value], "i8").view(f"M8[{unit}]")
    with pytest.raises(ValueError, match=f'column "when".*{text}'):
        gvmem.load(cursor, "t", {"when": times})
    assert cursor.said == []


def test_days_at_the_ends_of_32_bits_arrive(cursor):
    assert load(cursor, d=numpy.array([-(2**31), 2**31 - 1]).view("M8[D]")) == {"d": ("tdD", [-(2**31), 2**31 - 1])}


@pytest.mark.parametrize("values", [
    numpy.zeros((2, 2), "M8[s]"), numpy.array("2000-01-01", "M8[D]"),
    [1, 2], ["a", b"b"], [1.5, None], numpy.arange(3, dtype="u8"), numpy.arange(3, dtype="i1"), numpy.arange(3, dtype=">i4"), "text", 5, None, object(),
    numpy.zeros(3, "c8"), numpy.zeros((2, 2, 2)), numpy.zeros((2, 0)), numpy.zeros((2, 2), "?"), numpy.zeros(2, "f2"), numpy.zeros(4, "f2")[::2], numpy.array(5), numpy.array([{}, 1]), numpy.zeros(3, "i4,i4"), {"a": 1},
    gvmem.Values(b"abc", offsets=numpy.array([0.0, 3.0])), gvmem.Values(b"abc", offsets=numpy.array([], "i8")), gvmem.Values(b"abc", offsets=b"abc"),
    gvmem.Values(numpy.arange(3), validity=numpy.array([True])), gvmem.Values(numpy.arange(3), validity=[True] * 9),
    gvmem.Values(numpy.arange(3), validity=numpy.arange(3)), gvmem.Values(numpy.arange(3), format="i"), gvmem.Values(numpy.arange(3), format="nonsense"),
    gvmem.Values(numpy.arange(3), format="w:9"), gvmem.Values(numpy.arange(3), format="w:x"), gvmem.Values(["a"], offsets=numpy.array([0, 1])),
    gvmem.Values(b"abc", offsets=numpy.array([0, 1]), format="nonsense"), gvmem.Values(numpy.arange(3), offsets=numpy.array([0, 1]), format="nonsense"),
    gvmem.Values(numpy.arange(3), offsets=numpy.array([0, 1]), format="i"), gvmem.Values(numpy.array(3), offsets=numpy.array([0, 1])),
])
def test_values_that_are_none_are_refused(cursor, values):
    with pytest.raises((TypeError, ValueError)):
        gvmem.load(cursor, "t", {"x": values})
    assert cursor.said == []


@pytest.mark.parametrize(("dtype", "format"), [
    (">i8", "tsu:"), (">i8", "l"), (">i4", "tdD"), (">i2", "s"), (">f8", "g"), ("f8", "tsu:"), ("f8", "l"), ("i8", "g"), ("f4", "i"), ("i4", "f"),
    ("i2", "e"), ("f2", "s"), ("M8[us]", "tsu:"), ("i8", "w:8"), ("f4", "I"),
    ("u2", "s"), ("u4", "i"), ("u4", "tdD"), ("u8", "l"), ("u8", "ttu"), ("u8", "tsu:"), ("u8", "tsu:UTC"), ("i4", "I"),
])
def test_values_of_another_kind_than_the_format_names_are_refused(cursor, dtype, format):
    array = numpy.zeros(3, dtype)
    for values in (gvmem.Values(array, format=format), gvmem.Values(array, offsets=numpy.array([0, 3]), format=format)):
        with pytest.raises(TypeError, match='column "x"'):
            gvmem.load(cursor, "t", {"x": values})
    assert cursor.said == []


def test_values_of_the_kind_that_the_format_names_arrive(cursor):
    for dtype, format in (("i8", "tsu:"), ("i8", "ttu"), ("i4", "tdD"), ("i4", "i"), ("i2", "s"), ("u4", "I"), ("i8", "l"), ("f8", "g"), ("f4", "f")):
        assert load(cursor, x=gvmem.Values(numpy.arange(3, dtype=dtype), format=format)) == {"x": (format, [0, 1, 2])}
    assert load(cursor, x=gvmem.Values(numpy.array([b"ab", b"c"], "S2"), format="w:2")) == {"x": ("w:2", [b"ab", b"c\0"])}
    assert load(cursor, x=gvmem.Values(numpy.array([]), format="tsu:")) == {"x": ("tsu:", [])}


@pytest.mark.parametrize("connection", [None, "dbname=trades"])
def test_what_is_no_connection_is_refused(connection):
    with pytest.raises(TypeError, match="neither a connection nor a cursor"):
        gvmem.load(connection, "t", {"x": numpy.arange(3)})


def test_columns_that_do_not_fit_are_refused(cursor):
    for columns in ({}, {"a": numpy.arange(3), "b": numpy.arange(4)}, {"x" * 64: numpy.arange(3)}, {"": numpy.arange(3)}, {"a\0": numpy.arange(3)},
                    {f"c{i}": numpy.arange(1) for i in range(1665)}, [1, 2], None, "t"):
        with pytest.raises((TypeError, ValueError)):
            gvmem.load(cursor, "t", columns)
    assert cursor.said == []


def test_token_is_revoked_after_a_failure(cursor, monkeypatch):
    cursor.fails = "gstore_load"
    with pytest.raises(RuntimeError, match="refuses"):
        gvmem.load(cursor, "t", {"x": numpy.arange(3)})
    assert cursor.said == ["gstore_load_begin", "gstore_load", "gstore_revoke"]
    cursor.fails = None
    monkeypatch.setattr(_gvmem, "open_load", lambda token: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        gvmem.load(cursor, "t", {"x": numpy.arange(3)})
    assert cursor.said[3:] == ["gstore_load_begin", "gstore_revoke"]


def test_rows_of_a_cursor_may_be_mappings(cursor):
    cursor.make_row = lambda function, answer: {function: answer}
    assert load(cursor, x=numpy.arange(3)) == {"x": ("l", [0, 1, 2])}
    assert cursor.said == ["gstore_load_begin", "gstore_load"]


def test_token_of_nonsense_is_an_error():
    with pytest.raises(gvmem.errors.Format):
        _gvmem.open_load("gstoreload1:nonsense")


# ---- Apache Arrow's C interfaces, made by hand


class Schema(ctypes.Structure):
    pass


class Array(ctypes.Structure):
    pass


class Stream(ctypes.Structure):
    pass


RELEASE_SCHEMA = ctypes.CFUNCTYPE(None, ctypes.POINTER(Schema))
RELEASE_ARRAY = ctypes.CFUNCTYPE(None, ctypes.POINTER(Array))
RELEASE_STREAM = ctypes.CFUNCTYPE(None, ctypes.POINTER(Stream))
GET_SCHEMA = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Stream), ctypes.POINTER(Schema))
GET_NEXT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Stream), ctypes.POINTER(Array))
GET_ERROR = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.POINTER(Stream))
Schema._fields_ = [("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_char_p), ("flags", ctypes.c_int64),
                   ("n_children", ctypes.c_int64), ("children", ctypes.POINTER(ctypes.POINTER(Schema))), ("dictionary", ctypes.POINTER(Schema)),
                   ("release", RELEASE_SCHEMA), ("private", ctypes.c_void_p)]
Array._fields_ = [("length", ctypes.c_int64), ("null_count", ctypes.c_int64), ("offset", ctypes.c_int64), ("n_buffers", ctypes.c_int64),
                  ("n_children", ctypes.c_int64), ("buffers", ctypes.POINTER(ctypes.c_void_p)), ("children", ctypes.POINTER(ctypes.POINTER(Array))),
                  ("dictionary", ctypes.POINTER(Array)), ("release", RELEASE_ARRAY), ("private", ctypes.c_void_p)]
Stream._fields_ = [("get_schema", GET_SCHEMA), ("get_next", GET_NEXT), ("get_last_error", GET_ERROR), ("release", RELEASE_STREAM),
                   ("private", ctypes.c_void_p)]
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
alive = {}  # what structs point to
released = []


def keep(*things):
    alive[id(things[0])] = things
    return things[0]


def make_pointers(kind, structs):
    return (ctypes.POINTER(kind) * max(1, len(structs)))(*(ctypes.pointer(struct) for struct in structs))


@RELEASE_SCHEMA
def release_schema(schema):
    released.append("schema")
    schema.contents.release = RELEASE_SCHEMA()


@RELEASE_ARRAY
def release_array(array):
    released.append("array")
    array.contents.release = RELEASE_ARRAY()


def make_schema(format, name="", children=(), dictionary=False):
    structs = [make_schema(*child) for child in children]
    pointers = make_pointers(Schema, structs)
    made = Schema(format.encode(), name.encode(), None, 2, len(structs), pointers, None, release_schema)
    if dictionary:
        made.dictionary = ctypes.pointer(make_schema("U"))
    return keep(made, structs, pointers)


def make_array(length, buffers, children=(), offset=0):
    structs, held = [make_array(*child) for child in children], [None if b is None else ctypes.create_string_buffer(bytes(b), max(1, len(bytes(b)))) for b in buffers]
    pointers = make_pointers(Array, structs)
    addresses = (ctypes.c_void_p * max(1, len(held)))(*(None if b is None else ctypes.addressof(b) for b in held))
    return keep(Array(length, -1, offset, len(held), len(structs), addresses, pointers, None, release_array), structs, held, addresses, pointers)


class Arrow:
    """An exporter: a stream of batches."""

    def __init__(self, schema, *arrays, fails=0):
        self.schema, self.arrays, self.fails = schema, list(arrays), fails

    def __arrow_c_stream__(self, requested_schema=None):
        left = list(self.arrays)

        def get_schema(_, out):
            out[0] = make_schema(*self.schema)
            return 0

        def get_next(_, out):
            if self.fails and len(left) <= len(self.arrays) - self.fails:
                return 5
            out[0] = make_array(*left.pop(0)) if left else Array()
            return 0

        callbacks = GET_SCHEMA(get_schema), GET_NEXT(get_next), GET_ERROR(lambda _: b"disk on fire"), RELEASE_STREAM(lambda _: None)
        made = keep(Stream(*callbacks), callbacks)
        return new_capsule(ctypes.addressof(made), b"arrow_array_stream", None)


class ArrowOnce:
    def __init__(self, schema, array):
        self.schema, self.array = schema, array

    def __arrow_c_array__(self, requested_schema=None):
        schema, made = make_schema(*self.schema), make_array(*self.array)
        return new_capsule(ctypes.addressof(schema), b"arrow_schema", None), new_capsule(ctypes.addressof(made), b"arrow_array", None)


def numbers(code, *values):
    return array.array(code, values).tobytes()


TABLE = ("+s", "", [("i", "x"), ("u", "t"), ("b", "f"), ("+l", "l", [("g", "item")]), ("n", "n"), ("+w:2", "v", [("i", "item")])])


def batch(first, rows, offset, cut=0):
    """Rows (first + i, its text, its parity, a list of it), every third one NULL, behind `offset` others."""
    everything = [first - offset + i for i in range(offset + rows)]
    texts = [str(value).encode() for value in everything]
    valid = sum((value % 3 != 0) << i for i, value in enumerate(everything)).to_bytes((offset + rows + 7) // 8 + 1, "little")
    odd = sum((value % 2) << i for i, value in enumerate(everything)).to_bytes((offset + rows + 7) // 8 + 1, "little")
    ends = [0]
    for text in texts:
        ends.append(ends[-1] + len(text))
    children = [
        (offset + rows - cut, [valid, numbers("i", *everything)], (), cut),
        (offset + rows - cut, [valid, numbers("i", *ends), b"".join(texts)], (), cut),
        (offset + rows - cut, [None, odd], (), cut),
        (offset + rows - cut, [valid, numbers("i", *range(offset + rows + 1))], [(offset + rows, [valid, numbers("d", *everything)])], cut),
        (offset + rows - cut, [], (), cut),
        (offset + rows - cut, [valid], [(2 * (offset + rows), [None, numbers("i", *(v // 2 for v in range(2 * (first - offset), 2 * (first + rows))))])], cut),
    ]
    return rows, [None], children, offset - cut


def expected(first, rows):
    values = range(first, first + rows)
    def null(value, what): return None if value % 3 == 0 else what
    return {"x": ("i", [null(v, v) for v in values]), "t": ("U", [null(v, str(v)) for v in values]), "f": ("b", [v % 2 == 1 for v in values]),
            "l": ("+Lg", [null(v, [float(v)]) for v in values]), "n": ("n", [None] * rows), "v": ("+w:2i", [null(v, [v, v]) for v in values])}


@pytest.mark.parametrize("sizes", [[5], [0], [3, 8, 1], [13, 0, 64, 7], [1] * 20, []])
@pytest.mark.parametrize("offset, cut", [(0, 0), (1, 0), (9, 4), (8, 8)])
def test_stream_of_arrow_arrives(cursor, sizes, offset, cut):
    first, batches = 100, []
    for rows in sizes:
        batches.append(batch(first, rows, offset, cut))
        first += rows
    released.clear()
    assert gvmem.load(cursor, "t", Arrow(TABLE, *batches)) == sum(sizes)
    assert cursor.loaded == ([expected(100, sum(sizes))] if sum(sizes) else [])
    assert released.count("array") == len(sizes) and released.count("schema") == 1


def test_stream_of_arrow_is_loaded_in_groups(cursor, monkeypatch):
    monkeypatch.setattr("gvmem._load._GROUP_BYTES", 200)
    assert gvmem.load(cursor, "t", Arrow(TABLE, *(batch(10 * i, 10, 0) for i in range(5)))) == 50
    assert len(cursor.loaded) > 1
    assert sum((columns["x"][1] for columns in cursor.loaded), []) == expected(0, 50)["x"][1]


class Connection:
    """What psycopg says of one. transaction_status: 0 is idle, 2 in a transaction."""

    def __init__(self, autocommit, transaction_status):
        self.autocommit, self.info = autocommit, self
        self.transaction_status = transaction_status


@pytest.mark.parametrize("autocommit, status, parts, refused", [
    (True, 0, 2, True), (True, 0, 1, False), (True, 2, 2, False), (False, 0, 2, False)])
def test_stream_of_several_groups_wants_a_transaction(cursor, monkeypatch, autocommit, status, parts, refused):
    monkeypatch.setattr("gvmem._load._GROUP_BYTES", 200)
    cursor.connection = Connection(autocommit, status)
    table = Arrow(TABLE, *(batch(10 * i, 10, 0) for i in range(parts)))
    if refused:
        with pytest.raises(ValueError, match="autocommit"):
            gvmem.load(cursor, "t", table)
        assert cursor.said == []
    else:
        assert gvmem.load(cursor, "t", table) == 10 * parts


def vectors(offset, rows):
    return (rows, [None], [((offset + rows) * 100, [None, bytes(800 * (offset + rows))])], offset)


@pytest.mark.parametrize("schema, column, size", [
    (("+w:100", "x", [("g", "item")]), vectors(1, 2), 1600),
    (("u", "x"), (2, [None, numbers("i", 5, 10, 1010), bytes(1010)]), 1005 + 16),
    (("U", "x"), (1, [None, numbers("q", 5, 10, 1010), bytes(1010)], (), 1), 1000 + 8),
    (("+l", "x", [("g", "item")]), (2, [None, numbers("i", 1, 3, 101)], [(101, [None, bytes(808)])]), 800 + 16),
    (("d:10,2", "x"), (3, [None, bytes(48)]), 48),
    (("n", "x"), (3, []), 0),
    (("u", "x"), (0, [None, None, None]), 0),
])
def test_size_of_a_group_is_that_of_its_bytes(schema, column, size):
    from gvmem import _load

    (field,), batches = _load._batches(Arrow(("+s", "", [schema]), (column[0], [None], [column])))
    assert [_load._size(holder, field, places[0]) for holder, places in batches] == [size]


@pytest.mark.parametrize("format", ["d:10,2", "d:38,-3", "d:38,10,128"])
def test_decimals_of_arrow_arrive(cursor, format):
    numbers = [(12345).to_bytes(16, "little"), (-1).to_bytes(16, "little", signed=True), bytes(16)]
    column = (3, [b"\3", b"".join(numbers)])
    values = gvmem.Values(numpy.frombuffer(b"".join(numbers), "u1").reshape(3, 16), format=format)
    assert load(cursor, d=Arrow((format, ""), column), v=values) == {"d": (format, [*numbers[:2], None]), "v": (format, numbers)}


def test_array_of_arrow_arrives(cursor):
    assert gvmem.load(cursor, "t", ArrowOnce(TABLE, batch(7, 9, 2))) == 9 and cursor.loaded == [expected(7, 9)]
    cursor.loaded.clear()
    column = ArrowOnce(("Z", ""), (2, [None, numbers("q", 1, 3, 3), b"xabx"]))
    assert load(cursor, b=column, x=numpy.arange(2)) == {"b": ("Z", [b"ab", b""]), "x": ("l", [0, 1])}
    column = Arrow(("tsu:America/Argentina/Buenos_Aires", ""), (2, [None, numbers("q", 1, 2)]), (1, [b"\0", numbers("q", 3)]))
    assert load(cursor, t=column, x=numpy.arange(3)) == {"t": ("tsu:UTC", [1, 2, None]), "x": ("l", [0, 1, 2])}


@pytest.mark.parametrize("table", [
    Arrow(("i", ""), (1, [None, bytes(4)])),
    Arrow(("+s", "", [("d:10,2,256", "x")]), (1, [None], [(1, [None, bytes(32)])])),
    Arrow(("+s", "", [("vu", "x")]), (1, [None], [(1, [None, bytes(16)])])),
    Arrow(("+s", "", [("i", "x", [], True)]), (1, [None], [(1, [None, bytes(4)])])),
    Arrow(("+s", "", [("tss:", "x")]), (1, [None], [(1, [None, bytes(8)])])),
    Arrow(("+s", "", [("+l", "x", [("u", "item")])]), (1, [None], [(1, [None, numbers("i", 0, 1)], [(1, [None, numbers("i", 0, 1), b"x"])])])),
    Arrow(("+s", "", [("u", "x")]), (1, [None], [(1, [None, numbers("i", 5, 1), b"hello"])])),
    Arrow(("+s", "", [("i", "x")]), (1, [b"\0"], [(1, [None, bytes(4)])])),
    Arrow(("+s", "", [("+s", "x", [("+s", "x", [("+s", "x", [("+s", "y")])])])]), (1, [None], [(1, [None])])),
    Arrow(("+s", "", [("i", "x")]), (1, [None], [(1, [None, bytes(4)])]), (1, [None], [(1, [None, bytes(4)])]), fails=1),
])
def test_arrow_that_cannot_be_loaded_is_refused(cursor, table):
    with pytest.raises((TypeError, ValueError)):
        gvmem.load(cursor, "t", table)
    assert "gstore_load" not in cursor.said


def test_own_tools_refuse_what_is_out_of_bounds():
    for call in (lambda: _gvmem.put_bits(bytearray(1), 1, None, 0, 8), lambda: _gvmem.put_bits(bytearray(1), 0, b"", 0, 1),
                 lambda: _gvmem.put_bits(bytearray(1), 2**64 - 1, None, 0, 1), lambda: _gvmem.put_bits(bytearray(2), 0, b"a", 1, 8),
                 lambda: _gvmem.move_offsets(b"12345678", 3, 0), lambda: _gvmem.memory(None, 0, 1), lambda: _gvmem.memory(None, 1, -1)):
        with pytest.raises(ValueError):
            call()
    for call in (_gvmem.of_dlpack, _gvmem.arrow_schema, _gvmem.arrow_array, _gvmem.arrow_stream_next, _gvmem.arrow_stream_schema):
        with pytest.raises((TypeError, ValueError)):
            call(5)
