-- The extensions' objects: in which schema they are, what an update leaves, and the names of PG-Strom's memory store.
CREATE DATABASE names;
\c names
SET client_min_messages = warning;
\set VERBOSITY terse

-- ---- gstore_fdw is where CREATE EXTENSION puts it, and can be moved.
CREATE FUNCTION schemas() RETURNS TABLE (kind text, schema text) STABLE LANGUAGE sql AS $$
    SELECT DISTINCT o.type, o.schema
    FROM pg_depend d JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid,
        pg_identify_object(d.classid, d.objid, d.objsubid) o
    WHERE e.extname IN ('gstore_fdw', 'pg_strom') AND d.deptype = 'e' AND (o.schema IS NOT NULL OR o.type = 'schema')
    ORDER BY 1, 2;
$$;
CREATE SCHEMA "Some where";
CREATE EXTENSION gstore_fdw SCHEMA "Some where";
SELECT * FROM schemas();
CREATE FOREIGN TABLE n (a int) SERVER gstore_fdw;
INSERT INTO n VALUES (1), (2);
SELECT "Some where".gstore_fdw_nitems('n'), 'n'::"Some where".reggstore::regclass;
SELECT count(*) > 0 AS seen FROM "Some where".gstore_fdw_chunk_info;
CREATE SCHEMA other;
ALTER EXTENSION gstore_fdw SET SCHEMA other;
SELECT * FROM schemas();
SET search_path = other, public;
SELECT gstore_fdw_nitems('n'), (SELECT count(*) > 0 FROM gstore_fdw_chunk_info) AS seen;
DROP EXTENSION gstore_fdw CASCADE;
RESET search_path;
SET search_path = other;
CREATE EXTENSION gstore_fdw;
SELECT * FROM public.schemas();
RESET search_path;

\pset format unaligned
-- ---- All that makes up the extension.
CREATE FUNCTION described() RETURNS SETOF text STABLE LANGUAGE sql AS $$
    WITH member AS (
        SELECT d.classid, d.objid
        FROM pg_depend d JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
        WHERE e.extname = 'gstore_fdw' AND d.deptype = 'e')
    SELECT format('extension %s relocatable %s in %s', extversion, extrelocatable, extnamespace::regnamespace)
        FROM pg_extension WHERE extname = 'gstore_fdw'
    UNION ALL SELECT format('%s in %s: %s', o.type, o.schema, o.identity)
        FROM member, pg_identify_object(classid, objid, 0) o
    UNION ALL SELECT format('%s depends %s on %s', pg_describe_object(d.classid, d.objid, d.objsubid), d.deptype,
            pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid))
        FROM pg_depend d JOIN member m ON (d.classid, d.objid) = (m.classid, m.objid) OR (d.refclassid, d.refobjid) = (m.classid, m.objid)
    UNION ALL SELECT concat(pg_get_functiondef(p.oid), p.proacl)
        FROM pg_proc p JOIN member ON classid = 'pg_proc'::regclass AND objid = p.oid
    UNION ALL SELECT format('view %s: %s %s', c.oid::regclass, c.relacl, pg_get_viewdef(c.oid))
        FROM pg_class c JOIN member ON classid = 'pg_class'::regclass AND objid = c.oid
    UNION ALL SELECT format('column %s.%s %s', a.attrelid::regclass, a.attname, a.atttypid::regtype)
        FROM pg_attribute a JOIN member ON classid = 'pg_class'::regclass AND objid = a.attrelid
    UNION ALL SELECT format('type %s: %s %s %s %s %s %s %s %s', t.oid::regtype, t.typlen, t.typbyval, t.typcategory, t.typalign,
            t.typstorage, t.typinput, t.typarray::regtype, t.typacl)
        FROM pg_type t JOIN member ON classid = 'pg_type'::regclass AND objid = t.oid
    UNION ALL SELECT format('cast %s %s %s %s %s', c.castsource::regtype, c.casttarget::regtype, c.castfunc::regprocedure,
            c.castcontext, c.castmethod)
        FROM pg_cast c JOIN member ON classid = 'pg_cast'::regclass AND objid = c.oid
    UNION ALL SELECT format('comment %s: %s', pg_describe_object(d.classoid, d.objoid, d.objsubid), d.description)
        FROM pg_description d JOIN member ON classid = d.classoid AND objid = d.objoid
    UNION ALL SELECT format('privileges %s: %s', pg_describe_object(p.classoid, p.objoid, p.objsubid), p.initprivs)
        FROM pg_init_privs p JOIN member ON classid = p.classoid AND objid = p.objoid;
$$;
CREATE TABLE fresh (schema text, line text);
INSERT INTO fresh SELECT 'other', * FROM described();
DROP EXTENSION gstore_fdw;
CREATE EXTENSION gstore_fdw;
INSERT INTO fresh SELECT 'public', * FROM described();
SELECT * FROM schemas();
DROP EXTENSION gstore_fdw;

-- ---- From 1.0, with tables at work, privileges, and a view of somebody's: all is as if it were installed now.
CREATE EXTENSION gstore_fdw VERSION '1.0';
SELECT * FROM schemas();
CREATE FOREIGN TABLE old (a int, b text) SERVER gstore_fdw;
INSERT INTO old SELECT i, 'row ' || i FROM generate_series(1, 100) i;
SELECT count(*) FROM pgstrom.gstore_fdw_chunk_info c WHERE table_oid = 'old'::regclass;
SELECT octet_length(gstore_export_ipchandle('old'));
SELECT gstore_export('old') LIKE 'gstore3:%' AS token;
CREATE VIEW public.watched AS SELECT max(nitems) AS nitems FROM pgstrom.gstore_fdw_chunk_info WHERE table_oid = 'public.old'::regclass;
CREATE ROLE n_reader;
GRANT EXECUTE ON FUNCTION lo_import_gpu TO n_reader;
-- What somebody has put into schema pgstrom is not taken along.
CREATE TABLE pgstrom.mine (a int);
ALTER EXTENSION gstore_fdw UPDATE;
SELECT extversion FROM pg_extension WHERE extname = 'gstore_fdw';
DROP TABLE pgstrom.mine;
ALTER EXTENSION gstore_fdw UPDATE;
SELECT * FROM schemas();
SELECT has_function_privilege('n_reader', 'lo_import_gpu(int,bytea,bigint,bigint,oid)', 'EXECUTE') AS still;
REVOKE EXECUTE ON FUNCTION lo_import_gpu FROM n_reader;
DROP ROLE n_reader;
INSERT INTO old VALUES (101, 'new');
SELECT * FROM watched;
DROP VIEW watched;
SELECT count(*), max(b), gstore_revoke_all('old') FROM old;
DROP FOREIGN TABLE old;
(SELECT line FROM fresh WHERE schema = 'public' EXCEPT ALL SELECT * FROM described())
UNION ALL (SELECT * FROM described() EXCEPT ALL SELECT line FROM fresh WHERE schema = 'public');
DROP EXTENSION gstore_fdw;
-- 1.0 had its functions in schema public, whatever CREATE EXTENSION said.
CREATE EXTENSION gstore_fdw VERSION '1.0' SCHEMA other;
ALTER EXTENSION gstore_fdw UPDATE;
(SELECT line FROM fresh WHERE schema = 'other' EXCEPT ALL SELECT * FROM described())
UNION ALL (SELECT * FROM described() EXCEPT ALL SELECT line FROM fresh WHERE schema = 'other');
DROP EXTENSION gstore_fdw;

-- ---- pg_strom is not installed beside what has the same names.
CREATE FUNCTION of_pg_strom() RETURNS int LANGUAGE sql AS 'SELECT 1';
UPDATE pg_proc SET probin = '$libdir/pg_strom' WHERE proname = 'of_pg_strom';
CREATE EXTENSION pg_strom CASCADE;
DROP FUNCTION of_pg_strom;
CREATE SCHEMA pgstrom;
CREATE EXTENSION pg_strom CASCADE;
DROP SCHEMA pgstrom;
CREATE EXTENSION gstore_fdw VERSION '1.0';
CREATE EXTENSION pg_strom CASCADE;
DROP EXTENSION gstore_fdw;

-- ---- Statements as the memory store's manual prints them.
CREATE EXTENSION pg_strom CASCADE;
SELECT * FROM schemas();
CREATE FOREIGN TABLE ft (
    id int,
    signature smallint[] OPTIONS (compression 'pglz')
)
SERVER gstore_fdw OPTIONS(pinning '0', format 'pgstrom');
select gstore_export_ipchandle('ft');
INSERT INTO ft SELECT i, ARRAY[i, i + 1, i + 2] FROM generate_series(1, 1000) i;
UPDATE ft SET id = -id WHERE id > 900;
DELETE FROM ft WHERE id < -990;
SELECT count(*), sum(id), max(signature) FROM ft;
select * from pgstrom.gstore_fdw_chunk_info \gdesc
\o /dev/null
select * from pgstrom.gstore_fdw_chunk_info ;
\o
SELECT pinning, format, nitems, xmax FROM pgstrom.gstore_fdw_chunk_info WHERE table_oid = 'ft'::regclass AND xmax = 0;
SELECT octet_length(gstore_export_ipchandle('ft'));
SELECT format('%s(%s)', proname, pg_get_function_arguments(oid)) FROM pg_proc
    WHERE proname IN ('gstore_export_ipchandle', 'lo_import_gpu', 'lo_export_gpu') ORDER BY 1;
SELECT lo_import_gpu(0, gstore_export_ipchandle('ft'), 0, 64) AS loid \gset
SELECT length(lo_get(:loid));
SELECT lo_import_gpu(0, gstore_export_ipchandle('ft'), 8, 16, :loid) = :loid AS replaced;
SELECT length(lo_get(:loid));
SELECT lo_import_gpu(device_nr => 0, ipc_mhandle => gstore_export_ipchandle(ftable_oid => 'ft'),
    "offset" => 0, length => 32, loid => :loid) = :loid AS named;
SELECT lo_export_gpu(loid => :loid, device_nr => 0, ipc_mhandle => '\x00', "offset" => 0, length => 32);
SELECT lo_unlink(:loid);
SELECT count(*) > 0 AS keeper FROM pgstrom.gstore_fdw_keeper_info;
SELECT count(*) FROM pgstrom.gstore_fdw_progress;
SET ROLE pg_read_server_files;
SELECT count(*) FROM pgstrom.gstore_fdw_chunk_info;
RESET ROLE;
DROP FOREIGN TABLE ft;
DROP EXTENSION pg_strom;
SELECT to_regnamespace('pgstrom') IS NULL AS gone;
DROP EXTENSION gstore_fdw;

-- ---- No script calls what somebody has made in the schema that it fills.
CREATE FUNCTION taken() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'a function of somebody is called'; END $$;
CREATE FUNCTION format(text, text) RETURNS text LANGUAGE sql AS 'SELECT taken()';
CREATE FUNCTION format(text, text, text) RETURNS text LANGUAGE sql AS 'SELECT taken()';
CREATE FUNCTION format(text, text, text, name) RETURNS text LANGUAGE sql AS 'SELECT taken()';
CREATE FUNCTION equal(oid, regclass) RETURNS boolean LANGUAGE sql AS 'SELECT taken() IS NULL';
CREATE FUNCTION equal(oid, regprocedure) RETURNS boolean LANGUAGE sql AS 'SELECT taken() IS NULL';
CREATE OPERATOR = (LEFTARG = oid, RIGHTARG = regclass, FUNCTION = equal);
CREATE OPERATOR = (LEFTARG = oid, RIGHTARG = regprocedure, FUNCTION = equal);
CREATE FUNCTION gstore_hamming_distance(bit, bit) RETURNS double precision LANGUAGE sql AS 'SELECT length(taken())';
CREATE VIEW gstore_fdw_progress AS SELECT taken();
CREATE EXTENSION gstore_fdw VERSION '1.0' SCHEMA other;
ALTER EXTENSION gstore_fdw UPDATE;
CREATE EXTENSION gstore_fdw_bit;
CREATE EXTENSION plcuda;
CREATE EXTENSION pg_strom;
SELECT B'0110' <~> B'0101' AS distance;
SELECT count(*) FROM pgstrom.gstore_fdw_progress;
\c postgres
DROP DATABASE names;
