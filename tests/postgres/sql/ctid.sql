-- A row's ctid: conditions on it find the row at once, RETURNING tells it.
CREATE FOREIGN TABLE c_other (id int) SERVER gstore_fdw;
INSERT INTO c_other VALUES (1), (2);
CREATE FOREIGN TABLE c_big (id int, v int) SERVER gstore_fdw;
INSERT INTO c_big SELECT i, 0 FROM generate_series(1, 200000) i;
-- EXPLAIN ANALYZE without what differs from run to run, and from release to release.
CREATE FUNCTION analyzed(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    line text;
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF) ' || query LOOP
        line := regexp_replace(line, '(rows=\d+)\.\d+|(InitPlan 1) \(returns .*\)', '\1\2');
        RETURN NEXT regexp_replace(line, '\$\d|\(InitPlan 1\)\.col1|o\.ctid', '?');
    END LOOP;
END $$;
SELECT ctid, * FROM c_big WHERE id IN (1, 32768, 32769, 200000) ORDER BY id;
SELECT * FROM analyzed('SELECT * FROM c_big WHERE ctid = ''(1,1)''');
SELECT * FROM analyzed('SELECT * FROM c_big WHERE ''(1,1)'' = ctid AND id > 32769');
SELECT * FROM analyzed('SELECT id FROM c_big WHERE ctid = ANY (''{"(0,3)","(6,1)","(0,1)",NULL,"(0,3)"}'')');
SELECT * FROM analyzed('SELECT * FROM c_big WHERE ctid IN (''(0,7)'', ''(0,8)'') AND ctid = ANY (''{"(0,8)","(0,9)"}'')');
SELECT * FROM analyzed('SELECT * FROM c_big WHERE ctid = (SELECT max(ctid) FROM c_other)');
SELECT * FROM analyzed('SELECT (SELECT b.id FROM c_big b WHERE b.ctid = o.ctid) FROM c_other o');
SELECT * FROM analyzed('UPDATE c_big SET v = 1 WHERE ctid = ''(0,5)''');
SELECT ctid, id FROM c_big WHERE ctid = '(6,3393)';
-- A ctid that no row has: not there yet, of no row at all, NULL, dead.
SELECT count(*) FROM c_big WHERE ctid = '(6,3394)';
SELECT count(*) FROM c_big WHERE ctid = ANY ('{"(0,0)","(1,0)","(0,32769)","(0,65535)","(4294967295,1)","(4294967295,65535)"}');
SELECT count(*) FROM c_big WHERE ctid = NULL::tid;
SELECT count(*) FROM c_big WHERE ctid = ANY (NULL::tid[]);
SELECT count(*) FROM c_big WHERE ctid = ANY ('{}'::tid[]);
SELECT count(*) FROM c_big WHERE ctid = '(0,5)';
-- What else is said of ctid is asked of all rows.
SELECT id FROM c_big WHERE ctid = '(0,1)' OR ctid = '(0,2)';
SELECT count(*) FROM c_big WHERE ctid <> '(0,1)';
SELECT count(*) FROM c_big WHERE ctid <> ALL ('{"(0,1)","(0,2)"}');
SELECT count(*) FROM c_big WHERE NOT ctid = '(0,1)';
SELECT count(*) FROM c_big a JOIN c_other b ON a.ctid = b.ctid;
SELECT count(*) FROM c_big WHERE ctid = ctid;
-- By parameters; of this transaction's own rows, too, and of those that it has deleted and put back.
PREPARE by_ctid(tid) AS SELECT id, v FROM c_big WHERE ctid = $1;
PREPARE by_ctids(tid[]) AS DELETE FROM c_big WHERE ctid = ANY ($1) RETURNING id;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE by_ctid('(0,1)');
BEGIN;
EXECUTE by_ctid('(0,2)');
INSERT INTO c_big VALUES (-1, -1);
SELECT ctid FROM c_big WHERE id = -1 \gset
EXECUTE by_ctid(:'ctid');
SAVEPOINT s;
EXECUTE by_ctids('{"(0,2)","(0,4)","(0,6)"}');
EXECUTE by_ctid('(0,2)');
EXECUTE by_ctids('{"(0,2)","(0,4)","(0,6)"}');
ROLLBACK TO s;
EXECUTE by_ctid('(0,2)');
ROLLBACK;
RESET plan_cache_mode;
DEALLOCATE ALL;
-- RETURNING tells ctids: of new rows, and of those that were deleted.
BEGIN;
INSERT INTO c_big VALUES (-2, 0), (-3, 0) RETURNING ctid, *;
UPDATE c_big SET v = 5 WHERE id = -2 RETURNING ctid, *;
DELETE FROM c_big WHERE id = -3 RETURNING ctid, tableoid::regclass, *;
SELECT ctid, * FROM c_big WHERE id < 0;
ROLLBACK;

DROP FUNCTION analyzed;
DROP FOREIGN TABLE c_other, c_big;
