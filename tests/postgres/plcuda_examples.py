#!/usr/bin/env python3
"""The functions of examples/plcuda, each compared with the same in SQL or in scikit-learn.

usage: plcuda_examples.py [CASE...]. TAP, a line a case. Cases with scikit-learn's data sets run where an interpreter has it:
SKLEARN_PYTHON, python3 or /usr/bin/python3 (Debian: python3-sklearn). That with the molecules of NCI runs where Debian's rdkit-data
is installed, or SMILES names a file of them.
"""
import json
import os
import random
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
from cases import group, main  # noqa: E402
from private import PROJECT, Failed, expect  # noqa: E402

EXAMPLES = PROJECT / "examples/plcuda"
FORMATS = ("pgstrom", "arrow")


def load(server, name):
    """As psql installs it."""
    done = subprocess.run(server.psql("-f", str(EXAMPLES / f"{name}.sql")), env=server.environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(done.stderr)


def prepare(server, *names):
    server.sql("DROP EXTENSION IF EXISTS gstore_fdw CASCADE; DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    server.sql("CREATE EXTENSION gstore_fdw; CREATE EXTENSION plcuda")
    for name in names:
        load(server, name)


def make_table(server, name, columns, rows, layout="pgstrom"):
    """rows: a query."""
    server.sql(f"DROP FOREIGN TABLE IF EXISTS {name}; CREATE FOREIGN TABLE {name} ({columns}) SERVER gstore_fdw OPTIONS (format '{layout}')")
    server.sql(f"INSERT INTO {name} {rows}")


def expect_same_rows(server, one, other, what):
    both = f"(({one}) EXCEPT ALL ({other})) UNION ALL (({other}) EXCEPT ALL ({one}))"
    expect(server.sql(f"SELECT count(*) FROM ({both}) d"), "0", what)


def expect_cursor_keeps(server, query, table, what):
    """A cursor has the rows that were there when it was declared."""
    before = server.sql(query)
    expect(server.sql(f"BEGIN; SET LOCAL plcuda.time_limit = '20s'; DECLARE c CURSOR FOR {query}; DELETE FROM {table}; FETCH ALL c; ROLLBACK"), before, what)


def sklearn_python():
    for python in filter(None, (os.environ.get("SKLEARN_PYTHON"), "python3", "/usr/bin/python3")):
        try:
            if subprocess.run([python, "-c", "import sklearn"], capture_output=True, check=False).returncode == 0:
                return python
        except FileNotFoundError:
            pass
    return None


SKLEARN = sklearn_python()


def sklearn(script):
    """What a script with scikit-learn prints, as JSON."""
    done = subprocess.run([SKLEARN, "-W", "ignore", "-c", script], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(done.stderr)
    return json.loads(done.stdout)


def make_data(server, rows, names, types):
    """A table 'data' of rows that are lists, None for NULL."""
    columns = ", ".join(f"{name} {kind}" for name, kind in zip(names, types))
    values = ", ".join(f"(r ->> {at})::{kind}" for at, kind in enumerate(types))
    place = server.folder / "run/rows.json"
    place.write_text(json.dumps(rows))
    place.chmod(0o644)
    make_table(server, "data", columns, f"SELECT {values} FROM json_array_elements(pg_read_file('{place}')::json) r")


def numbers(server, query):
    return json.loads(server.sql(f"SELECT array_to_json({query})"))


def expect_close(found, wanted, tolerance, what):
    flat = lambda v: [x for y in v for x in flat(y)] if isinstance(v, list) else [v]  # noqa: E731
    a, b = flat(found), flat(wanted)
    expect(len(a), len(b), f"length of {what}")
    worst = max(abs(x - y) / (1 + abs(y)) for x, y in zip(a, b))
    if not worst <= tolerance:
        raise Failed(f"{what}: they differ by {worst}: {found} instead of {wanted}")


# ---- the nearest by Tanimoto's measure

# Random bits, of which some rows share most: every third is like the one before it. Of duplicates, and with NULLs.
FINGERPRINTS = """
SELECT CASE WHEN i % 101 > 0 THEN 1000 - i END, CASE WHEN i % 97 > 0 THEN substr(string_agg(sha512((i / 3 * 20 + part + CASE WHEN
    part = 0 THEN i % 3 ELSE 0 END)::text::bytea), ''), 1, {length}) END
FROM generate_series({first}, {last}) i, generate_series(0, 7) part GROUP BY i
"""


def find_molecules():
    """A file of SMILES; None: there is none."""
    found = [os.environ["SMILES"]] if "SMILES" in os.environ else [p for f in ("RDKit", "rdkit") for p in Path("/usr/share", f).rglob("first_5K.smi")]
    return found[0] if found else None


MOLECULES = find_molecules()


def molecule_rows():
    """id and fingerprint, for COPY."""
    program = [sys.executable, str(PROJECT / "examples/similarity_fingerprints.py"), str(MOLECULES)]
    for line in subprocess.run(program, capture_output=True, text=True, check=True).stdout.splitlines():
        number, _, bits = line.split("\t")
        yield f"{number}\t\\\\x{int(bits, 2):0256x}\n"


def compare_knn(server, ks, what):
    for k in ks:
        expect_same_rows(server, f"SELECT * FROM knn_similarity({k}, 'queries', 'molecules')",
                         f"SELECT * FROM knn_similarity_sql({k}, 'queries', 'molecules')", f"the {k} nearest, {what}")


@group()
class Similarity:
    def the_nearest_are_those_of_sql_for_each_length(self, server):
        prepare(server, "knn_similarity")
        for length, layout in ((128, "pgstrom"), (128, "arrow"), (7, "arrow"), (20, "pgstrom"), (1, "pgstrom"), (130, "arrow"), (300, "pgstrom")):
            make_table(server, "molecules", "id int, fingerprint bytea", FINGERPRINTS.format(length=length, first=1, last=2500), layout)
            make_table(server, "queries", "id int, fingerprint bytea", FINGERPRINTS.format(length=length, first=90, last=104), layout)
            compare_knn(server, (1, 5), f"{length} bytes, {layout}")

    def a_table_larger_than_the_sample_is_searched_wholly(self, server):
        prepare(server, "knn_similarity")
        make_table(server, "molecules", "id int, fingerprint bytea OPTIONS (length '128')", FINGERPRINTS.format(length=128, first=1, last=50000), "arrow")
        make_table(server, "queries", "id int, fingerprint bytea", FINGERPRINTS.format(length=128, first=30000, last=30020))
        server.sql("DELETE FROM molecules WHERE id % 7 = 0")
        server.sql("DELETE FROM queries WHERE id % 7 = 0")
        compare_knn(server, (1, 100), "50000 molecules")

    if MOLECULES:
        def molecules_of_nci_have_the_neighbours_that_sql_finds(self, server):
            prepare(server, "knn_similarity")
            place = server.folder / "run/molecules"
            place.write_text("".join(molecule_rows()))
            place.chmod(0o644)
            server.sql("CREATE TABLE nci (id int, fingerprint bytea)")
            server.sql(f"COPY nci FROM '{place}'")
            expect(server.sql("SELECT count(*) > 4000, min(octet_length(fingerprint)), bool_and(bit_count(fingerprint) > 0) FROM nci"), "t|128|t", "fingerprints")
            make_table(server, "molecules", "id int, fingerprint bytea", "SELECT * FROM nci")
            make_table(server, "queries", "id int, fingerprint bytea", "SELECT * FROM nci WHERE id % 250 = 66")
            compare_knn(server, (1, 20), "molecules of NCI")

    def a_cursor_keeps_its_queries(self, server):
        prepare(server, "knn_similarity")
        make_table(server, "molecules", "id int, fingerprint bytea", FINGERPRINTS.format(length=32, first=1, last=300))
        make_table(server, "queries", "id int, fingerprint bytea", FINGERPRINTS.format(length=32, first=1, last=200))
        expect_cursor_keeps(server, "SELECT * FROM knn_similarity(5, 'queries', 'molecules') ORDER BY query, similarity DESC, molecule", "queries", "the nearest")

    def more_than_there_are_is_all_of_them(self, server):
        prepare(server, "knn_similarity")
        make_table(server, "molecules", "id int, fingerprint bytea", FINGERPRINTS.format(length=128, first=1, last=300))
        make_table(server, "queries", "id int, fingerprint bytea", FINGERPRINTS.format(length=128, first=5, last=7))
        compare_knn(server, (299, 300, 5000), "k beyond the number of molecules")
        expect(server.sql("SELECT count(*) FROM knn_similarity(1000, 'queries', 'molecules')"), str(3 * (300 - 3 - 2)), "rows")

    def those_that_are_equally_similar_come_by_id(self, server):
        prepare(server, "knn_similarity")
        make_table(server, "molecules", "id int, fingerprint bytea", "SELECT i * 7919 % 20011 - 10000, sha256((i % 3)::text::bytea) FROM generate_series(1, 20000) i")
        make_table(server, "queries", "id int, fingerprint bytea", "SELECT i, sha256(i::text::bytea) FROM generate_series(0, 3) i")
        compare_knn(server, (1, 33, 200), "duplicates")
        expect(server.sql("SELECT array_agg(molecule ORDER BY molecule) = (SELECT array_agg(id) FROM (SELECT id FROM molecules WHERE fingerprint = sha256('2') ORDER BY id LIMIT 50) m) FROM knn_similarity(50, 'queries', 'molecules') WHERE query = 2"), "t", "the lowest ids")

    def fingerprints_without_bits_are_similar_to_none(self, server):
        prepare(server, "knn_similarity")
        make_table(server, "molecules", "id int, fingerprint bytea", "SELECT i, CASE WHEN i % 2 = 0 THEN '\\x0000'::bytea ELSE '\\x0100'::bytea END FROM generate_series(-2147483648, -2147483640) i UNION ALL SELECT 2147483647, '\\x0000'")
        make_table(server, "queries", "id int, fingerprint bytea", "VALUES (1, '\\x0000'::bytea), (2, '\\x0100')")
        compare_knn(server, (1, 6, 20), "zeros, and ids at the ends of their range")

    def empty_tables_have_no_neighbours(self, server):
        prepare(server, "knn_similarity")
        make_table(server, "molecules", "id int, fingerprint bytea", "SELECT 1, '\\x01'::bytea WHERE false")
        make_table(server, "queries", "id int, fingerprint bytea", "SELECT 1, '\\x01'::bytea WHERE false")
        expect(server.sql("SELECT count(*) FROM knn_similarity(3, 'queries', 'molecules')"), "0", "of nothing")
        server.sql("INSERT INTO queries VALUES (1, '\\x01')")
        expect(server.sql("SELECT count(*) FROM knn_similarity(3, 'queries', 'molecules')"), "0", "without molecules")
        server.sql("INSERT INTO molecules VALUES (1, '\\x01'); DELETE FROM queries")
        expect(server.sql("SELECT count(*) FROM knn_similarity(3, 'queries', 'molecules')"), "0", "without queries")

    def what_cannot_be_compared_is_an_error(self, server):
        prepare(server, "knn_similarity")
        make_table(server, "molecules", "id int, fingerprint bytea", "SELECT i, '\\x0102'::bytea FROM generate_series(1, 30000) i")
        make_table(server, "queries", "id int, fingerprint bytea", "VALUES (1, '\\x0304'::bytea)")
        search = "SELECT * FROM knn_similarity(3, 'queries', 'molecules')"
        for k in (0, -1):
            expect(server.error(search.replace("3", str(k))), "22023", f"k = {k}")
        expect(server.sql(search.replace("3", "NULL")), "", "k is NULL")
        server.sql("INSERT INTO molecules VALUES (77777, '\\x01')")
        expect(server.error(search), "22023", "a molecule of another length")
        server.sql("DELETE FROM molecules WHERE id = 77777")
        expect(server.sql(f"SELECT count(*) FROM ({search}) x"), "3", "without it")
        server.sql("INSERT INTO queries VALUES (2, '\\x010203')")
        expect(server.error(search), "22023", "a query of another length")
        for name in ("queries", "molecules"):
            make_table(server, name, "id int, fingerprint bytea", "SELECT 1, decode(repeat('07', 4097), 'hex')")
        expect(server.error(search), "22023", "fingerprints that are too long")
        make_table(server, "queries", "id int, print bytea", "VALUES (1, '\\x0304'::bytea)")
        expect(server.error(search), "42703", "no column fingerprint")
        make_table(server, "queries", "id bigint, fingerprint bytea", "VALUES (1, '\\x0304'::bytea)")
        expect(server.error(search), "42804", "a bigint")


def braces(array):
    return json.dumps(array).replace("[", "{").replace("]", "}")


def lloyd(server, columns, centres):
    """An iteration."""
    points = json.loads(server.sql(f"SELECT coalesce(json_agg(ARRAY[{columns}]::float8[]), '[]') FROM data WHERE ({columns}) IS NOT NULL"))
    near = [[] for _ in centres]
    for point in points:
        distances = [sum((x - y) ** 2 for x, y in zip(point, centre)) for centre in centres]
        near[distances.index(min(distances))].append(point)
    return [[sum(x) / len(x) for x in zip(*group)] if group else centre for group, centre in zip(near, centres)]


def step(server, columns, centres):
    """An iteration of the function, and one here."""
    found = numbers(server, f"kmeans_step('data', column_numbers('data', '{{{columns}}}'), '{braces(centres)}')")
    return found, lloyd(server, columns, centres)


@group()
class Clusters:
    def an_iteration_is_that_of_sql(self, server):
        prepare(server, "kmeans")
        for layout in FORMATS:
            make_table(server, "data", "a real, b float8, c float8, d real", """SELECT nullif(sin(i) * 10, sin(17) * 10)::real, cos(i * 3) + 1000000,
                nullif(sin(i * 7), sin(7 * 18)), (i % 17)::real FROM generate_series(1, 1500) i""", layout)
            server.sql("DELETE FROM data WHERE d = 3")
            for columns, centres in (("a,b,c,d", [[1, 1000000, 0, 2], [-3, 1000001, 0.5, 9], [0, 999999.5, 0, 16], [1000, 1000000, 1, 1]]),
                                     ("b", [[1000000], [999999.1]]), ("d,c", [[i / 4, i % 3] for i in range(20)])):
                found, wanted = step(server, columns, centres)
                expect_close(found, wanted, 1e-6, f"centres of {columns}, {layout}")
                said = numbers(server, f"kmeans_step_sql('data', '{{{columns}}}', '{braces(centres)}')")
                expect_close(said, wanted, 1e-9, "what SQL says")

    def centres_that_do_not_fit_into_shared_memory_are_used_in_parts(self, server):
        prepare(server, "kmeans")
        names = [f"c{i}" for i in range(40)]
        make_table(server, "data", ", ".join(f"{name} real" for name in names), "SELECT " + ", ".join(f"sin(i * {at + 1})::real" for at in range(40)) + " FROM generate_series(1, 300) i")
        for columns, count in ((",".join(names), 100), ("c3", 5000), ("c1,c2,c5", 2500)):
            chance = random.Random(count)
            centres = [[round(chance.uniform(-1, 1), 6) for _ in range(columns.count("c"))] for _ in range(count)]
            found, wanted = step(server, columns, centres)
            expect_close(found, wanted, 1e-6, f"{count} centres of {columns}")

    def clusters_far_apart_are_found(self, server):
        prepare(server, "kmeans")
        make_table(server, "data", "x real, y float8", "SELECT i % 3 * 100 + sin(i), i % 3 * -50 + cos(i) FROM generate_series(1, 9000) i")
        found = sorted(numbers(server, "kmeans('data', '{x,y}', 3, start => '{{1,1},{2,2},{300,-50}}')"))
        means = json.loads(server.sql("SELECT json_agg(ARRAY[x, y] ORDER BY x) FROM (SELECT avg(x) AS x, avg(y) AS y FROM (SELECT x, y, round(x / 100) AS c FROM data) d GROUP BY c) m"))
        expect_close(found, means, 1e-5, "centres")
        expect(len(numbers(server, "kmeans('data', '{x,y}', 5)")), 5, "centres from rows of the table")

    def what_is_no_data_is_an_error(self, server):
        prepare(server, "kmeans")
        make_table(server, "data", "x real, y int", "SELECT i, i FROM generate_series(1, 10) i")
        expect(server.error("SELECT kmeans('data', '{x,z}', 2)"), "42703", "no such column")
        expect(server.error("SELECT kmeans('data', '{x,y}', 2, start => '{{1,2},{3,4}}')"), "42804", "an integer")
        expect(server.error("SELECT kmeans_step('data', '{1}', '{1,2}')"), "22023", "centres of one dimension")
        expect(server.error("SELECT kmeans_step('data', '{1}', '{{1},{NULL}}')"), "22023", "a centre that is NULL")
        expect(server.error("SELECT kmeans('data', '{x}', 0)"), "22023", "no centres")
        server.sql("INSERT INTO data VALUES ('NaN', 1)")
        expect(server.error("SELECT kmeans_step('data', '{1}', '{{1},{2}}')"), "22023", "NaN")
        server.sql("DELETE FROM data")
        expect(server.sql("SELECT kmeans_step('data', '{1}', '{{1},{2}}')"), "{{1},{2}}", "centres of nothing")

    if SKLEARN:
        def centres_are_those_of_scikit_learn(self, server):
            for name in ("iris", "digits"):
                given = sklearn(f"""
import json, numpy
from sklearn.cluster import KMeans
from sklearn.datasets import load_{name}
x = load_{name}().data
start = x[:: len(x) // 10][:10] if {name == 'digits'} else x[[0, 60, 120]]
k = KMeans(len(start), init=start, n_init=1, max_iter=300, tol=0, algorithm='lloyd').fit(x)
print(json.dumps([x.tolist(), start.tolist(), k.cluster_centers_.tolist(), k.n_iter_]))
""")
                prepare(server, "kmeans")
                names = [f"c{i}" for i in range(len(given[0][0]))]
                make_data(server, given[0], names, ["float8"] * len(names))
                start = braces(given[1])
                found = numbers(server, f"kmeans('data', '{{{','.join(names)}}}', {len(given[1])}, 300, 0, '{start}')")
                expect_close(found, given[2], 1e-6, f"centres of {name}")


def expect_no_slope(server, coefficients, target, features):
    """Where the likelihood is greatest its derivatives are 0: they are summed up in SQL."""
    terms = ["1", *features]
    sums = ", ".join(f"sum((CASE WHEN {target} THEN 1 ELSE 0 END - logregr_predict('{coefficients}', ARRAY[{', '.join(features)}]::float8[])) * {term})" for term in terms)
    sizes = ", ".join(f"sum(abs({term}))" for term in terms)
    slopes, scale = json.loads(server.sql(f"SELECT json_build_array(ARRAY[{sums}], ARRAY[{sizes}]) FROM data WHERE ({target}, {', '.join(features)}) IS NOT NULL"))
    expect_close([s / w for s, w in zip(slopes, scale)], [0] * len(terms), 1e-7, "derivatives")


@group()
class Regression:
    def the_likelihood_is_greatest_at_the_coefficients(self, server):
        prepare(server, "logregr")
        for layout in FORMATS:
            make_table(server, "data", "a real, b float8, hit bool, c float8", """SELECT nullif(sin(i * 3), sin(51))::real, cos(i * 7) * 30 + 7, nullif(i % 53, 0) IS NOT NULL AND
                sin(i * 3) * 2 + cos(i * 7) - 0.4 > sin(i * i), nullif(i % 11, 4) FROM generate_series(1, 4000) i""", layout)
            server.sql("UPDATE data SET hit = NULL WHERE b < -22; DELETE FROM data WHERE c = 9")
            for features in (["a"], ["a", "b"], ["c", "b", "a"]):
                coefficients = server.sql(f"SELECT logregr_train('data', 'hit', '{{{','.join(features)}}}')")
                expect_no_slope(server, coefficients, "hit", features)

    def many_features_share_a_block_memory(self, server):
        prepare(server, "logregr")
        names = [f"f{i}" for i in range(64)]
        make_table(server, "data", "hit bool, " + ", ".join(f"{name} float8" for name in names),
                   "SELECT sin(i * 1.7) > sin(i * i), " + ", ".join(f"sin(i * {(at + 2) ** 0.5})" for at in range(64)) + " FROM generate_series(1, 2000) i")
        expect_no_slope(server, server.sql(f"SELECT logregr_train('data', 'hit', '{{{','.join(names)}}}')"), "hit", names)

    def what_has_no_solution_is_an_error(self, server):
        prepare(server, "logregr")
        make_table(server, "data", "hit bool, a float8, b float8, c int", "SELECT i > 500, i, 2 * i + 1, i FROM generate_series(1, 1000) i")
        expect(server.error("SELECT logregr_train('data', 'hit', '{a}')"), "22023", "separated classes")
        server.sql("UPDATE data SET hit = sin(a) > 0")
        expect(server.error("SELECT logregr_train('data', 'hit', '{a,b}')"), "22023", "features that depend on each other")
        expect(server.error("SELECT logregr_train('data', 'a', '{b}')"), "42804", "a target that is a number")
        expect(server.error("SELECT logregr_train('data', 'hit', '{c}')"), "42804", "a feature that is an integer")
        expect(server.error("SELECT logregr_train('data', 'hit', '{d}')"), "42703", "no such column")
        server.sql("DELETE FROM data")
        expect(server.error("SELECT logregr_train('data', 'hit', '{a}')"), "22023", "no rows")

    if SKLEARN:
        def coefficients_are_those_of_scikit_learn(self, server):
            x, y, wanted = sklearn("""
import json, numpy, sklearn
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
data = load_breast_cancer()
x = data.data[:, [0, 1, 4, 7, 8]] # of all thirty, some plane separates the classes
without = {'penalty': None} if tuple(map(int, sklearn.__version__.split('.')[:2])) < (1, 8) else {'C': numpy.inf}
model = LogisticRegression(**without, solver='newton-cholesky', tol=1e-12, max_iter=100).fit(x, data.target)
print(json.dumps([x.tolist(), data.target.tolist(), [*model.intercept_, *model.coef_[0]]]))
""")
            prepare(server, "logregr")
            names = [f"f{i}" for i in range(5)]
            make_data(server, [[*row, bool(hit)] for row, hit in zip(x, y)], [*names, "benign"], ["float8"] * 5 + ["bool"])
            found = numbers(server, f"logregr_train('data', 'benign', '{{{','.join(names)}}}')")
            expect_close(found, wanted, 1e-6, "coefficients")


PATTERNS = ("", "%", "%%", "_", "__", "a%", "%a", "%ab%", "a_b", "%a_b%", "%_é%", "_b%c_", "%ab%ba%", "%aab%", "a\\%b", "%\\_%", "\\a%", "%é_", "___%___", "%a%a%a%a%",
            "%b_a%_", "é", "%\\\\%", "_%", "%_", "x%")


@group()
class Patterns:
    def rows_are_those_of_like(self, server):
        prepare(server, "text_search")
        letters = "ARRAY['a', 'b', 'é', '日', '%', '_', E'\\\\', 'c']"
        for layout, id_type in (("pgstrom", "int"), ("arrow", "bigint")):
            make_table(server, "documents", f"body text, id {id_type}", f"""SELECT CASE WHEN i % 50 > 0 THEN (SELECT coalesce(string_agg(({letters})[1 + (hashint8(i::bigint * 100 + n) & 2147483647) %
                CASE WHEN i % 3 = 0 THEN 3 ELSE 8 END], ''), '') FROM generate_series(1, i % 12) n) END, nullif(i, 77) FROM generate_series(1, 5000) i""", layout)
            server.sql("DELETE FROM documents WHERE id % 10 = 3")
            for pattern in PATTERNS:
                expect_same_rows(server, f"SELECT * FROM text_search('documents', 'id', 'body', '{pattern}')",
                                 f"SELECT id::bigint FROM documents WHERE body LIKE '{pattern}'", f"{pattern!r}, {layout}")

    def a_cursor_keeps_its_rows(self, server):
        prepare(server, "text_search")
        make_table(server, "documents", "id int, body text", "SELECT i, 'abc' || i FROM generate_series(1, 100) i")
        expect_cursor_keeps(server, "SELECT * FROM text_search('documents', 'id', 'body', '%c1_') t ORDER BY t", "documents", "rows")

    def what_is_no_pattern_is_an_error(self, server):
        prepare(server, "text_search")
        make_table(server, "documents", "id int, body text, n float8", "SELECT i, 'abc', 1 FROM generate_series(1, 10) i")
        expect(server.error("SELECT * FROM text_search('documents', 'id', 'body', 'ab\\')"), "22025", "an escape character at the end")
        expect(server.error("SELECT * FROM text_search('documents', 'id', 'text', '%')"), "42703", "no such column")
        expect(server.error("SELECT * FROM text_search('documents', 'id', 'n', '%')"), "42804", "a number")
        expect(server.error("SELECT * FROM text_search('documents', 'n', 'body', '%')"), "42804", "an id that is a float8")
        expect(server.sql("SELECT count(*) FROM text_search('documents', 'id', 'body', NULL)"), "0", "NULL")


if __name__ == "__main__":
    if not SKLEARN:
        print("# no interpreter has scikit-learn: its data sets are left out")
    if not MOLECULES:
        print("# there is no first_5K.smi of rdkit-data: its molecules are left out")
    sys.exit(main())
