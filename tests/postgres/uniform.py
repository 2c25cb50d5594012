"""A table with columns of one length of every kind, for attach.py."""
from private import expect

# Columns of one length, and what is in row i of each; every fifth value is NULL, by turns.
UNIFORM = {
    "n1": ("numeric(7,2)", "i * 3.25"), "n2": ("numeric(38,0)", "CASE i % 4 WHEN 0 THEN 1e38 - i WHEN 1 THEN i - 1e38 WHEN 2 THEN i * 1e20 ELSE i END"),
    "n3": ("numeric(38,38)", "CASE i % 3 WHEN 0 THEN -0.99999999999999999999999999999999999999 WHEN 1 THEN i * 1e-38 ELSE 0 END"),
    "n4": ("numeric(5,-3)", "i * -1000"), "n5": ("numeric(3,60)", "CASE i % 6 WHEN 0 THEN 'NaN' ELSE (i % 1000) * 1e-60 END"),
    "b1": ("bit(1)", "i::bit(1)"), "b9": ("bit(9)", "i::bit(9)"), "b64": ("bit(64)", "(i::bigint << 33)::bit(64)"),
    "r": ("real[] OPTIONS (length '3')", "ARRAY[i / 3.0, 'NaN', '-0']::real[]"), "i2": ("smallint[] OPTIONS (length '1')", "ARRAY[-i]"),
    "da": ("date[] OPTIONS (length '2')", "ARRAY[date '1999-12-25' + i, 'infinity']"), "tz": ("timestamptz[] OPTIONS (length '1')", "ARRAY[timestamptz '1969-12-31 23:59+00' + i * interval '1 h']"),
    "u": ("uuid[] OPTIONS (length '2')", "ARRAY[md5(i::text), md5((-i)::text)]::uuid[]"), "t": ("text OPTIONS (length '5')", "right('0000' || i, 5)"),
    "by": ("bytea OPTIONS (length '16')", "decode(md5(i::text), 'hex')"),
}
# Where pgvector is installed.
VECTORS = {"ve": ("vector(3)", "ARRAY[i / 7.0, -i, 0]::vector"), "hv": ("halfvec(5)", "ARRAY[i / 7.0, -i, 65504, 5.9e-8, 0]::halfvec")}


def make(server, table_format, rows):
    """A table with all of them."""
    vectors = {}
    if server.sql("SELECT count(*) FROM pg_available_extensions WHERE name = 'vector'") == "1":
        server.sql("SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS vector")
        vectors = VECTORS
    else:
        print("# without pgvector")
    columns = UNIFORM | vectors
    server.sql(f"DROP FOREIGN TABLE IF EXISTS uniform; CREATE FOREIGN TABLE uniform (id int{''.join(f', {name} {kind}' for name, (kind, _) in columns.items())})"
               f" SERVER gstore_fdw OPTIONS (format '{table_format}')")
    values = "".join(f", CASE WHEN (i + {at}) % 5 > 0 THEN {value} END" for at, (_, value) in enumerate(columns.values()))
    server.sql(f"INSERT INTO uniform SELECT i{values} FROM generate_series(1, {rows}) i")


def check_sizes(shown, rows):
    """shown: what is known of the columns, by name."""
    for name, width in {"n1": 16, "b9": 2, "r": 12, "u": 32, "t": 5, "by": 16, "ve": 12, "hv": 10}.items():
        if name in shown:
            expect([shown[name][key] for key in ("width", "values_bytes", "bodies_bytes")], [str(n) for n in (width, rows * width, 0)], f"sizes of {name}")
