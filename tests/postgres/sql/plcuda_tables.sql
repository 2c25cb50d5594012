-- What a call of a plcuda function sees of tables: what a SELECT in its place sees, rows and deletions of the same transaction
-- included. The view compares the two within one statement.
\set VERBOSITY terse
CREATE EXTENSION IF NOT EXISTS plcuda;
CREATE FUNCTION q_sum(reggstore) RETURNS text LANGUAGE plcuda AS $$
#plcuda_results_bufsz 128
#plcuda_working_bufsz 32
#plcuda_begin
#plcuda_num_threads 100
uint64_t *sums = (uint64_t *)workbuf;

PLCUDA_FOR_ROWS (arg1.value, row) {
    pg_int4_t id = plcuda_get_int4(arg1.value, plcuda_column_number(arg1.value, "id"), row);
    pg_text_t t = plcuda_get_text(arg1.value, plcuda_column_number(arg1.value, "t"), row);

    gvm_atomic_add_u64(&sums[0], 1);
    gvm_atomic_add_u64(&sums[1], id.isnull ? 1000000 : (uint64_t)id.value);
    gvm_atomic_add_u64(&sums[2], t.isnull ? 1000000 : t.length);
    gvm_atomic_add_u64(&sums[3], t.length > 0 ? (uint64_t)t.value[t.length - 1] : 0);
}
#plcuda_end
#plcuda_post
char *to = (char *)results;
uint32_t n = 0;

for (int i = 0; i < 4; i++) {
    char digits[24];
    int count = 0;
    uint64_t v = ((uint64_t *)workbuf)[i];

    do
        digits[count++] = (char)('0' + v % 10);
    while ((v /= 10) > 0);
    while (count > 0)
        to[n++] = digits[--count];
    to[n++] = ' ';
}
retval->value = to;
retval->length = n - 1;
retval->isnull = 0;
#plcuda_end
$$;
CREATE FOREIGN TABLE q_rows (id int, t text) SERVER gstore_fdw;
CREATE FOREIGN TABLE q_arrow (id int, t text) SERVER gstore_fdw OPTIONS (format 'arrow');
CREATE VIEW q_selected AS
    SELECT concat_ws(' ', count(*), coalesce(sum(coalesce(id, 1000000)), 0), coalesce(sum(coalesce(length(t), 1000000)), 0), coalesce(sum(ascii(right(t, 1))), 0)) AS rows,
        (SELECT concat_ws(' ', count(*), coalesce(sum(coalesce(id, 1000000)), 0), coalesce(sum(coalesce(length(t), 1000000)), 0), coalesce(sum(ascii(right(t, 1))), 0)) FROM q_arrow) AS arrow FROM q_rows;
CREATE VIEW q_check AS SELECT q_sum('q_rows') = rows AND q_sum('q_arrow') = arrow AS same, rows, arrow FROM q_selected;
INSERT INTO q_rows SELECT i, 'row ' || i FROM generate_series(1, 100) i;
INSERT INTO q_arrow TABLE q_rows;
TABLE q_check;

-- Every command that changes a table.
BEGIN;
INSERT INTO q_rows SELECT i, nullif(repeat('x', i % 5), '') FROM generate_series(101, 150) i;
INSERT INTO q_arrow VALUES (NULL, 'z'), (102, NULL);
TABLE q_check;
DELETE FROM q_rows WHERE id % 7 = 0;
TABLE q_check;
UPDATE q_arrow SET t = t || '!' WHERE id % 9 = 0;
TABLE q_check;
COPY q_rows FROM stdin;
1000	copied
1001	\N
\.
TABLE q_check;
DELETE FROM q_rows WHERE id > 140;
TABLE q_check;
COMMIT;
TABLE q_check;
BEGIN;
DELETE FROM q_arrow WHERE id < 50;
TABLE q_check;
ROLLBACK;
TABLE q_check;
-- The first rows of a table; a table that is made, altered, truncated and written anew by the same transaction.
BEGIN;
TRUNCATE q_rows;
TABLE q_check;
INSERT INTO q_rows VALUES (1, 'first'), (2, 'second');
TABLE q_check;
DELETE FROM q_rows WHERE id = 1;
ALTER FOREIGN TABLE q_rows ADD COLUMN u int DEFAULT 7;
TABLE q_check;
INSERT INTO q_rows VALUES (3, 'third', 3);
DELETE FROM q_rows WHERE id = 2;
TABLE q_check;
SELECT gstore_fdw_compact('q_rows');
TABLE q_check;
INSERT INTO q_rows VALUES (4, 'fourth', 3);
TABLE q_check;
DELETE FROM q_rows;
TABLE q_check;
ROLLBACK;
TABLE q_check;
-- Arrow's file, by gstore_load_file().
\getenv abs_srcdir PG_ABS_SRCDIR
\set file :abs_srcdir '/arrow_files/rows.arrow'
CREATE FOREIGN TABLE q_loaded (id int, name text, price float8, day date, tags smallint[]) SERVER gstore_fdw;
CREATE FUNCTION q_names(reggstore) RETURNS int8 LANGUAGE plcuda AS $$
#plcuda_begin
PLCUDA_FOR_ROWS (arg1.value, row)
    retval->value += 1000000 + 1000 * plcuda_get_text(arg1.value, 2, row).length + (uint64_t)plcuda_get_int4(arg1.value, 1, row).value;
retval->isnull = 0;
#plcuda_end
$$;
BEGIN;
INSERT INTO q_loaded VALUES (1, 'before');
SELECT gstore_load_file('q_loaded', :'file');
SELECT q_names('q_loaded') = sum(1000000 + coalesce(1000 * octet_length(name), 0) + coalesce(id, 0)) AS same, count(*) FROM q_loaded;
SAVEPOINT a;
SELECT gstore_load_file('q_loaded', :'file');
SELECT q_names('q_loaded') = sum(1000000 + coalesce(1000 * octet_length(name), 0) + coalesce(id, 0)) AS same, count(*) FROM q_loaded;
ROLLBACK TO a;
SELECT q_names('q_loaded') = sum(1000000 + coalesce(1000 * octet_length(name), 0) + coalesce(id, 0)) AS same, count(*) FROM q_loaded;
ROLLBACK;

-- Savepoints: what is rolled back is not seen, though other rows have its place, and as many of them.
BEGIN;
INSERT INTO q_rows VALUES (201, 'before');
SAVEPOINT a;
INSERT INTO q_rows VALUES (202, 'aaaaa'), (203, 'aaaaa');
DELETE FROM q_arrow WHERE id < 10;
TABLE q_check;
ROLLBACK TO a;
TABLE q_check;
INSERT INTO q_rows VALUES (302, 'bbbbb'), (303, 'bbbbb');
DELETE FROM q_arrow WHERE id > 90;
TABLE q_check;
SAVEPOINT b;
INSERT INTO q_rows VALUES (402, 'ccccc');
TABLE q_check;
RELEASE b;
ROLLBACK TO a;
INSERT INTO q_rows VALUES (502, 'ddddd'), (503, 'ddddd'), (504, 'ddddd');
TABLE q_check;
TRUNCATE q_arrow;
TABLE q_check;
ROLLBACK TO a;
TABLE q_check;
COMMIT;
TABLE q_check;
DO $$
DECLARE s bool;
BEGIN
    FOR i IN 1..20 LOOP
        BEGIN
            INSERT INTO q_rows VALUES (i, 'undone' || i);
            DELETE FROM q_arrow WHERE id = i;
            SELECT same INTO s FROM q_check;
            IF NOT s THEN RAISE 'they differ at %', i; END IF;
            IF i % 2 = 0 THEN RAISE division_by_zero; END IF;
        EXCEPTION WHEN division_by_zero THEN NULL;
        END;
        SELECT same INTO s FROM q_check;
        IF NOT s THEN RAISE 'they differ after %', i; END IF;
    END LOOP;
END $$;
TABLE q_check;

-- Command ids: a statement does not see what it does itself, a function that it calls does, a cursor sees what was there.
BEGIN;
INSERT INTO q_rows SELECT length(q_sum('q_rows')), rows FROM q_check, generate_series(1, 3);
SELECT count(*), count(DISTINCT t) FROM q_rows WHERE t LIKE '% %' AND t NOT LIKE 'row%';
TABLE q_check;
DECLARE c CURSOR FOR SELECT q_sum('q_rows') = rows AS same, rows FROM q_selected, generate_series(1, 4);
FETCH 1 FROM c;
INSERT INTO q_rows VALUES (1, 'unseen by the cursor');
FETCH 1 FROM c;
DELETE FROM q_rows WHERE id < 20;
FETCH 1 FROM c;
TABLE q_check;
FETCH 1 FROM c;
ROLLBACK;
CREATE FUNCTION q_note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE INFO '%: %', TG_WHEN, (SELECT q_check FROM q_check);
    RETURN NEW;
END $$;
CREATE TRIGGER q_before BEFORE INSERT ON q_rows FOR EACH ROW EXECUTE FUNCTION q_note();
CREATE TRIGGER q_after AFTER INSERT ON q_rows FOR EACH ROW EXECUTE FUNCTION q_note();
INSERT INTO q_rows VALUES (601, 'one'), (602, 'two');
DROP TRIGGER q_before ON q_rows;
DROP TRIGGER q_after ON q_rows;
CREATE FUNCTION q_changes(n int) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM q_rows WHERE id = n;
    RETURN (SELECT q_sum('q_rows') || ' ' || (q_sum('q_rows') = rows) FROM q_selected);
END $$;
-- The statement's own snapshot is older than what the function in it does.
SELECT q_changes(601), q_sum('q_rows') = rows AS same, rows FROM q_selected;
TABLE q_check;
BEGIN ISOLATION LEVEL REPEATABLE READ;
TABLE q_check;
UPDATE q_rows SET t = 'repeatable' WHERE id > 95;
TABLE q_check;
COMMIT;

-- A bitmap of deleted rows on the device, and own deletions and rows on top of it.
CREATE FOREIGN TABLE q_many (id int, t text) SERVER gstore_fdw;
INSERT INTO q_many SELECT i, 'x' FROM generate_series(1, 700000) i;
DELETE FROM q_many WHERE id % 5 = 0;
CREATE VIEW q_check_many AS SELECT q_sum('q_many') = concat_ws(' ', count(*), sum(id), sum(length(t)), sum(ascii(t))) AS same, count(*) FROM q_many;
TABLE q_check_many;
TABLE q_check_many;
BEGIN;
DELETE FROM q_many WHERE id % 11 = 0;
TABLE q_check_many;
INSERT INTO q_many SELECT i, 'y' FROM generate_series(1, 1000) i;
TABLE q_check_many;
DELETE FROM q_many WHERE id < 500;
TABLE q_check_many;
ROLLBACK;
TABLE q_check_many;
DELETE FROM q_many WHERE id < 500;
TABLE q_check_many;
DROP VIEW q_check_many;

-- Tokens of own rows end with the transaction, and each call's with the next one.
SELECT gstore_revoke_all('q_rows') > 0 AS some, gstore_revoke_all('q_rows') AS none;
BEGIN;
INSERT INTO q_rows VALUES (1, 'a');
SELECT q_sum('q_rows') IS NOT NULL AS called;
INSERT INTO q_rows VALUES (2, 'b');
SELECT q_sum('q_rows') IS NOT NULL AS called;
SELECT gstore_revoke_all('q_rows') AS one;
SELECT q_sum('q_rows') = rows AS same FROM q_selected;
COMMIT;
SELECT gstore_revoke_all('q_rows') AS none;
BEGIN;
INSERT INTO q_rows VALUES (3, 'c');
SAVEPOINT s;
INSERT INTO q_rows VALUES (4, 'd');
SELECT q_sum('q_rows') = rows AS same FROM q_selected;
ROLLBACK TO s;
SELECT gstore_revoke_all('q_rows') AS none;
ROLLBACK;
-- Those of other sessions are not what these take the place of.
DO $$
BEGIN
    PERFORM q_sum('q_arrow');
    FOR i IN 1..100 LOOP
        INSERT INTO q_arrow VALUES (i, 'many calls');
        PERFORM q_sum('q_arrow');
    END LOOP;
END $$;
TABLE q_check;
SELECT gstore_revoke_all('q_arrow') < 5 AS few;

-- What a parallel worker does not know is refused.
CREATE FUNCTION q_parallel(reggstore) RETURNS int8 PARALLEL SAFE LANGUAGE plcuda AS $$
#plcuda_begin
retval->isnull = 0;
#plcuda_end
$$;
SELECT set_config(CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'debug_parallel_query' ELSE 'force_parallel_mode' END, 'on', false);
SELECT q_parallel('q_rows');
SELECT set_config(CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'debug_parallel_query' ELSE 'force_parallel_mode' END, 'off', false);
SELECT q_parallel('q_rows');

-- Columns that a function is to read: others are not there for it.
CREATE FUNCTION q_some(reggstore, int, other reggstore) RETURNS int8 LANGUAGE plcuda AS $$
#plcuda_columns arg1 "ID", t
#plcuda_begin
#plcuda_columns arg3 id
#plcuda_num_threads 10
int32_t number = arg2.value < 0 ? plcuda_column_number(arg1.value, "ID") : arg2.value;

PLCUDA_FOR_ROWS (arg1.value, row)
    gvm_atomic_add_u64((uint64_t *)&retval->value, (uint64_t)plcuda_get_int4(arg1.value, number, row).value + plcuda_get_text(arg1.value, 3, row).length);
PLCUDA_FOR_ROWS (arg3.value, row)
    gvm_atomic_add_u64((uint64_t *)&retval->value, (uint64_t)plcuda_get_int4(arg3.value, plcuda_column_number(arg3.value, "id"), row).value);
retval->isnull = 0;
#plcuda_end
$$;
CREATE FOREIGN TABLE q_wide (unread int, "ID" int, t text, "id" int) SERVER gstore_fdw;
INSERT INTO q_wide SELECT -i, i, i, -i FROM generate_series(1, 1000) i;
SELECT q_some('q_wide', -1, 'q_wide') = sum("ID" + length(t) + id) AS same, q_some('q_wide', 2, 'q_wide') = sum("ID" + length(t) + id) AS same_by_number FROM q_wide;
SELECT q_some('q_wide', 1, 'q_wide');
SELECT q_some('q_wide', 4, 'q_wide');
SELECT q_some('q_wide', 5, 'q_wide');
SELECT q_some('q_rows', 2, 'q_wide');
ALTER FOREIGN TABLE q_wide DROP COLUMN t, ADD COLUMN t text;
SELECT q_some('q_wide', 2, 'q_wide');
INSERT INTO q_wide VALUES (1, 2, 3, 'four');
ALTER FOREIGN TABLE q_wide RENAME COLUMN id TO renamed;
SELECT q_some('q_wide', 2, 'q_wide');
CREATE FUNCTION q_refused(a reggstore, b int) RETURNS int LANGUAGE plcuda AS E'\n#plcuda_columns arg2 id\n#plcuda_begin\n#plcuda_end\n';
CREATE FUNCTION q_refused(a reggstore, b int) RETURNS int LANGUAGE plcuda AS E'\n#plcuda_columns arg3 id\n#plcuda_begin\n#plcuda_end\n';
CREATE FUNCTION q_refused(a reggstore, b int) RETURNS int LANGUAGE plcuda AS E'\n#plcuda_columns a id\n#plcuda_begin\n#plcuda_end\n';
CREATE FUNCTION q_refused(a reggstore, b int) RETURNS int LANGUAGE plcuda AS E'\n#plcuda_columns arg1\n#plcuda_begin\n#plcuda_end\n';
CREATE FUNCTION q_refused(a reggstore, b int) RETURNS int LANGUAGE plcuda AS E'\n#plcuda_columns arg1 a b\n#plcuda_begin\n#plcuda_end\n';
CREATE FUNCTION q_refused(a reggstore, b int) RETURNS int LANGUAGE plcuda AS E'\n#plcuda_columns arg1 a\n#plcuda_columns 1 b\n#plcuda_begin\n#plcuda_end\n';

SET client_min_messages = warning;
DROP FOREIGN TABLE q_wide;
DROP FOREIGN TABLE q_rows, q_arrow, q_many, q_loaded CASCADE;
DROP EXTENSION plcuda CASCADE;
DROP FUNCTION q_note, q_changes;
