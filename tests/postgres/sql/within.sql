-- Triggers and functions that change rows which the statement that they run within is about to change, too. Each case
-- is run on a heap table and on a table in GPU memory. What the one says, the other does: 27000 where the
-- statement itself comes to a row that was changed within it.
CREATE SCHEMA heap;
CREATE SCHEMA gpu;
CREATE TABLE heap.t (a int, b int);
CREATE FOREIGN TABLE gpu.t (a int, b int) SERVER gstore_fdw;

-- They find table t by the search path.
CREATE FUNCTION upd(int) RETURNS int LANGUAGE plpgsql AS 'BEGIN UPDATE t SET b = b + 100 WHERE a = $1; RETURN $1; END';
CREATE FUNCTION upd_twice(int) RETURNS int LANGUAGE plpgsql AS
    'BEGIN UPDATE t SET b = b + 100 WHERE a = $1; UPDATE t SET b = b + 1000 WHERE a = $1; RETURN $1; END';
CREATE FUNCTION upd_next(int) RETURNS int LANGUAGE plpgsql AS 'BEGIN UPDATE t SET b = b + 10 WHERE a = $1 + 1; RETURN $1; END';
CREATE FUNCTION upd_undone(int) RETURNS int LANGUAGE plpgsql AS
    'BEGIN BEGIN UPDATE t SET b = b + 10 WHERE a = $1; PERFORM 1 / 0; EXCEPTION WHEN division_by_zero THEN END; RETURN $1; END';
CREATE FUNCTION del(int) RETURNS int LANGUAGE plpgsql AS 'BEGIN DELETE FROM t WHERE a = $1; RETURN $1; END';
CREATE FUNCTION del_next(int) RETURNS int LANGUAGE plpgsql AS 'BEGIN DELETE FROM t WHERE a = $1 + 1; RETURN $1; END';
CREATE FUNCTION loop_over() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    r record;
    seen int[];
BEGIN
    FOR r IN SELECT * FROM t FOR UPDATE LOOP
        seen := seen || r.a;
        UPDATE t SET b = b + 10 WHERE a IN (r.a, r.a + 1);
    END LOOP;
    RETURN seen;
END $$;
CREATE FUNCTION cursor_over(hint text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    c refcursor;
    r record;
    seen int[];
BEGIN
    OPEN c FOR EXECUTE 'SELECT * FROM t ' || hint;
    FETCH c INTO r;
    UPDATE t SET b = b + 10 WHERE a = 2;
    BEGIN
        DELETE FROM t WHERE a = 3;
        PERFORM 1 / 0;
    EXCEPTION WHEN division_by_zero THEN
    END;
    WHILE r IS NOT NULL LOOP
        seen := seen || r.a;
        FETCH c INTO r;
    END LOOP;
    RETURN seen;
END $$;
CREATE FUNCTION change_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_ARGV[0] LIKE 'update%' THEN
        UPDATE t SET b = b + 100 WHERE a = OLD.a + (TG_ARGV[0] LIKE '%next')::int;
    ELSIF TG_ARGV[0] = 'delete' THEN
        DELETE FROM t WHERE a = OLD.a;
    ELSE
        BEGIN
            UPDATE t SET b = b + 100 WHERE a = OLD.a;
            PERFORM 1 / 0;
        EXCEPTION WHEN division_by_zero THEN
        END;
    END IF;
    RETURN CASE WHEN TG_ARGV[0] = 'update null' THEN NULL WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
END $$;

-- What a query returns, or fails with, and what is in the table then.
CREATE FUNCTION outcome(place text, query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    result text;
BEGIN
    PERFORM set_config('search_path', place || ', public', true);
    TRUNCATE t;
    INSERT INTO t VALUES (1, 1), (2, 2), (3, 3), (4, 4);
    BEGIN
        IF query ~ '^(SELECT|WITH)' THEN
            EXECUTE query INTO result;
        ELSE
            EXECUTE query;
        END IF;
    EXCEPTION WHEN OTHERS THEN
        result := SQLSTATE;
    END;
    RETURN coalesce(result, 'nothing') || ': ' || coalesce((SELECT string_agg(a || '=' || b, ' ' ORDER BY a, b) FROM t), 'no row');
END $$;
CREATE PROCEDURE try(query text) LANGUAGE plpgsql AS $$
DECLARE
    heap text := outcome('heap', query);
    gpu text := outcome('gpu', query);
BEGIN
    RAISE INFO '%', heap;
    IF gpu IS DISTINCT FROM heap THEN
        RAISE INFO 'but in GPU memory %', gpu;
    END IF;
END $$;
\set VERBOSITY terse

-- Functions: in WHERE, in SET, in RETURNING; of the same row, of rows that come later, of rows that are through.
CALL try('UPDATE t SET b = 9 WHERE a = 1 AND upd(a) = 1');
CALL try('UPDATE t SET b = 9 WHERE a = 1 AND del(a) = 1');
CALL try('DELETE FROM t WHERE a = 1 AND upd(a) = 1');
CALL try('DELETE FROM t WHERE a = 1 AND del(a) = 1');
CALL try('DELETE FROM t WHERE a = 1 AND upd_twice(a) = 1');
CALL try('UPDATE t SET b = upd(a) WHERE a = 1');
CALL try('UPDATE t SET b = del(a) WHERE a = 1');
CALL try('UPDATE t SET b = upd_twice(a)');
CALL try('UPDATE t SET b = upd_next(a) + 50');
CALL try('UPDATE t SET b = upd_next(a) + 50 WHERE a = 1');
CALL try('UPDATE t SET b = upd(a - 1) + 50');
CALL try('DELETE FROM t WHERE del_next(a) > 0');
CALL try('DELETE FROM t WHERE del(a - 1) > 0');
CALL try('WITH u AS (UPDATE t SET b = 7 WHERE a = 1 RETURNING upd(a), b) SELECT array_agg(u) FROM u');
CALL try('WITH u AS (UPDATE t SET b = 7 WHERE a < 3 RETURNING upd_next(a), b) SELECT array_agg(u) FROM u');
CALL try('WITH u AS (UPDATE t SET b = 7 WHERE a < 3 RETURNING del(a), b) SELECT array_agg(u) FROM u');
CALL try('WITH d AS (DELETE FROM t WHERE a < 3 RETURNING upd_next(a), b) SELECT array_agg(d) FROM d');
CALL try('WITH d AS (DELETE FROM t WHERE a < 3 RETURNING del(a), b) SELECT array_agg(d) FROM d');
-- What was undone was not changed.
CALL try('UPDATE t SET b = upd_undone(a) + 7');
CALL try('DELETE FROM t WHERE upd_undone(a) < 3');

-- A row that a join meets twice is changed once, as is one of two parts of a statement; other rows change within it.
CALL try('UPDATE t SET b = 50 FROM generate_series(1, 3) WHERE a = 1');
CALL try('DELETE FROM t USING generate_series(1, 3) WHERE a = 1');
CALL try('UPDATE t SET b = upd(t.a + 2) + 60 FROM generate_series(1, 3) WHERE a = 1');
CALL try('UPDATE t SET b = upd(t.a + 1) + 60 FROM generate_series(1, 3) WHERE a < 3');
CALL try('WITH u AS (UPDATE t SET b = b + 20 WHERE a = 1 RETURNING a) SELECT upd(a) FROM u');
CALL try('WITH d AS (DELETE FROM t WHERE a = 1 RETURNING a), e AS (DELETE FROM t WHERE a = 1 RETURNING a) SELECT (SELECT count(*) FROM d) + (SELECT count(*) FROM e)');
CALL try('WITH u AS (UPDATE t SET b = upd_next(a) WHERE a = 1 RETURNING a) UPDATE t SET b = 77 WHERE a = 2 RETURNING a');

-- FOR UPDATE passes over rows that the transaction itself has changed since the query began, plain queries do not.
CALL try('SELECT array_agg(s) FROM (SELECT a, upd(a) FROM t FOR UPDATE) s');
CALL try('SELECT array_agg(s) FROM (SELECT a, upd_next(a) FROM t FOR SHARE) s');
CALL try('SELECT array_agg(s) FROM (SELECT a, upd_next(a) FROM (SELECT * FROM t ORDER BY a FOR UPDATE) o) s');
CALL try('SELECT array_agg(s) FROM (SELECT a, del_next(a) FROM t) s');
CALL try('SELECT loop_over()');
CALL try('SELECT cursor_over(''FOR UPDATE'')');
CALL try('SELECT cursor_over(''ORDER BY a FOR KEY SHARE'')');
CALL try('SELECT cursor_over(''ORDER BY a'')');

-- Triggers for each row, before and after.
CREATE PROCEDURE try_trigger(kind text, argument text) LANGUAGE plpgsql AS $$
DECLARE
    place text;
    query text;
BEGIN
    FOREACH place IN ARRAY '{heap,gpu}'::text[] LOOP
        EXECUTE format('CREATE TRIGGER c %s UPDATE OR DELETE ON %I.t FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION change_row(%L)', kind, place, argument);
    END LOOP;
    FOREACH query IN ARRAY '{UPDATE t SET b = 7 WHERE a = 1,UPDATE t SET b = 7 WHERE a < 3,DELETE FROM t WHERE a = 1,DELETE FROM t WHERE a < 3}'::text[] LOOP
        CALL try(query);
    END LOOP;
    CALL try('WITH d AS (DELETE FROM t WHERE a > 2 RETURNING *) SELECT array_agg(d) FROM d');
    DROP TRIGGER c ON heap.t;
    DROP TRIGGER c ON gpu.t;
END $$;
CALL try_trigger('BEFORE', 'update');
CALL try_trigger('BEFORE', 'delete');
CALL try_trigger('BEFORE', 'update next');
CALL try_trigger('BEFORE', 'update null');
CALL try_trigger('BEFORE', 'update undone');
CALL try_trigger('AFTER', 'update next');
CALL try_trigger('AFTER', 'delete');

DROP SCHEMA heap CASCADE;
DROP SCHEMA gpu CASCADE;
DROP FUNCTION upd, upd_twice, upd_next, upd_undone, del, del_next, loop_over, cursor_over, change_row, outcome;
DROP PROCEDURE try, try_trigger;
