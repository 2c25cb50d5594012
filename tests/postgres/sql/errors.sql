-- Errors of use: each has its SQLSTATE and leaves everything as it was.
CREATE FOREIGN TABLE e (id int, t text) SERVER gstore_fdw;
INSERT INTO e VALUES (1, 'one');

-- Privileges are those of any table.
CREATE ROLE e_role;
GRANT CREATE, USAGE ON SCHEMA public TO e_role;
SET ROLE e_role;
\set VERBOSITY sqlstate
SELECT * FROM e;
INSERT INTO e VALUES (2, 'two');
UPDATE e SET id = 2;
DELETE FROM e;
TRUNCATE e;
\copy e FROM /dev/null
DROP FOREIGN TABLE e;
CREATE FOREIGN TABLE e_own (id int) SERVER gstore_fdw;
RESET ROLE;
GRANT USAGE ON FOREIGN SERVER gstore_fdw TO e_role;
GRANT SELECT (id), INSERT ON e TO e_role;
SET ROLE e_role;
SELECT id FROM e;
SELECT t FROM e;
INSERT INTO e VALUES (2, 'two');
INSERT INTO e VALUES (2, 'two') RETURNING t;
DELETE FROM e;
CREATE FOREIGN TABLE e_own (id int) SERVER gstore_fdw;
INSERT INTO e_own VALUES (1);
SELECT * FROM e_own;
DROP FOREIGN TABLE e_own;
RESET ROLE;
SELECT * FROM e ORDER BY id;

-- Expressions that fail in the middle of a statement: nothing of it is there.
INSERT INTO e SELECT i, (10 / (5000 - i))::text FROM generate_series(3, 6000) i;
UPDATE e SET t = (1 / (id - 2))::text;
DELETE FROM e WHERE 1 / (id - 2) < 0;
SELECT * FROM e ORDER BY id;

-- Values that do not fit their types; statements that do not fit the table.
INSERT INTO e VALUES ('x', 'y');
INSERT INTO e VALUES (2147483648, 'y');
INSERT INTO e (id, nothing) VALUES (1, 2);
INSERT INTO e VALUES (1, 2, 3);
UPDATE e SET nothing = 1;
SELECT nothing FROM e;
SELECT ctid FROM e WHERE ctid = 'x';

-- The server and the extension stay as long as tables need them.
DROP SERVER gstore_fdw;
DROP EXTENSION gstore_fdw;
\set VERBOSITY default
SELECT count(*) FROM e;

-- DROP SCHEMA and DROP OWNED take tables with rows along, and come back with ROLLBACK.
CREATE SCHEMA e_schema;
CREATE FOREIGN TABLE e_schema.inside (id int) SERVER gstore_fdw;
INSERT INTO e_schema.inside VALUES (1), (2);
BEGIN;
SET LOCAL client_min_messages = warning;
DROP SCHEMA e_schema CASCADE;
ROLLBACK;
SELECT count(*) FROM e_schema.inside;
SET client_min_messages = warning;
DROP SCHEMA e_schema CASCADE;
RESET client_min_messages;
SET ROLE e_role;
CREATE FOREIGN TABLE e_owned (id int) SERVER gstore_fdw;
INSERT INTO e_owned VALUES (1);
RESET ROLE;
DROP OWNED BY e_role;
SELECT to_regclass('e_owned'), to_regclass('e_schema.inside');
DROP ROLE e_role;
DROP FOREIGN TABLE e;
