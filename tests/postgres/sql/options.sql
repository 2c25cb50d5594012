-- Options of tables and columns: what is valid works and stays; everything else is refused when it is
-- written, not when it is used. Hints that list values are left out: the list grows.
SELECT srvname FROM pg_foreign_server WHERE srvname = 'gstore_fdw';
SELECT fdwname FROM pg_foreign_data_wrapper WHERE fdwname = 'gstore_fdw';

-- Valid ones. The last device is the second one, where there are two.
SELECT greatest(count(*) - 1, 0) AS last FROM gstore_fdw_keeper_info \gset
CREATE FOREIGN TABLE o_none (id int) SERVER gstore_fdw;
CREATE FOREIGN TABLE o_all (id int, signature smallint[] OPTIONS (compression 'pglz'), t text OPTIONS (compression 'none'))
    SERVER gstore_fdw OPTIONS (pinning '0', format 'pgstrom');
CREATE FOREIGN TABLE o_second (id int) SERVER gstore_fdw OPTIONS (pinning :'last');
CREATE FOREIGN TABLE o_case (t text OPTIONS (compression 'PGLZ')) SERVER gstore_fdw OPTIONS (format 'PgStrom');
INSERT INTO o_none VALUES (1);
INSERT INTO o_all VALUES (1, '{1,2,3}', 'x');
INSERT INTO o_second VALUES (2);
INSERT INTO o_case VALUES (repeat('case ', 1000));
SELECT * FROM o_none;
SELECT * FROM o_all;
SELECT * FROM o_second;
SELECT length(t) FROM o_case;

\set VERBOSITY sqlstate
-- Values that are none.
CREATE FOREIGN TABLE bad (id int) SERVER gstore_fdw OPTIONS (pinning 'abc');
CREATE FOREIGN TABLE bad (id int) SERVER gstore_fdw OPTIONS (pinning '');
CREATE FOREIGN TABLE bad (id int) SERVER gstore_fdw OPTIONS (pinning '-1');
CREATE FOREIGN TABLE bad (id int) SERVER gstore_fdw OPTIONS (pinning '1.5');
CREATE FOREIGN TABLE bad (id int) SERVER gstore_fdw OPTIONS (pinning '0x0');
CREATE FOREIGN TABLE bad (id int) SERVER gstore_fdw OPTIONS (pinning '0 ');
CREATE FOREIGN TABLE bad (id int) SERVER gstore_fdw OPTIONS (pinning ' 0');
CREATE FOREIGN TABLE bad (id int) SERVER gstore_fdw OPTIONS (pinning '+0');
CREATE FOREIGN TABLE bad (id int) SERVER gstore_fdw OPTIONS (pinning '99999999999999999999');
CREATE FOREIGN TABLE bad (id int) SERVER gstore_fdw OPTIONS (format 'parquet');
CREATE FOREIGN TABLE bad (id int) SERVER gstore_fdw OPTIONS (format '');
CREATE FOREIGN TABLE bad (t text OPTIONS (compression 'lz4')) SERVER gstore_fdw;
CREATE FOREIGN TABLE bad (t text OPTIONS (compression '')) SERVER gstore_fdw;

-- Options that there are not, or not there.
CREATE FOREIGN TABLE bad (id int) SERVER gstore_fdw OPTIONS (pining '0');
CREATE FOREIGN TABLE bad (id int) SERVER gstore_fdw OPTIONS (compression 'pglz');
CREATE FOREIGN TABLE bad (t text OPTIONS (pinning '0')) SERVER gstore_fdw;
CREATE FOREIGN TABLE bad (t text OPTIONS (format 'pgstrom')) SERVER gstore_fdw;
CREATE FOREIGN TABLE bad (id int) SERVER gstore_fdw OPTIONS (pinning '0', pinning '1');
ALTER SERVER gstore_fdw OPTIONS (ADD pinning '0');
ALTER FOREIGN DATA WRAPPER gstore_fdw OPTIONS (ADD pinning '0');
CREATE SERVER bad FOREIGN DATA WRAPPER gstore_fdw OPTIONS (host 'x');
CREATE USER MAPPING FOR CURRENT_USER SERVER gstore_fdw OPTIONS (password 'x');

-- The same by ALTER; the table stays as it was.
ALTER FOREIGN TABLE o_none OPTIONS (ADD pinning 'x');
ALTER FOREIGN TABLE o_none OPTIONS (ADD nothing '1');
ALTER FOREIGN TABLE o_all ALTER COLUMN t OPTIONS (SET compression 'zstd');
\set VERBOSITY default
SELECT ftoptions FROM pg_foreign_table WHERE ftrelid = 'o_none'::regclass;
SELECT * FROM o_none;
SELECT attname, attfdwoptions FROM pg_attribute
    WHERE attrelid = 'o_all'::regclass AND attnum > 0 ORDER BY attnum;

-- Texts and hints that tell what to do.
CREATE FOREIGN TABLE bad (id int) SERVER gstore_fdw OPTIONS (pinning 'abc');
\echo :LAST_ERROR_SQLSTATE
CREATE SERVER bad FOREIGN DATA WRAPPER gstore_fdw OPTIONS (host 'x');
\echo :LAST_ERROR_SQLSTATE
CREATE FOREIGN TABLE bad (t text OPTIONS (compression 'lz4')) SERVER gstore_fdw;
\echo :LAST_ERROR_SQLSTATE

-- A device that is not there.
CREATE FOREIGN TABLE o_absent (id int) SERVER gstore_fdw OPTIONS (pinning '15');
SELECT count(*) FROM o_absent;
INSERT INTO o_absent VALUES (1);
SELECT gstore_load_begin('o_absent', 4096);
BEGIN;
INSERT INTO o_absent VALUES (1);
SELECT * FROM o_absent;
COMMIT;
SELECT count(*) FROM o_absent;

-- A server of one's own is as good.
CREATE SERVER own_server FOREIGN DATA WRAPPER gstore_fdw;
CREATE FOREIGN TABLE o_own (id int) SERVER own_server;
INSERT INTO o_own VALUES (7);
SELECT * FROM o_own;

-- Nothing of what was refused is there.
SELECT relname FROM pg_class WHERE relname = 'bad';
SELECT srvname FROM pg_foreign_server WHERE srvname = 'bad';
DROP FOREIGN TABLE o_none, o_all, o_second, o_case, o_absent, o_own;
DROP SERVER own_server;
