-- ALTER TABLE on tables that have rows: what the server does to a heap is done, or refused with a reason.
SELECT greatest(count(*) - 1, 0) AS last FROM gstore_fdw_keeper_info \gset
CREATE FOREIGN TABLE al (id int, t text, n numeric) SERVER gstore_fdw;
INSERT INTO al SELECT i, 'row ' || i, i / 4.0 FROM generate_series(1, 5) i;
INSERT INTO al VALUES (6);

-- ---- ADD COLUMN: without a default NULL; with one, constant or not, the rows have it.
ALTER FOREIGN TABLE al ADD COLUMN plain int;
ALTER FOREIGN TABLE al ADD COLUMN seven int DEFAULT 7, ADD COLUMN words text DEFAULT 'so' || ' many', ADD COLUMN filled int NOT NULL DEFAULT 1;
ALTER FOREIGN TABLE al ADD COLUMN doubled int GENERATED ALWAYS AS (id * 2) STORED;
CREATE SEQUENCE al_numbers;
ALTER FOREIGN TABLE al ADD COLUMN counted int DEFAULT nextval('al_numbers');
SELECT * FROM al ORDER BY id;
SELECT count(DISTINCT counted) AS evaluated_by_row FROM al;
INSERT INTO al (id) VALUES (7) RETURNING *;
ALTER FOREIGN TABLE al ADD COLUMN IF NOT EXISTS seven int DEFAULT 8;
SELECT sum(seven) FROM al;
-- Options of the new column make no difference to that.
ALTER FOREIGN TABLE al ADD COLUMN packed text OPTIONS (compression 'pglz') DEFAULT 'packed' NOT NULL;
SELECT count(packed), max(packed) FROM al;
ALTER FOREIGN TABLE al DROP COLUMN packed;
-- It fails where a row would break a rule, and leaves nothing.
\set VERBOSITY sqlstate
ALTER FOREIGN TABLE al ADD COLUMN missing int NOT NULL;
ALTER FOREIGN TABLE al ADD COLUMN low int DEFAULT 0 CHECK (low > 0);
ALTER FOREIGN TABLE al ADD COLUMN broken int DEFAULT 1 / (SELECT 0);
ALTER FOREIGN TABLE al ADD COLUMN broken int GENERATED ALWAYS AS (1 / (id - 3)) STORED;
ALTER FOREIGN TABLE al ADD COLUMN seven int;
CREATE DOMAIN al_given AS int NOT NULL;
CREATE DOMAIN al_small AS int CHECK (value < 10);
CREATE DOMAIN al_two AS int DEFAULT 2 CHECK (value = 2);
ALTER FOREIGN TABLE al ADD COLUMN given al_given;
ALTER FOREIGN TABLE al ADD COLUMN small al_small DEFAULT 10;
ALTER FOREIGN TABLE al ADD COLUMN given al_given DEFAULT NULL;
\set VERBOSITY default
ALTER FOREIGN TABLE al ADD COLUMN small al_small, ADD COLUMN two al_two;
SELECT count(*), count(small), sum(two) FROM al;
SELECT attname, attnotnull, atthasdef FROM pg_attribute WHERE attrelid = 'al'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum;

-- ---- DROP COLUMN, RENAME COLUMN: at once, whatever the number of rows.
ALTER FOREIGN TABLE al DROP COLUMN words, DROP COLUMN plain, DROP COLUMN IF EXISTS never_there;
ALTER FOREIGN TABLE al DROP COLUMN doubled, DROP COLUMN small, DROP COLUMN two, DROP COLUMN counted;
ALTER FOREIGN TABLE al RENAME COLUMN seven TO eight;
ALTER FOREIGN TABLE al RENAME t TO "Text";
SELECT * FROM al ORDER BY id;
ALTER FOREIGN TABLE al ADD COLUMN words date;
SELECT count(words) AS not_the_old_ones FROM al;
ALTER FOREIGN TABLE al DROP COLUMN words;
ALTER FOREIGN TABLE al RENAME "Text" TO t;
CREATE VIEW al_view AS SELECT n FROM al;
\set VERBOSITY sqlstate
ALTER FOREIGN TABLE al DROP COLUMN n;
ALTER FOREIGN TABLE al RENAME COLUMN eight TO id;
ALTER FOREIGN TABLE al DROP COLUMN never_there;
\set VERBOSITY terse
ALTER FOREIGN TABLE al DROP COLUMN n CASCADE;
\set VERBOSITY default
SELECT * FROM al ORDER BY id LIMIT 1;

-- ---- TYPE: where bytes stay what they are; else refused, with a way round.
CREATE FOREIGN TABLE al_type (id int, v varchar(10), x text, f float4) SERVER gstore_fdw;
INSERT INTO al_type VALUES (1, 'one', 'eins', 1.5), (2, NULL, NULL, NULL);
ALTER FOREIGN TABLE al_type ALTER COLUMN v TYPE varchar(20);
ALTER FOREIGN TABLE al_type ALTER COLUMN v TYPE text;
ALTER FOREIGN TABLE al_type ALTER COLUMN x TYPE varchar;
ALTER FOREIGN TABLE al_type ALTER COLUMN id TYPE oid;
SELECT id, v, x, pg_typeof(id), pg_typeof(v), pg_typeof(x) FROM al_type ORDER BY id;
ALTER FOREIGN TABLE al_type ALTER COLUMN f TYPE float8;
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY sqlstate
ALTER FOREIGN TABLE al_type ALTER COLUMN x TYPE varchar(2);
ALTER FOREIGN TABLE al_type ALTER COLUMN x TYPE bytea USING x::bytea;
ALTER FOREIGN TABLE al_type ALTER COLUMN id TYPE al_small USING id::int;
\set VERBOSITY default
SELECT * FROM al_type ORDER BY id;
-- The way round.
ALTER FOREIGN TABLE al_type ADD COLUMN f8 float8;
UPDATE al_type SET f8 = f;
ALTER FOREIGN TABLE al_type DROP COLUMN f;
ALTER FOREIGN TABLE al_type RENAME COLUMN f8 TO f;
SELECT * FROM al_type ORDER BY id;
-- Without rows every change goes.
BEGIN;
TRUNCATE al_type;
ALTER FOREIGN TABLE al_type ALTER COLUMN f TYPE int, ALTER COLUMN id TYPE text;
INSERT INTO al_type VALUES ('id', 'v', 'x', 5);
SELECT * FROM al_type;
ROLLBACK;
SELECT * FROM al_type ORDER BY id;
DELETE FROM al_type;
ALTER FOREIGN TABLE al_type ALTER COLUMN f TYPE numeric(10, 2);
INSERT INTO al_type VALUES (3, 'v', 'x', 2.345);
SELECT * FROM al_type;

-- ---- DEFAULT: for rows to come.
ALTER FOREIGN TABLE al ALTER COLUMN t SET DEFAULT 'new';
INSERT INTO al (id) VALUES (8);
ALTER FOREIGN TABLE al ALTER COLUMN t DROP DEFAULT;
INSERT INTO al (id) VALUES (9);
SELECT id, t FROM al WHERE id > 5 ORDER BY id;

-- ---- tableoid in what is computed and checked of the rows that are there.
ALTER FOREIGN TABLE al ADD COLUMN own oid GENERATED ALWAYS AS (tableoid) STORED, ADD CHECK (tableoid = 'al'::regclass);
SELECT count(*) FROM al WHERE own <> 'al'::regclass;
ALTER FOREIGN TABLE al DROP CONSTRAINT al_tableoid_check, DROP COLUMN own;

-- ---- NOT NULL and CHECK: checked against the rows.
\set VERBOSITY terse
ALTER FOREIGN TABLE al ALTER COLUMN t SET NOT NULL;
ALTER FOREIGN TABLE al ADD CONSTRAINT id_small CHECK (id < 9);
ALTER FOREIGN TABLE al ADD CHECK (id > 0), ADD CHECK (length(t) > 100);
\set VERBOSITY default
INSERT INTO al VALUES (10, NULL);
ALTER FOREIGN TABLE al ALTER COLUMN id SET NOT NULL;
ALTER FOREIGN TABLE al ADD CONSTRAINT id_large CHECK (id > 0);
\set VERBOSITY sqlstate
INSERT INTO al VALUES (NULL, 'x');
INSERT INTO al VALUES (-1, 'x');
UPDATE al SET id = -id WHERE id = 1;
\set VERBOSITY default
ALTER FOREIGN TABLE al ALTER COLUMN id DROP NOT NULL;
INSERT INTO al VALUES (NULL, 'no id');
\set VERBOSITY sqlstate
ALTER FOREIGN TABLE al ALTER COLUMN id SET NOT NULL;
\set VERBOSITY default
DELETE FROM al WHERE id IS NULL;
ALTER FOREIGN TABLE al ALTER COLUMN id SET NOT NULL;
-- A NULL of a row that is deleted, or of a column that was dropped, does not count.
ALTER FOREIGN TABLE al ADD COLUMN empty int;
ALTER FOREIGN TABLE al DROP COLUMN empty;
ALTER FOREIGN TABLE al ALTER COLUMN filled SET NOT NULL;
-- NOT VALID: new rows alone; old ones when it is validated, and not by what else is altered.
ALTER FOREIGN TABLE al ADD CONSTRAINT later CHECK (id < 9) NOT VALID;
\set VERBOSITY sqlstate
INSERT INTO al VALUES (11, 'x');
\set VERBOSITY default
ALTER FOREIGN TABLE al ADD COLUMN another int DEFAULT 3;
ALTER FOREIGN TABLE al ALTER COLUMN eight SET NOT NULL;
ALTER FOREIGN TABLE al ADD CONSTRAINT also CHECK (another = 3);
SELECT count(*), sum(another) FROM al;
SELECT conname, convalidated FROM pg_constraint WHERE conrelid = 'al'::regclass AND contype = 'c' ORDER BY 1;
\set VERBOSITY sqlstate
ALTER FOREIGN TABLE al VALIDATE CONSTRAINT later;
\set VERBOSITY default
DELETE FROM al WHERE id >= 9;
ALTER FOREIGN TABLE al VALIDATE CONSTRAINT later;
ALTER FOREIGN TABLE al VALIDATE CONSTRAINT later;
SELECT conname, convalidated FROM pg_constraint WHERE conrelid = 'al'::regclass AND contype = 'c' ORDER BY 1;
ALTER TABLE al RENAME CONSTRAINT later TO sooner;
ALTER FOREIGN TABLE al DROP CONSTRAINT sooner, DROP CONSTRAINT id_large, DROP CONSTRAINT also;
INSERT INTO al VALUES (-12, 'x');

-- ---- OPTIONS: of rows that are there, neither device nor format changes; compression is for rows to come.
\set VERBOSITY terse
CREATE FOREIGN TABLE al_options (id int, t text OPTIONS (compression 'none')) SERVER gstore_fdw OPTIONS (pinning '0');
INSERT INTO al_options SELECT i, repeat('compressible ', 100) FROM generate_series(1, 100) i;
SELECT gstore_fdw_rawsize('al_options') > 100000 AS flat;
ALTER FOREIGN TABLE al_options ALTER COLUMN t OPTIONS (SET compression 'pglz');
SELECT count(*), max(length(t)) FROM al_options;
INSERT INTO al_options SELECT i, repeat('compressible ', 100) FROM generate_series(101, 200) i;
SELECT count(*), min(length(t)), max(length(t)) FROM al_options;
DELETE FROM al_options WHERE id % 2 = 0;
SELECT gstore_fdw_compact('al_options') >= 0 AS compacted;
SELECT count(*), min(length(t)), max(length(t)) FROM al_options;
ALTER FOREIGN TABLE al_options ALTER COLUMN t OPTIONS (DROP compression);
INSERT INTO al_options VALUES (0, 'flat again');
SELECT count(*), sum(length(t)) FROM al_options;
ALTER FOREIGN TABLE al_options OPTIONS (SET pinning '0');
ALTER FOREIGN TABLE al_options OPTIONS (ADD format 'pgstrom');
ALTER FOREIGN TABLE al_options OPTIONS (DROP format);
\set VERBOSITY sqlstate
ALTER FOREIGN TABLE al_options OPTIONS (SET pinning '14');
ALTER FOREIGN TABLE al_options OPTIONS (DROP nothing);
\set VERBOSITY default
SELECT ftoptions, (SELECT count(*) FROM al_options) FROM pg_foreign_table WHERE ftrelid = 'al_options'::regclass;
-- Without rows there is nothing in the way.
TRUNCATE al_options;
ALTER FOREIGN TABLE al_options OPTIONS (SET pinning :'last');
INSERT INTO al_options VALUES (1, 'there');
SELECT pinning = :last AS pinning, (SELECT count(*) FROM al_options) FROM gstore_fdw_chunk_info
    WHERE table_oid = 'al_options'::regclass AND nitems = 1;

-- ---- OWNER, SET SCHEMA, RENAME: the rows come along.
CREATE ROLE al_owner;
CREATE SCHEMA al_schema;
GRANT USAGE ON SCHEMA al_schema TO al_owner;
ALTER FOREIGN TABLE al_options OWNER TO al_owner;
ALTER FOREIGN TABLE al_options SET SCHEMA al_schema;
ALTER FOREIGN TABLE al_schema.al_options RENAME TO renamed;
SET ROLE al_owner;
SELECT * FROM al_schema.renamed;
INSERT INTO al_schema.renamed VALUES (2, 'by its owner');
SELECT gstore_fdw_nitems('al_schema.renamed');
RESET ROLE;
ALTER FOREIGN TABLE al_schema.renamed OWNER TO CURRENT_USER;
SET ROLE al_owner;
\set VERBOSITY sqlstate
SELECT * FROM al_schema.renamed;
ALTER FOREIGN TABLE al_schema.renamed RENAME TO mine;
\set VERBOSITY default
RESET ROLE;
ALTER FOREIGN TABLE al_schema.renamed SET SCHEMA public;
SELECT * FROM renamed ORDER BY id;
-- ALTER TABLE is as good as ALTER FOREIGN TABLE; what only a heap has is refused.
ALTER TABLE renamed ADD COLUMN by_table int DEFAULT 4;
SELECT * FROM renamed ORDER BY id;
\set VERBOSITY sqlstate
ALTER TABLE renamed ADD UNIQUE (id);
ALTER TABLE renamed SET TABLESPACE pg_default;
ALTER TABLE renamed SET (fillfactor = 50);
ALTER TABLE renamed ENABLE ROW LEVEL SECURITY;
ALTER TABLE renamed SET UNLOGGED;
ALTER TABLE renamed REPLICA IDENTITY FULL;
\set VERBOSITY default

-- ---- In transactions: undone with them, by savepoints, on rows of the same transaction.
CREATE FOREIGN TABLE al_tx (id int, t text) SERVER gstore_fdw;
INSERT INTO al_tx VALUES (1, 'committed');
BEGIN;
ALTER FOREIGN TABLE al_tx ADD COLUMN added int DEFAULT 5;
ALTER FOREIGN TABLE al_tx DROP COLUMN t;
INSERT INTO al_tx VALUES (2, 6);
SELECT * FROM al_tx ORDER BY id;
ROLLBACK;
SELECT * FROM al_tx;
BEGIN;
INSERT INTO al_tx VALUES (2, 'own');
SAVEPOINT one;
ALTER FOREIGN TABLE al_tx ADD COLUMN added int DEFAULT 5;
UPDATE al_tx SET added = 6 WHERE id = 2;
SAVEPOINT two;
ALTER FOREIGN TABLE al_tx DROP COLUMN t, ADD COLUMN t text DEFAULT 'afresh';
SELECT * FROM al_tx ORDER BY id;
ROLLBACK TO two;
SELECT * FROM al_tx ORDER BY id;
ROLLBACK TO one;
SELECT * FROM al_tx ORDER BY id;
ALTER FOREIGN TABLE al_tx ADD COLUMN added int DEFAULT 7;
INSERT INTO al_tx VALUES (3, 'after', 8);
COMMIT;
SELECT * FROM al_tx ORDER BY id;
BEGIN;
SAVEPOINT one;
\set VERBOSITY sqlstate
ALTER FOREIGN TABLE al_tx ALTER COLUMN id TYPE bigint;
ROLLBACK TO one;
INSERT INTO al_tx VALUES (4, NULL, 9);
ALTER FOREIGN TABLE al_tx ALTER COLUMN t SET NOT NULL;
ROLLBACK TO one;
\set VERBOSITY default
ALTER FOREIGN TABLE al_tx ALTER COLUMN t SET NOT NULL;
TRUNCATE al_tx;
ALTER FOREIGN TABLE al_tx ALTER COLUMN id TYPE bigint, ADD COLUMN more int NOT NULL;
INSERT INTO al_tx VALUES (1::bigint << 40, 'large', 10, 11);
SELECT * FROM al_tx;
ROLLBACK;
SELECT * FROM al_tx ORDER BY id;
-- An exception block is a savepoint.
DO $$
BEGIN
    ALTER FOREIGN TABLE al_tx ADD COLUMN gone int DEFAULT 1;
    RAISE EXCEPTION 'undo';
EXCEPTION WHEN raise_exception THEN
    INSERT INTO al_tx VALUES (5, 'caught', 1);
END $$;
SELECT * FROM al_tx ORDER BY id;

-- ---- By their parents.
CREATE TABLE al_parent (id int, t text);
ALTER FOREIGN TABLE al_tx INHERIT al_parent;
ALTER TABLE al_parent ADD COLUMN from_parent int DEFAULT 12, ALTER COLUMN id SET NOT NULL, ADD CHECK (id < 100);
SELECT * FROM al_tx ORDER BY id;
\set VERBOSITY sqlstate
ALTER TABLE al_parent ADD CHECK (id < 5);
ALTER TABLE al_parent ALTER COLUMN id TYPE bigint;
\set VERBOSITY default
ALTER TABLE al_parent RENAME COLUMN t TO s;
ALTER TABLE al_parent DROP COLUMN s;
SELECT * FROM al_parent ORDER BY id;
ALTER FOREIGN TABLE al_tx NO INHERIT al_parent;
-- As a partition: rows that are outside its bounds keep a table out. (Other wrappers' tables are not looked into.)
CREATE TABLE al_part (id int) PARTITION BY RANGE (id);
CREATE FOREIGN TABLE al_part1 (id int) SERVER gstore_fdw;
INSERT INTO al_part1 VALUES (1), (2), (99);
\set VERBOSITY terse
ALTER TABLE al_part ATTACH PARTITION al_part1 FOR VALUES FROM (0) TO (10);
\echo :LAST_ERROR_SQLSTATE
ALTER TABLE al_part ATTACH PARTITION al_part1 FOR VALUES FROM (0) TO (100);
SELECT count(*) FROM al_part WHERE id = 99;
-- The CHECK that is left by this says that all rows are within the bounds.
ALTER TABLE al_part DETACH PARTITION al_part1 CONCURRENTLY;
SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'al_part1'::regclass;
ALTER TABLE al_part ATTACH PARTITION al_part1 FOR VALUES FROM (0) TO (100);
SELECT count(*) FROM al_part WHERE id = 99;
ALTER TABLE al_part DETACH PARTITION al_part1;
ALTER FOREIGN TABLE al_part1 DROP CONSTRAINT al_part1_id_check;
-- Also below a partitioned table.
CREATE TABLE al_part_sub (id int) PARTITION BY RANGE (id);
ALTER TABLE al_part_sub ATTACH PARTITION al_part1 DEFAULT;
ALTER TABLE al_part ATTACH PARTITION al_part_sub FOR VALUES FROM (0) TO (10);
ALTER TABLE al_part ATTACH PARTITION al_part_sub FOR VALUES FROM (0) TO (100);
\set VERBOSITY default
SELECT tableoid::regclass, id FROM al_part ORDER BY id;
-- A NULL has no place in a range; what is deleted has none to look for.
BEGIN;
ALTER TABLE al_part DETACH PARTITION al_part_sub;
INSERT INTO al_part1 VALUES (NULL);
SAVEPOINT s;
\set VERBOSITY terse
ALTER TABLE al_part ATTACH PARTITION al_part_sub FOR VALUES FROM (0) TO (100);
\set VERBOSITY default
ROLLBACK TO s;
DELETE FROM al_part1 WHERE id IS NULL OR id = 99;
ALTER TABLE al_part ATTACH PARTITION al_part_sub FOR VALUES FROM (0) TO (10);
COMMIT;
SELECT count(*) FROM al_part;

-- As the default partition, it keeps out a new one to which some of its rows belong.
\set VERBOSITY terse
CREATE TABLE al_all (id int) PARTITION BY RANGE (id);
CREATE FOREIGN TABLE al_rest PARTITION OF al_all DEFAULT SERVER gstore_fdw;
INSERT INTO al_all VALUES (1), (11), (NULL);
CREATE TABLE al_first PARTITION OF al_all FOR VALUES FROM (0) TO (10);
CREATE TABLE al_third (id int);
ALTER TABLE al_all ATTACH PARTITION al_third FOR VALUES FROM (10) TO (20);
ALTER TABLE al_all ATTACH PARTITION al_third FOR VALUES FROM (20) TO (30);
DELETE FROM al_rest WHERE id = 1;
SET client_min_messages = error;
CREATE TABLE al_first PARTITION OF al_all FOR VALUES FROM (0) TO (10);
RESET client_min_messages;
INSERT INTO al_all VALUES (1), (21);
SELECT tableoid::regclass, id FROM al_all ORDER BY id;
DROP TABLE al_all;
\set VERBOSITY default

-- ---- Types of which a column is made.
CREATE TYPE al_pair AS (a int, b text);
CREATE DOMAIN al_pairs AS al_pair[];
CREATE TABLE al_heap (a int, b text);
CREATE FOREIGN TABLE al_of (p al_pair, d al_pairs, h al_heap) SERVER gstore_fdw;
INSERT INTO al_of VALUES ((1, 'one'), ARRAY[(2, 'two')::al_pair], (3, 'three'));
ALTER TYPE al_pair ADD ATTRIBUTE c int;
ALTER TYPE al_pair RENAME ATTRIBUTE b TO bb;
SELECT * FROM al_of;
\set VERBOSITY sqlstate
ALTER TYPE al_pair ALTER ATTRIBUTE a TYPE text;
ALTER TABLE al_heap ALTER COLUMN a TYPE text;
\set VERBOSITY default
SELECT p, (d[1]).bb, (h).a FROM al_of;
CREATE TYPE al_mood AS ENUM ('sad', 'ok');
CREATE FOREIGN TABLE al_enum (m al_mood) SERVER gstore_fdw;
INSERT INTO al_enum VALUES ('ok');
ALTER TYPE al_mood ADD VALUE 'better' BEFORE 'ok';
INSERT INTO al_enum VALUES ('better');
SELECT * FROM al_enum WHERE m > 'sad' ORDER BY m;

-- A domain's new rule: the server does not look into foreign tables; new rows obey it.
CREATE FOREIGN TABLE al_domain (s al_small) SERVER gstore_fdw;
INSERT INTO al_domain VALUES (1), (2);
ALTER DOMAIN al_small ADD CHECK (value <> 1);
\set VERBOSITY sqlstate
INSERT INTO al_domain VALUES (1);
\set VERBOSITY default
SELECT * FROM al_domain ORDER BY s;

-- A column whose rows are of a type that is gone.
CREATE DOMAIN al_gone AS text;
CREATE FOREIGN TABLE al_left (id int, t al_gone) SERVER gstore_fdw;
INSERT INTO al_left VALUES (1, 'one'), (2, 'two');
BEGIN;
ALTER FOREIGN TABLE al_left ALTER t TYPE text;
DROP DOMAIN al_gone;
SELECT * FROM al_left ORDER BY id;
SET LOCAL gstore_fdw.gpu_startup_cost = 0;
SET LOCAL gstore_fdw.gpu_instruction_cost = 0;
SELECT count(*), min(id) FROM al_left WHERE t <> 'one';
SAVEPOINT s;
\set VERBOSITY sqlstate
ALTER FOREIGN TABLE al_left ALTER t TYPE jsonb;
ROLLBACK TO s;
COMMIT;
ALTER FOREIGN TABLE al_left ALTER t TYPE jsonb;
ALTER FOREIGN TABLE al_left ALTER t TYPE bytea;
\set VERBOSITY default
SELECT * FROM al_left ORDER BY id;
SET gstore_fdw.gpu_startup_cost = 0;
SET gstore_fdw.gpu_instruction_cost = 0;
SELECT count(*), min(id) FROM al_left WHERE t <> 'one';
RESET gstore_fdw.gpu_startup_cost;
RESET gstore_fdw.gpu_instruction_cost;
SELECT count(DISTINCT table_oid) FROM gstore_fdw_chunk_info WHERE table_oid = 'al_left'::regclass;
DELETE FROM al_left WHERE id = 1;
SELECT gstore_fdw_compact('al_left');
ALTER FOREIGN TABLE al_left ADD n int DEFAULT 5;
\set VERBOSITY sqlstate
ALTER FOREIGN TABLE al_left ALTER t TYPE bytea;
\set VERBOSITY default
INSERT INTO al_left VALUES (3, 'three', 3);
SELECT * FROM al_left ORDER BY id;
TRUNCATE al_left;
DROP FOREIGN TABLE al_left;

DROP FOREIGN TABLE al_domain, al, al_type, renamed, al_tx, al_of, al_enum;
DROP TABLE al_part, al_parent, al_heap;
DROP SEQUENCE al_numbers;
DROP DOMAIN al_given, al_small, al_two, al_pairs;
DROP TYPE al_pair, al_mood;
DROP SCHEMA al_schema;
DROP ROLE al_owner;
