-- Tables that go with something else: with their owner, schema, server, extension. Their memory is given back, as the
-- keeper's view shows, whose figures are those of the last second; a rollback brings rows and memory back.
CREATE FUNCTION memory_becomes(at_least bigint, at_most bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..300 LOOP
        IF (SELECT sum(device_resident + device_on_host) BETWEEN at_least AND at_most FROM gstore_fdw_keeper_info) THEN
            RETURN true;
        END IF;
        PERFORM pg_sleep(0.1);
    END LOOP;
    RAISE NOTICE 'it is %', (SELECT sum(device_resident + device_on_host) FROM gstore_fdw_keeper_info);
    RETURN false;
END $$;
CREATE FUNCTION objects_become(wanted bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..300 LOOP
        IF (SELECT sum(objects) = wanted FROM gstore_fdw_keeper_info) THEN
            RETURN true;
        END IF;
        PERFORM pg_sleep(0.1);
    END LOOP;
    RAISE NOTICE 'there are %', (SELECT sum(objects) FROM gstore_fdw_keeper_info);
    RETURN false;
END $$;
CREATE FUNCTION versions_become(wanted bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..300 LOOP
        IF (SELECT count(*) = wanted FROM gstore_fdw_chunk_info) THEN
            RETURN true;
        END IF;
        PERFORM pg_sleep(0.1);
    END LOOP;
    RETURN false;
END $$;
CREATE FUNCTION fill(name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('INSERT INTO %s SELECT i, i FROM generate_series(1, 1000000) i', name);
END $$;
CREATE ROLE ow_one;
CREATE ROLE ow_two;
GRANT USAGE ON FOREIGN SERVER gstore_fdw TO ow_one;
GRANT CREATE ON SCHEMA public TO ow_one, ow_two;
-- What tests before have left is given back first.
SELECT objects_become(0) AS nothing_there;

-- ---- DROP OWNED, REASSIGN OWNED
SET ROLE ow_one;
CREATE FOREIGN TABLE ow_a (a int, b bigint) SERVER gstore_fdw;
CREATE FOREIGN TABLE ow_b (a int, b bigint) SERVER gstore_fdw;
SELECT fill('ow_a'), fill('ow_b');
RESET ROLE;
SELECT memory_becomes(2 * 12000000, 2 * 70000000) AS filled;
REASSIGN OWNED BY ow_one TO ow_two;
SELECT relname, relowner::regrole FROM pg_class WHERE relname LIKE 'ow\__' ORDER BY 1;
SET ROLE ow_two;
SELECT count(*) FROM ow_a;
INSERT INTO ow_a VALUES (0, 0);
SET ROLE ow_one;
\set VERBOSITY sqlstate
SELECT count(*) FROM ow_a;
\set VERBOSITY default
RESET ROLE;
BEGIN;
DROP OWNED BY ow_two;
SELECT count(*) FROM pg_class WHERE relname LIKE 'ow\__';
ROLLBACK;
SELECT (SELECT count(*) FROM ow_a), (SELECT sum(b) FROM ow_b);
BEGIN;
SAVEPOINT one;
DROP OWNED BY ow_two;
ROLLBACK TO one;
INSERT INTO ow_a VALUES (-1, -1);
COMMIT;
SELECT count(*), min(a) FROM ow_a;
DROP OWNED BY ow_one;
SELECT count(*) FROM ow_b;
DROP OWNED BY ow_two;
SELECT objects_become(0) AS given_back, memory_becomes(0, 0) AS to_the_last_byte;
SELECT count(*) FROM gstore_fdw_chunk_info WHERE database_oid = (SELECT oid FROM pg_database WHERE datname = current_database());

-- ---- DROP SCHEMA CASCADE
CREATE SCHEMA ow_schema;
CREATE FOREIGN TABLE ow_schema.a (a int, b bigint) SERVER gstore_fdw;
CREATE FOREIGN TABLE ow_schema.never_filled (a int, b bigint) SERVER gstore_fdw;
CREATE FOREIGN TABLE ow_stays (a int, b bigint) SERVER gstore_fdw;
SELECT fill('ow_schema.a');
INSERT INTO ow_stays VALUES (1, 1);
\set VERBOSITY sqlstate
DROP SCHEMA ow_schema;
\set VERBOSITY terse
SET client_min_messages = warning;
BEGIN;
INSERT INTO ow_schema.never_filled VALUES (1, 1);
DROP SCHEMA ow_schema CASCADE;
ROLLBACK;
SELECT (SELECT count(*) FROM ow_schema.a), (SELECT count(*) FROM ow_schema.never_filled);
DROP SCHEMA ow_schema CASCADE;
SELECT objects_become(1) AS given_back, memory_becomes(1, 12000000) AS but_for_the_other;
SELECT * FROM ow_stays;

-- ---- DROP SERVER CASCADE: of one's own; the extension's own server stays with it.
CREATE SERVER ow_server FOREIGN DATA WRAPPER gstore_fdw;
CREATE FOREIGN TABLE ow_on_server (a int, b bigint) SERVER ow_server;
SELECT fill('ow_on_server');
\set VERBOSITY sqlstate
DROP SERVER ow_server;
DROP SERVER gstore_fdw CASCADE;
\set VERBOSITY terse
BEGIN;
DROP SERVER ow_server CASCADE;
ROLLBACK;
SELECT count(*) FROM ow_on_server;
DROP SERVER ow_server CASCADE;
SELECT objects_become(1) AS given_back;

-- ---- A view, a partition's parent, an inheritance parent take a table along, too.
CREATE TABLE ow_part (a int, b bigint) PARTITION BY RANGE (a);
CREATE FOREIGN TABLE ow_part1 PARTITION OF ow_part FOR VALUES FROM (0) TO (10000000) SERVER gstore_fdw;
CREATE TABLE ow_parent (a int, b bigint);
CREATE FOREIGN TABLE ow_child () INHERITS (ow_parent) SERVER gstore_fdw;
INSERT INTO ow_part VALUES (1, 1);
INSERT INTO ow_child VALUES (1, 1);
SELECT objects_become(3) AS there;
DROP TABLE ow_part;
DROP TABLE ow_parent CASCADE;
SELECT objects_become(1) AS given_back;
-- A type that a column is of takes the column along: its memory goes at the next compaction.
CREATE TYPE ow_mood AS ENUM ('sad', 'ok');
ALTER FOREIGN TABLE ow_stays ADD COLUMN mood ow_mood;
INSERT INTO ow_stays VALUES (2, 2, 'ok');
DROP TYPE ow_mood CASCADE;
SELECT * FROM ow_stays ORDER BY a;
INSERT INTO ow_stays VALUES (3, 3);
SELECT * FROM ow_stays ORDER BY a;

-- ---- DROP EXTENSION CASCADE
SELECT fill('ow_stays');
CREATE TABLE ow_heap AS SELECT count(*) FROM ow_stays;
\set VERBOSITY sqlstate
DROP EXTENSION gstore_fdw;
\set VERBOSITY terse
BEGIN;
DROP EXTENSION gstore_fdw CASCADE;
SELECT count(*) FROM pg_class WHERE relname = 'ow_stays';
ROLLBACK;
SELECT count(*) = (SELECT * FROM ow_heap) AS all_there FROM ow_stays;
DROP EXTENSION gstore_fdw CASCADE;
SELECT count(*) FROM pg_class WHERE relname = 'ow_stays';
SELECT count(*) FROM pg_proc WHERE probin LIKE '%gstore_fdw';
-- The keeper lives with the server, not with the extension: the view tells, once it is there again.
CREATE EXTENSION gstore_fdw;
SELECT objects_become(0) AS given_back, memory_becomes(0, 0) AS to_the_last_byte;
CREATE FOREIGN TABLE ow_again (a int, b bigint) SERVER gstore_fdw;
INSERT INTO ow_again VALUES (1, 1);
SELECT * FROM ow_again;
-- One that its temporary parent takes along at the commit.
BEGIN;
CREATE TEMP TABLE ow_parent (a int) PARTITION BY RANGE (a) ON COMMIT DROP;
CREATE FOREIGN TABLE pg_temp.ow_part PARTITION OF ow_parent FOR VALUES FROM (0) TO (100) SERVER gstore_fdw;
INSERT INTO ow_parent SELECT generate_series(0, 99);
COMMIT;
SELECT objects_become(1) AS given_back, versions_become(1) AS one_version;
CREATE FOREIGN TABLE pg_temp.ow_before (a int) SERVER gstore_fdw;
INSERT INTO pg_temp.ow_before SELECT generate_series(0, 99);
BEGIN;
CREATE TEMP TABLE ow_parent (a int) ON COMMIT DROP;
ALTER FOREIGN TABLE pg_temp.ow_before INHERIT ow_parent;
COMMIT;
SELECT objects_become(1) AS given_back, versions_become(1) AS one_version;

RESET client_min_messages;
\set VERBOSITY default
DROP FOREIGN TABLE ow_again;
DROP TABLE ow_heap;
DROP FUNCTION memory_becomes, objects_become, versions_become, fill;
DROP OWNED BY ow_one, ow_two;
DROP ROLE ow_one, ow_two;
