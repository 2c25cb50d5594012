-- Every way in and every way to change rows.
CREATE FOREIGN TABLE d (id int NOT NULL, t text DEFAULT 'none', n numeric DEFAULT 1.5,
                        twice int GENERATED ALWAYS AS (id * 2) STORED, CHECK (id < 1000)) SERVER gstore_fdw;

-- INSERT: one row, several, defaults, SELECT, VALUES out of order, WITH, RETURNING.
INSERT INTO d VALUES (1);
INSERT INTO d (t, id) VALUES ('two', 2), (NULL, 3), (DEFAULT, 4);
INSERT INTO d (id, t) SELECT i, 'row ' || i FROM generate_series(5, 7) i;
INSERT INTO d (id) VALUES (8) RETURNING *;
BEGIN;
INSERT INTO d (id) VALUES (8) RETURNING xmin, xmax, cmin, tableoid::regclass;
UPDATE d SET t = 'x' WHERE id = 8 RETURNING xmin, xmax, cmin;
CREATE FOREIGN TABLE changed (id int) SERVER gstore_fdw;
CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.id := NEW.id + 1; RETURN NEW; END $$;
CREATE TRIGGER change BEFORE INSERT ON changed FOR EACH ROW EXECUTE FUNCTION change();
INSERT INTO changed VALUES (1) RETURNING xmin, xmax, cmin, id;
ROLLBACK;
INSERT INTO d (id, n) VALUES (9, NULL), (10, 0) RETURNING id + 100 AS more, t, n, twice;
WITH added AS (INSERT INTO d (id) VALUES (11), (12) RETURNING id) SELECT sum(id) FROM added;
SELECT * FROM d ORDER BY id;

-- COPY in (NULLs, columns left out, a condition), out, and through a query.
COPY d (id, t) FROM stdin;
20	copied
21	\N
22	with\ttab
\.
COPY d (t, id) FROM stdin WITH (FORMAT csv, NULL '-');
"a ""quote""",23
-,24
,25
\.
COPY d (id) FROM stdin WHERE id % 2 = 0;
30
31
32
\.
COPY (SELECT id, t, n, twice FROM d WHERE id >= 20 ORDER BY id) TO stdout WITH (FORMAT csv, NULL '-');

-- A COPY that fails in its middle leaves nothing.
COPY d (id) FROM stdin;
40
41
forty-two
\.
COPY d (id) FROM stdin;
43
5000
\.
SELECT count(*) FROM d WHERE id >= 40;

-- UPDATE and DELETE: none, some, RETURNING old and new, of what was just changed, with FROM and USING.
UPDATE d SET t = 'never' WHERE id = 99;
UPDATE d SET t = 'changed', n = n + 1 WHERE id <= 2 RETURNING id, t, n, twice;
UPDATE d SET id = id + 200 WHERE id BETWEEN 30 AND 32 RETURNING *;
DELETE FROM d WHERE id = 99;
DELETE FROM d WHERE id IN (230, 232) RETURNING id, twice;
CREATE TABLE d_local (id int, new text);
INSERT INTO d_local VALUES (3, 'from local'), (4, 'from local too'), (77, 'nobody');
UPDATE d SET t = l.new FROM d_local l WHERE l.id = d.id RETURNING d.id, d.t, l.id;
DELETE FROM d USING d_local l WHERE d.id = l.id + 20 RETURNING d.id, l.new;
SELECT id, t, n, twice FROM d ORDER BY id;

-- A row that a join meets twice is changed once; which of the two it is, nobody promises.
INSERT INTO d_local VALUES (5, 'first'), (5, 'second');
UPDATE d SET n = 100 FROM d_local l WHERE l.id = d.id AND d.id = 5;
SELECT count(*), min(n), max(n) FROM d WHERE id = 5;
DELETE FROM d USING d_local l WHERE l.id = d.id AND d.id = 5;
SELECT count(*) FROM d WHERE id = 5;

-- A statement does not see its own rows.
INSERT INTO d (id, t) SELECT id + 500, t FROM d;
SELECT count(*), count(*) FILTER (WHERE id > 500) AS above FROM d;
WITH gone AS (DELETE FROM d WHERE id > 500 RETURNING id) SELECT (SELECT count(*) FROM gone) AS gone, (SELECT count(*) FROM d) AS before;
SELECT count(*) FROM d;
UPDATE d SET id = id + 1;
SELECT array_agg(id ORDER BY id) FROM d;
WITH moved AS (UPDATE d SET id = id - 1 RETURNING id)
    INSERT INTO d (id, t) SELECT id + 600, 'moved' FROM moved WHERE id < 3;
SELECT array_agg(id ORDER BY id) FROM d;
DELETE FROM d WHERE id > 600;

-- Joins, sublinks, aggregates, windows, set operations, LATERAL, system columns, whole rows.
CREATE FOREIGN TABLE d_other (id int, v text) SERVER gstore_fdw;
INSERT INTO d_other SELECT i, 'v' || i FROM generate_series(1, 30) i;
SELECT d.id, o.v FROM d JOIN d_other o USING (id) WHERE d.id < 4 ORDER BY 1;
SELECT count(*) FROM d LEFT JOIN d_other o ON o.id = d.id + 15 WHERE o.id IS NULL;
SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off;
SELECT count(*), sum(a.id * b.id) FROM d a, d_other b WHERE a.id = b.id;
RESET enable_hashjoin; RESET enable_mergejoin; RESET enable_material;
SELECT id FROM d WHERE EXISTS (SELECT FROM d_other o WHERE o.id = d.id AND o.v LIKE '%1') ORDER BY 1;
SELECT id, (SELECT max(o.v) FROM d_other o WHERE o.id < d.id) FROM d WHERE id < 4 ORDER BY 1;
SELECT id, sum(id) OVER (ORDER BY id) FROM d ORDER BY id LIMIT 3;
SELECT x.* FROM d, LATERAL (SELECT o.v, d.t FROM d_other o WHERE o.id = d.id) x WHERE d.id < 3 ORDER BY 1;
SELECT d FROM d WHERE id = 1;
SELECT tableoid::regclass, id FROM d WHERE id = 1;
SELECT FROM d WHERE id < 3;
SELECT count(*) FROM (SELECT id FROM d UNION SELECT id FROM d_other) x;

-- Prepared statements, generic plans too, see what comes between.
PREPARE by_id(int) AS SELECT id, t FROM d WHERE id = $1;
PREPARE add(int, text) AS INSERT INTO d (id, t) VALUES ($1, $2);
PREPARE change(int, text) AS UPDATE d SET t = $2 WHERE id = $1;
SET plan_cache_mode = force_generic_plan;
EXECUTE by_id(50);
EXECUTE add(50, 'prepared');
EXECUTE by_id(50);
EXECUTE change(50, 'changed');
EXECUTE by_id(50);
RESET plan_cache_mode;
DEALLOCATE ALL;

-- Cursors see the table as it was when they were declared.
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM d_other ORDER BY id;
DECLARE unsorted NO SCROLL CURSOR FOR SELECT id FROM d_other;
FETCH 2 FROM c;
FETCH 1 FROM unsorted;
INSERT INTO d_other VALUES (1000, 'late');
DELETE FROM d_other WHERE id BETWEEN 4 AND 29;
FETCH 2 FROM c;
MOVE FORWARD 25 IN c;
FETCH ALL FROM c;
MOVE FORWARD 27 IN unsorted;
FETCH ALL FROM unsorted;
FETCH BACKWARD 1 FROM c;
CLOSE c;
DECLARE late CURSOR FOR SELECT count(*) FROM d_other;
SELECT count(*) FROM d_other;
INSERT INTO d_other VALUES (1001, 'later');
FETCH ALL FROM late;
COMMIT;
SELECT array_agg(id ORDER BY id) FROM d_other;

BEGIN;
DECLARE held SCROLL CURSOR WITH HOLD FOR SELECT id FROM d_other ORDER BY id;
COMMIT;
TRUNCATE d_other;
FETCH ALL FROM held;
FETCH FIRST FROM held;
CLOSE held;

-- WHERE CURRENT OF needs a table that the server itself stores.
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM d;
FETCH 1 FROM c;
DELETE FROM d WHERE CURRENT OF c;
ROLLBACK;

-- A volatile function that reads the table while a statement changes it sees what was before the statement,
-- or, as it is volatile, what its own snapshot has.
CREATE FUNCTION d_count() RETURNS bigint LANGUAGE sql STABLE AS 'SELECT count(*) FROM d';
SELECT count(*) FROM d;
INSERT INTO d (id, n) SELECT i, d_count() FROM generate_series(60, 62) i;
SELECT id, n FROM d WHERE id >= 60 ORDER BY id;

-- Views, rules of views, MERGE (not for foreign tables), ON CONFLICT (no index).
CREATE VIEW d_view AS SELECT id, t FROM d WHERE id < 100 WITH CHECK OPTION;
INSERT INTO d_view VALUES (70, 'by view');
UPDATE d_view SET t = 'by view again' WHERE id = 70 RETURNING *;
\set VERBOSITY sqlstate
INSERT INTO d_view VALUES (101, 'out of sight');
SELECT count(*) FROM d WHERE id = 101;
MERGE INTO d USING d_local l ON d.id = l.id WHEN MATCHED THEN DELETE;
INSERT INTO d (id) VALUES (1) ON CONFLICT (id) DO NOTHING;
\set VERBOSITY default
INSERT INTO d (id) VALUES (71) ON CONFLICT DO NOTHING;
SELECT count(*) FROM d WHERE id = 71;

DROP VIEW d_view;
DROP FUNCTION d_count;
DROP FOREIGN TABLE d, d_other;
DROP TABLE d_local;
