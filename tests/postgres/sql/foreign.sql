-- What PostgreSQL does not do for foreign tables, and what it says; docs/gstore-limits.md lists it with what to do instead.
CREATE FOREIGN TABLE fo (id int, t text) SERVER gstore_fdw;
INSERT INTO fo VALUES (1, 'one'), (2, 'two');
CREATE TABLE fo_local (id int PRIMARY KEY, t text);
INSERT INTO fo_local VALUES (2, 'TWO'), (3, 'THREE');

-- COPY ... FREEZE, which pgbench -i uses, and COPY TO from the table itself.
BEGIN;
TRUNCATE fo;
COPY fo FROM stdin WITH (FREEZE);
4	four
\.
ROLLBACK;
COPY fo TO stdout;
\echo :LAST_ERROR_SQLSTATE
COPY (SELECT * FROM fo ORDER BY id) TO stdout;

-- Changing: MERGE, ON CONFLICT, WHERE CURRENT OF.
MERGE INTO fo USING fo_local l ON fo.id = l.id WHEN MATCHED THEN UPDATE SET t = l.t WHEN NOT MATCHED THEN INSERT VALUES (l.id, l.t);
\echo :LAST_ERROR_SQLSTATE
INSERT INTO fo VALUES (1, 'again') ON CONFLICT (id) DO NOTHING;
\echo :LAST_ERROR_SQLSTATE
BEGIN;
DECLARE c CURSOR FOR SELECT * FROM fo FOR UPDATE;
FETCH c;
DELETE FROM fo WHERE CURRENT OF c;
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;

-- Shapes.
ALTER FOREIGN TABLE fo ALTER COLUMN id TYPE bigint USING id * 2;
\echo :LAST_ERROR_SQLSTATE
IMPORT FOREIGN SCHEMA public FROM SERVER gstore_fdw INTO public;
\echo :LAST_ERROR_SQLSTATE
CREATE RULE fo_rule AS ON INSERT TO fo DO INSTEAD NOTHING;
\echo :LAST_ERROR_SQLSTATE

-- In their places: a join, a condition, a ctid.
WITH changed AS (UPDATE fo SET t = l.t FROM fo_local l WHERE fo.id = l.id RETURNING fo.id)
    INSERT INTO fo SELECT * FROM fo_local l WHERE NOT EXISTS (SELECT FROM fo WHERE fo.id = l.id);
SELECT * FROM fo ORDER BY id;
BEGIN;
DECLARE c CURSOR FOR SELECT ctid AS place, * FROM fo WHERE id = 3 FOR UPDATE;
FETCH c \gset
DELETE FROM fo WHERE ctid = :'place';
COMMIT;
SELECT count(*) FROM fo;

-- Triggers: of transition tables, and constraint triggers.
CREATE FUNCTION fo_note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER fo_new AFTER INSERT ON fo REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION fo_note();
\echo :LAST_ERROR_SQLSTATE
CREATE CONSTRAINT TRIGGER fo_late AFTER INSERT ON fo DEFERRABLE FOR EACH ROW EXECUTE FUNCTION fo_note();
\echo :LAST_ERROR_SQLSTATE

-- Keys and indexes.
ALTER FOREIGN TABLE fo ADD PRIMARY KEY (id);
\echo :LAST_ERROR_SQLSTATE
ALTER FOREIGN TABLE fo ADD UNIQUE (id);
\echo :LAST_ERROR_SQLSTATE
ALTER FOREIGN TABLE fo ADD FOREIGN KEY (id) REFERENCES fo_local;
\echo :LAST_ERROR_SQLSTATE
CREATE INDEX ON fo (id);
\echo :LAST_ERROR_SQLSTATE

-- Commands that are about a table's own files, rows or locks.
BEGIN;
LOCK TABLE fo;
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
SELECT * FROM fo TABLESAMPLE SYSTEM (10);
\echo :LAST_ERROR_SQLSTATE
VACUUM fo;
CLUSTER fo USING fo_index;
\echo :LAST_ERROR_SQLSTATE
ALTER TABLE fo ENABLE ROW LEVEL SECURITY;
\echo :LAST_ERROR_SQLSTATE
CREATE PUBLICATION fo_publication FOR TABLE fo;
\echo :LAST_ERROR_SQLSTATE

-- Partitions: rows are routed into foreign ones, and not moved out of them.
CREATE TABLE fo_all (id int, t text) PARTITION BY RANGE (id);
CREATE FOREIGN TABLE fo_low PARTITION OF fo_all FOR VALUES FROM (0) TO (10) SERVER gstore_fdw;
CREATE FOREIGN TABLE fo_mid PARTITION OF fo_all FOR VALUES FROM (10) TO (20) SERVER gstore_fdw;
CREATE TABLE fo_high PARTITION OF fo_all FOR VALUES FROM (20) TO (30);
ALTER FOREIGN TABLE fo_mid ADD CHECK (t <> 'never');
INSERT INTO fo_all VALUES (1, 'low'), (11, 'mid'), (21, 'high'), (22, 'higher');
UPDATE fo_all SET id = 12 WHERE id = 1;
\echo :LAST_ERROR_SQLSTATE
UPDATE fo_all SET id = 23 WHERE id = 11;
\echo :LAST_ERROR_SQLSTATE
UPDATE fo_all SET id = 99, t = 'never' WHERE id = 11;
\echo :LAST_ERROR_SQLSTATE
UPDATE fo_mid SET id = 23 WHERE id = 11;
\echo :LAST_ERROR_SQLSTATE
UPDATE fo_all SET id = id + 1 WHERE id IN (1, 11);
WITH gone AS (DELETE FROM fo_all WHERE id = 2 RETURNING *) INSERT INTO fo_all SELECT id + 20, t FROM gone;
UPDATE fo_all SET id = 5 WHERE id = 21;
SELECT tableoid::regclass, * FROM fo_all ORDER BY id;
ALTER TABLE fo_all ADD PRIMARY KEY (id);
\echo :LAST_ERROR_SQLSTATE
-- A row that comes to a foreign partition which the same statement changes, too.
CREATE TABLE fo_in (id int, t text) PARTITION BY RANGE (id);
CREATE TABLE fo_in_low PARTITION OF fo_in FOR VALUES FROM (0) TO (10);
CREATE FOREIGN TABLE fo_in_high PARTITION OF fo_in FOR VALUES FROM (10) TO (20) SERVER gstore_fdw;
INSERT INTO fo_in VALUES (1, 'low'), (11, 'high'), (12, 'higher');
UPDATE fo_in SET id = 15 RETURNING tableoid::regclass, *;
SELECT tableoid::regclass, * FROM fo_in ORDER BY t;
INSERT INTO fo_in VALUES (2, 'second'), (3, 'third');
UPDATE fo_in SET id = 16 WHERE id > 1;
SELECT tableoid::regclass, id, count(*) FROM fo_in GROUP BY 1, 2;
COPY fo_in FROM stdin;
4	copied
17	copied
\.
-- No MERGE changes foreign partitions; one that changes others may add rows to them.
MERGE INTO fo_in USING (VALUES (4), (18)) new (id) ON fo_in.id = new.id
    WHEN MATCHED THEN UPDATE SET id = 19 WHEN NOT MATCHED THEN INSERT VALUES (new.id, 'merged');
MERGE INTO fo_in USING (VALUES (4), (18)) new (id) ON fo_in.id = new.id AND fo_in.id < 10
    WHEN MATCHED THEN UPDATE SET id = 19 WHEN NOT MATCHED THEN INSERT VALUES (new.id, 'merged');
SELECT tableoid::regclass, * FROM fo_in WHERE id > 16 ORDER BY id;
DROP TABLE fo_in;

DROP TABLE fo_all, fo_local;
DROP FOREIGN TABLE fo;
DROP FUNCTION fo_note;
