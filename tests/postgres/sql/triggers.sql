-- Triggers, constraints and generated columns: the server leaves them to the wrapper in part.
CREATE FOREIGN TABLE g (id int NOT NULL, t text CHECK (t <> 'bad'), twice int GENERATED ALWAYS AS (id * 2) STORED) SERVER gstore_fdw;

CREATE FUNCTION g_before() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        RAISE NOTICE 'before delete of %', OLD;
        RETURN CASE WHEN OLD.t IS DISTINCT FROM 'kept' THEN OLD END;
    END IF;
    NEW.t := NEW.t || '+';
    IF TG_OP = 'UPDATE' THEN
        RAISE NOTICE 'before update of % to %', OLD, NEW;
    END IF;
    IF NEW.id = 13 THEN RETURN NULL; END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION g_after() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE NOTICE 'after %: % -> %, % rows', lower(TG_OP), OLD, NEW, (SELECT count(*) FROM g);
    RETURN NULL;
END $$;
CREATE FUNCTION g_statement() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE NOTICE '% % statement, % rows', lower(TG_WHEN), lower(TG_OP), (SELECT count(*) FROM g);
    RETURN NULL;
END $$;
CREATE TRIGGER b BEFORE INSERT OR UPDATE OR DELETE ON g FOR EACH ROW EXECUTE FUNCTION g_before();
CREATE TRIGGER a AFTER INSERT OR UPDATE OR DELETE ON g FOR EACH ROW EXECUTE FUNCTION g_after();
CREATE TRIGGER sb BEFORE INSERT OR UPDATE OR DELETE ON g FOR EACH STATEMENT EXECUTE FUNCTION g_statement();
CREATE TRIGGER sa AFTER INSERT OR UPDATE OR DELETE ON g FOR EACH STATEMENT EXECUTE FUNCTION g_statement();

INSERT INTO g VALUES (1, 'one'), (13, 'dropped'), (2, NULL) RETURNING *;
COPY g (id, t) FROM stdin;
3	three
13	dropped
\.
UPDATE g SET id = id + 10 WHERE id = 1 RETURNING *;
UPDATE g SET t = 'x' WHERE id = 13;
DELETE FROM g WHERE id = 2 RETURNING *;
SELECT * FROM g ORDER BY id;
DROP TRIGGER a ON g;
DROP TRIGGER sb ON g;
DROP TRIGGER sa ON g;

-- A row that the trigger keeps; an error of a trigger undoes the statement.
DROP TRIGGER b ON g;
INSERT INTO g VALUES (4, 'kept');
CREATE TRIGGER b BEFORE DELETE ON g FOR EACH ROW EXECUTE FUNCTION g_before();
DELETE FROM g WHERE id = 4 RETURNING *;
SELECT * FROM g WHERE id = 4;
CREATE FUNCTION g_fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no' USING ERRCODE = 'P0042'; END $$;
CREATE TRIGGER f AFTER INSERT ON g FOR EACH ROW EXECUTE FUNCTION g_fail();
\set VERBOSITY sqlstate
INSERT INTO g VALUES (5, 'fails');
\set VERBOSITY default
SELECT count(*) FROM g WHERE id = 5;
DROP TRIGGER f ON g;
DROP TRIGGER b ON g;

-- A trigger that writes to the same table.
CREATE FUNCTION g_again() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.id < 104 THEN INSERT INTO g VALUES (NEW.id + 1, 'by trigger'); END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER again AFTER INSERT ON g FOR EACH ROW EXECUTE FUNCTION g_again();
INSERT INTO g VALUES (100, 'chain');
SELECT id, t FROM g WHERE id >= 100 ORDER BY id;
DROP TRIGGER again ON g;

-- Transition tables are not for foreign tables.
\set VERBOSITY sqlstate
CREATE TRIGGER tt AFTER INSERT ON g REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION g_statement();

-- Constraints hold for each way in.
INSERT INTO g VALUES (NULL, 'x');
INSERT INTO g VALUES (6, 'good'), (7, 'bad');
COPY g (id, t) FROM stdin;
8	bad
\.
UPDATE g SET t = 'bad' WHERE id = 3;
UPDATE g SET id = NULL WHERE id = 3;
INSERT INTO g (id, twice) VALUES (9, 9);
UPDATE g SET twice = 1;
\set VERBOSITY default
SELECT * FROM g WHERE id < 10 ORDER BY id;
SELECT count(*) FILTER (WHERE twice IS DISTINCT FROM id * 2) AS wrong FROM g;
DROP FOREIGN TABLE g;
DROP FUNCTION g_before, g_after, g_statement, g_fail, g_again;
