-- Tables of unusual shape: empty, without columns, with dropped and added ones, children, partitions.
CREATE FOREIGN TABLE s (id int, t text) SERVER gstore_fdw;

-- Empty: never filled, emptied by DELETE, by TRUNCATE, by a transaction.
SELECT * FROM s;
SELECT count(*), sum(id), max(t) FROM s;
UPDATE s SET id = 1;
DELETE FROM s;
TRUNCATE s;
TRUNCATE s;
SELECT count(*) FROM s JOIN s b USING (id);
COPY s TO stdout;
COPY s FROM stdin;
\.
INSERT INTO s SELECT 1, 'x' WHERE false;
INSERT INTO s VALUES (1, 'one');
DELETE FROM s;
SELECT count(*) FROM s;
INSERT INTO s VALUES (2, 'two');
SELECT * FROM s;
BEGIN;
DELETE FROM s;
SELECT count(*) FROM s;
INSERT INTO s VALUES (3, 'three');
DELETE FROM s WHERE id = 3;
COMMIT;
SELECT count(*) FROM s;

-- Renaming the table, its schema, a column.
INSERT INTO s VALUES (4, 'four');
CREATE SCHEMA s_schema;
ALTER FOREIGN TABLE s RENAME COLUMN t TO text;
ALTER FOREIGN TABLE s SET SCHEMA s_schema;
ALTER FOREIGN TABLE s_schema.s RENAME TO renamed;
SELECT id, text FROM s_schema.renamed;
ALTER FOREIGN TABLE s_schema.renamed RENAME TO s;
ALTER FOREIGN TABLE s_schema.s SET SCHEMA public;
DROP SCHEMA s_schema;

-- Columns dropped before there are rows.
CREATE FOREIGN TABLE s_dropped (a int, b text, c int, d numeric) SERVER gstore_fdw;
ALTER FOREIGN TABLE s_dropped DROP COLUMN b;
ALTER FOREIGN TABLE s_dropped DROP COLUMN a;
INSERT INTO s_dropped VALUES (3, 3.5), (NULL, 4.5);
SELECT * FROM s_dropped ORDER BY d;
UPDATE s_dropped SET c = 4 WHERE c IS NULL RETURNING *;
DELETE FROM s_dropped WHERE c = 3 RETURNING *;
SELECT s_dropped FROM s_dropped;

-- Without columns there are still rows.
CREATE FOREIGN TABLE s_none () SERVER gstore_fdw;
INSERT INTO s_none DEFAULT VALUES;
INSERT INTO s_none SELECT FROM generate_series(1, 9);
SELECT count(*) FROM s_none;
DELETE FROM s_none;
SELECT count(*) FROM s_none;

-- Inheritance: as child of a local table.
CREATE TABLE s_parent (id int, t text);
INSERT INTO s_parent VALUES (100, 'parent');
ALTER FOREIGN TABLE s RENAME COLUMN text TO t;
ALTER FOREIGN TABLE s INHERIT s_parent;
SELECT tableoid::regclass, * FROM s_parent ORDER BY id;
UPDATE s_parent SET t = t || '!' RETURNING tableoid::regclass, *;
DELETE FROM s_parent WHERE id = 4 RETURNING tableoid::regclass, *;
SELECT tableoid::regclass, * FROM s_parent ORDER BY id;
-- A second child in GPU memory, with its columns in another order: what a deleted row was is known of each.
CREATE FOREIGN TABLE s_second (gone int) SERVER gstore_fdw;
ALTER FOREIGN TABLE s_second DROP COLUMN gone, ADD COLUMN t text, ADD COLUMN id int;
ALTER FOREIGN TABLE s_second INHERIT s_parent;
INSERT INTO s (id, t) VALUES (2, 'first'), (7, 'first'), (100, 'first');
INSERT INTO s_second (id, t) VALUES (2, 'second'), (7, 'second'), (100, 'second');
DELETE FROM s_parent WHERE id = 100 RETURNING tableoid::regclass, *, s_parent;
UPDATE s_parent SET t = t || '?' WHERE id = 7 RETURNING tableoid::regclass, *, s_parent;
DELETE FROM s_parent USING (VALUES (7, 'seven')) v (i, w) WHERE id = i RETURNING tableoid::regclass, s_parent.*, w;
WITH gone AS (DELETE FROM s_parent WHERE id = 2 RETURNING t) SELECT * FROM gone;
SELECT count(*) FROM s_parent;
DROP FOREIGN TABLE s_second;
ALTER FOREIGN TABLE s NO INHERIT s_parent;

SELECT greatest(count(*) - 1, 0) AS last FROM gstore_fdw_keeper_info \gset
-- Partitions of a local table, two in GPU memory, one in a heap, one with its columns in another order.
CREATE TABLE s_part (id int, t text DEFAULT 'none', n int) PARTITION BY RANGE (id);
CREATE FOREIGN TABLE s_part1 PARTITION OF s_part FOR VALUES FROM (0) TO (100) SERVER gstore_fdw;
CREATE FOREIGN TABLE s_part2 (n int, gone int, id int, t text) SERVER gstore_fdw OPTIONS (pinning :'last');
ALTER FOREIGN TABLE s_part2 DROP COLUMN gone;
ALTER TABLE s_part ATTACH PARTITION s_part2 FOR VALUES FROM (100) TO (200);
CREATE TABLE s_part3 PARTITION OF s_part DEFAULT;
INSERT INTO s_part VALUES (1, 'one', 1), (101, 'hundred and one', 1), (201, 'two hundred and one', 1);
INSERT INTO s_part (id, n) SELECT i, 0 FROM generate_series(10, 290, 20) i;
COPY s_part FROM stdin;
2	two	2
102	\N	2
202	copied	2
\.
SELECT tableoid::regclass, count(*), sum(id), sum(n) FROM s_part GROUP BY 1 ORDER BY 1;
SELECT tableoid::regclass, * FROM s_part WHERE n > 0 ORDER BY id;
SELECT * FROM s_part WHERE id = 102;
INSERT INTO s_part VALUES (3, 'routed', 3), (103, 'routed', 3), (203, 'routed', 3) RETURNING tableoid::regclass, *;

-- UPDATE of rows in place; of the key within its partition; from the heap to GPU memory (a row goes to a foreign
-- partition); out of GPU memory to another partition is refused, as the server moves no rows from foreign tables.
UPDATE s_part SET t = 'updated' WHERE n = 1;
UPDATE s_part SET id = id + 1 WHERE n = 3 RETURNING tableoid::regclass, id;
BEGIN;
DELETE FROM s_part WHERE n = 1 RETURNING tableoid::regclass, *;
UPDATE s_part SET n = 7 WHERE n = 2 RETURNING tableoid::regclass, *;
WITH gone AS (DELETE FROM s_part WHERE n = 7 RETURNING s_part) SELECT * FROM gone;
ROLLBACK;
UPDATE s_part SET id = 50 WHERE id = 202;
SELECT tableoid::regclass, * FROM s_part WHERE n > 0 ORDER BY id;
\set VERBOSITY sqlstate
UPDATE s_part SET id = 60 WHERE id = 102;
UPDATE s_part SET id = 260 WHERE id = 1;
\set VERBOSITY default
SELECT tableoid::regclass, * FROM s_part WHERE id IN (1, 60, 102, 260) ORDER BY id;
DELETE FROM s_part WHERE n = 0;
SELECT tableoid::regclass, count(*) FROM s_part GROUP BY 1 ORDER BY 1;
BEGIN;
TRUNCATE s_part;
SELECT count(*) FROM s_part;
ROLLBACK;
SELECT count(*) FROM s_part;
ALTER TABLE s_part DETACH PARTITION s_part2;
SELECT id, t, n FROM s_part2 ORDER BY id;
-- A row that does not belong to the partition that it is put into directly, or by a trigger.
\set VERBOSITY sqlstate
COPY s_part1 FROM stdin;
150	wrong place	0
\.
INSERT INTO s_part1 VALUES (150, 'wrong place', 0);
CREATE FUNCTION s_astray() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.id := 150; RETURN NEW; END $$;
CREATE TRIGGER astray BEFORE INSERT ON s_part1 FOR EACH ROW EXECUTE FUNCTION s_astray();
INSERT INTO s_part VALUES (5, 'led astray', 0);
DROP TRIGGER astray ON s_part1;
DROP FUNCTION s_astray;
\set VERBOSITY default
SELECT count(*) FROM s_part1 WHERE id = 150;

-- What the server does not do to foreign tables, it says itself.
\set VERBOSITY sqlstate
CREATE INDEX ON s (id);
ALTER FOREIGN TABLE s ADD PRIMARY KEY (id);
VACUUM s;
CLUSTER s;
BEGIN;
LOCK TABLE s;
ROLLBACK;
SELECT * FROM s FOR UPDATE;
\set VERBOSITY default

DROP TABLE s_part, s_parent;
DROP FOREIGN TABLE s, s_dropped, s_none, s_part2;
