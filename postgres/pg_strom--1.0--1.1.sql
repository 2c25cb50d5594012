-- 1.1: names of functions about PL/CUDA's kernels. They need the extension plcuda when they are called, not here.
\echo Use "ALTER EXTENSION pg_strom UPDATE" to load this file. \quit

CREATE FUNCTION pgstrom.plcuda_query(call text) RETURNS text STABLE LANGUAGE plpgsql AS $$
DECLARE
    schema regnamespace;
BEGIN
    SELECT e.extnamespace INTO schema FROM pg_catalog.pg_extension e WHERE e.extname OPERATOR(pg_catalog.=) 'plcuda';
    IF schema IS NULL THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = 'this function needs the extension plcuda',
            HINT = 'CREATE EXTENSION plcuda.';
    END IF;
    RETURN pg_catalog.format('SELECT %s.%s', schema, call);
END
$$;

CREATE FUNCTION pgstrom.plcuda_function_source(function regproc) RETURNS text STABLE STRICT LANGUAGE plpgsql AS $$
DECLARE
    answer text;
BEGIN
    EXECUTE pgstrom.plcuda_query('plcuda_function_source($1)') INTO answer USING $1;
    RETURN answer;
END
$$;

DO LANGUAGE plpgsql $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['plcuda_kernel_max_blocksz', 'plcuda_kernel_static_shmsz', 'plcuda_kernel_dynamic_shmsz',
        'plcuda_kernel_const_memsz', 'plcuda_kernel_local_memsz']
    LOOP
        EXECUTE pg_catalog.format($f$CREATE FUNCTION pgstrom.%1$I() RETURNS int STABLE LANGUAGE plpgsql AS
            'DECLARE answer int; BEGIN EXECUTE pgstrom.plcuda_query(''%1$I()'') INTO answer; RETURN answer; END'$f$, name);
        EXECUTE pg_catalog.format($f$CREATE FUNCTION pgstrom.%1$I(function regproc) RETURNS int STABLE STRICT LANGUAGE plpgsql AS
            'DECLARE answer int; BEGIN EXECUTE pgstrom.plcuda_query(''%1$I($1)'') INTO answer USING $1; RETURN answer; END'$f$, name);
    END LOOP;
END
$$;
