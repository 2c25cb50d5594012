-- Rows from files of Arrow's, and tokens of gstore_load_begin(). What programs write by a token, and hostile ones, is in load.py.
\getenv abs_srcdir PG_ABS_SRCDIR
\set files :abs_srcdir '/arrow_files/'
\set rows :files 'rows.arrow'
CREATE FUNCTION load_file(ft reggstore, file text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN gstore_load_file(ft, file);
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE || ' ' || replace(SQLERRM, file, 'FILE');
END $$;
CREATE FOREIGN TABLE lf (id int, name text, price float8, day date, tags smallint[]) SERVER gstore_fdw OPTIONS (format 'arrow');
CREATE FOREIGN TABLE lp (id int, name text, price float8, day date, tags smallint[]) SERVER gstore_fdw;

-- files and streams, of both versions of metadata; into both formats
SELECT gstore_load_file('lf', :'rows');
SELECT * FROM lf ORDER BY id;
SELECT file, load_file('lf', :'files' || file) FROM unnest('{rows.arrows,version_4.arrow,legacy.arrows}'::text[]) file;
SELECT count(*), count(name), count(price), sum(id), count(tags) FROM lf;
SELECT gstore_load_file('lp', :'rows'), gstore_load_file('lp', :'rows');
SELECT count(*), count(DISTINCT x) FROM (SELECT lf::text FROM lf UNION ALL SELECT lp::text FROM lp) u (x);

-- rows of the transaction, like those of an INSERT
BEGIN;
SELECT load_file('lf', :'rows');
SELECT count(*) FROM lf;
SAVEPOINT s;
DELETE FROM lf WHERE id < 6;
SELECT load_file('lf', :'rows'), (SELECT count(*) FROM lf);
SELECT count(*) FROM lf;
ROLLBACK TO s;
SELECT count(*) FROM lf;
ROLLBACK;
SELECT count(*) FROM lf;
TRUNCATE lf, lp;

-- what is refused
SELECT file, load_file('lf', :'files' || file) FROM unnest('{compressed.arrow,dictionary.arrow,dictionary.arrows,struct.arrow,view.arrow,
    nested.arrow,null.arrow,wide.arrow,large.arrow,stamps.arrow,nanoseconds.arrow,make.py}'::text[]) file;
SELECT load_file('lf', '/nowhere/x.arrow');
SELECT load_file('lf', '/');
SELECT count(*) FROM lf;
CREATE FOREIGN TABLE ls (id timestamptz) SERVER gstore_fdw OPTIONS (format 'arrow');
SELECT load_file('ls', :'files' || 'stamps.arrow');
SELECT id AT TIME ZONE 'UTC' FROM ls;
CREATE FOREIGN TABLE ll (id varchar(2), more int DEFAULT 7, twice int GENERATED ALWAYS AS (more * 2) STORED) SERVER gstore_fdw;
SELECT load_file('ll', :'files' || 'large.arrow');
SELECT * FROM ll;
ALTER FOREIGN TABLE ll ALTER id SET NOT NULL;
DELETE FROM ll WHERE id IS NULL;
ALTER FOREIGN TABLE ll ALTER id SET NOT NULL;
SELECT load_file('ll', :'files' || 'large.arrow');
CREATE FOREIGN TABLE lo (id varchar(9), own oid GENERATED ALWAYS AS (tableoid) STORED, CHECK (tableoid <> 0)) SERVER gstore_fdw;
SELECT load_file('lo', :'files' || 'large.arrow');
SELECT count(*), count(*) FILTER (WHERE own = 'lo'::regclass) AS with_oid FROM lo;
DROP FOREIGN TABLE lo;
ALTER FOREIGN TABLE lf ADD CHECK (id < 7), ADD COLUMN more int;
SELECT load_file('lf', :'rows');
ALTER FOREIGN TABLE lf DROP CONSTRAINT lf_id_check, DROP COLUMN price;
SELECT load_file('lf', :'rows');
ALTER FOREIGN TABLE lf ADD COLUMN price float8;
SELECT load_file('lf', :'rows'), gstore_fdw_nitems('lf');
SELECT count(*), count(price), count(more) FROM lf;

-- tables after loads: changed, rewritten, exported
DELETE FROM lf WHERE id % 2 = 0;
UPDATE lf SET name = 'changed' WHERE id = 3;
SELECT gstore_fdw_compact('lf'), gstore_load_file('lf', :'rows');
SELECT gstore_export('lf') IS NOT NULL;
SELECT id, name, tags FROM lf ORDER BY id, name;
SELECT command, rows_written FROM gstore_fdw_progress;

-- columns of one length
CREATE FOREIGN TABLE lu (n numeric(6, 2), a int[] OPTIONS (length '2')) SERVER gstore_fdw;
SELECT load_file('lu', :'files' || 'uniform.arrow');
SELECT * FROM lu;
CREATE FOREIGN TABLE lv (n numeric(3, 2), a int[]) SERVER gstore_fdw OPTIONS (format 'arrow');
SELECT load_file('lv', :'files' || 'uniform.arrow');
CREATE FOREIGN TABLE lw (n numeric(3, 2), a int[] OPTIONS (length '2')) SERVER gstore_fdw OPTIONS (format 'arrow');
SELECT load_file('lw', :'files' || 'uniform.arrow');
SELECT * FROM lw;
DROP FOREIGN TABLE lu, lv, lw;

-- who may
CREATE ROLE load_reader;
CREATE ROLE load_writer;
GRANT INSERT ON lf TO load_writer, load_reader;
GRANT pg_read_server_files TO load_reader;
SET ROLE load_writer;
SELECT load_file('lf', :'rows');
SET ROLE load_reader;
SELECT load_file('lf', :'rows');
SELECT load_file('lp', :'rows');
RESET ROLE;
REVOKE INSERT ON lf FROM load_reader;
SET ROLE load_reader;
SELECT load_file('lf', :'rows');
SELECT gstore_load_begin('lf', 100000);
RESET ROLE;
\set VERBOSITY terse
SELECT gstore_load_file('pg_class', :'rows');
BEGIN READ ONLY;
SELECT gstore_load_file('lf', :'rows');
ROLLBACK;

-- tokens
SELECT gstore_load_begin('lf', 100000) AS token \gset
SELECT :'token' ~ '^gstoreload1:[0-9]+:/gstore/[0-9a-f]{32}/load:/.';
SELECT gstore_load('lf', :'token');
SELECT gstore_load('lf', 'gstore2:x');
SELECT gstore_load('lf', replace(:'token', '/load', '0/load'));
SELECT gstore_load_begin('lf', 255);
SELECT gstore_load_begin('lf', NULL) IS NULL, gstore_load('lf', NULL) IS NULL;
SELECT gstore_revoke(:'token'), gstore_revoke(:'token');
SELECT gstore_load('lf', :'token');
SET gstore_fdw.load_memory = '1MB';
SELECT gstore_load_begin('lf', 2000000);
RESET gstore_fdw.load_memory;

DROP FUNCTION load_file;
DROP FOREIGN TABLE lf, lp, ls, ll;
DROP ROLE load_writer, load_reader;
