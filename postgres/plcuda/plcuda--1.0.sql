\echo Use "CREATE EXTENSION plcuda" to load this file. \quit

CREATE FUNCTION plcuda_call_handler() RETURNS language_handler
	LANGUAGE C AS 'MODULE_PATHNAME';

CREATE FUNCTION plcuda_validator(oid) RETURNS void
	LANGUAGE C STRICT AS 'MODULE_PATHNAME';

CREATE LANGUAGE plcuda HANDLER plcuda_call_handler VALIDATOR plcuda_validator;
COMMENT ON LANGUAGE plcuda IS 'functions in CUDA C over tables in GPU memory';

CREATE FUNCTION plcuda_function_source(function regproc) RETURNS text
	LANGUAGE C STABLE STRICT AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION plcuda_function_source(regproc) IS
	'the text that the compiler is given for a function in the language plcuda';

CREATE FUNCTION plcuda_kernel_info(function regproc DEFAULT '-', OUT kernel text, OUT max_blocksz integer, OUT registers integer,
	OUT static_shmsz integer, OUT dynamic_shmsz integer, OUT const_memsz integer, OUT local_memsz integer) RETURNS SETOF record
	LANGUAGE C STABLE STRICT ROWS 3 AS 'MODULE_PATHNAME', 'plcuda_kernel_info_of';
COMMENT ON FUNCTION plcuda_kernel_info(regproc) IS
	'what the kernels of a function in the language plcuda take, and may take more, on this GPU';
CREATE FUNCTION plcuda_gpu_info(OUT name text, OUT architecture text, OUT multiprocessors integer, OUT warp_size integer,
	OUT max_blocksz integer, OUT block_registers integer, OUT max_shmsz integer, OUT const_memsz integer, OUT memory bigint)
	LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'plcuda_gpu_info_of';
COMMENT ON FUNCTION plcuda_gpu_info() IS 'limits of the GPU that functions in the language plcuda run on';
REVOKE ALL ON FUNCTION plcuda_gpu_info() FROM PUBLIC;

-- One column for one kernel; without a function, in functions that a directive names, for the kernel that it is for.
DO LANGUAGE plpgsql $$
DECLARE
	size text;
BEGIN
	FOREACH size IN ARRAY ARRAY['max_blocksz', 'static_shmsz', 'dynamic_shmsz', 'const_memsz', 'local_memsz'] LOOP
		EXECUTE pg_catalog.format('CREATE FUNCTION plcuda_kernel_%1$s(function regproc, kernel text DEFAULT ''main'') RETURNS integer
			LANGUAGE sql STABLE STRICT RETURN (SELECT i.%1$s FROM plcuda_kernel_info($1) i WHERE i.kernel = $2)', size);
		EXECUTE pg_catalog.format('CREATE FUNCTION plcuda_kernel_%1$s() RETURNS integer
			LANGUAGE sql STABLE RETURN (SELECT i.%1$s FROM plcuda_kernel_info() i)', size);
	END LOOP;
END $$;

-- Matrices: arrays of two dimensions.

CREATE FUNCTION array_matrix_validation(anyarray) RETURNS boolean
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'plcuda_matrix_validation';
COMMENT ON FUNCTION array_matrix_validation(anyarray) IS 'whether an array is a matrix';
CREATE FUNCTION array_matrix_height(anyarray) RETURNS integer
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'plcuda_matrix_height';
COMMENT ON FUNCTION array_matrix_height(anyarray) IS 'number of rows of a matrix';
CREATE FUNCTION array_matrix_width(anyarray) RETURNS integer
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'plcuda_matrix_width';
COMMENT ON FUNCTION array_matrix_width(anyarray) IS 'number of columns of a matrix';
CREATE FUNCTION transpose(anyarray) RETURNS anyarray
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'plcuda_matrix_transpose';
COMMENT ON FUNCTION transpose(anyarray) IS 'matrix with rows and columns exchanged';
CREATE FUNCTION matrix_unnest(anyarray) RETURNS SETOF record
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'plcuda_matrix_unnest';
COMMENT ON FUNCTION matrix_unnest(anyarray) IS 'rows of a matrix';
CREATE FUNCTION rbind(anycompatiblearray, anycompatiblearray) RETURNS anycompatiblearray
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'plcuda_rbind';
COMMENT ON FUNCTION rbind(anycompatiblearray, anycompatiblearray) IS 'the second matrix below the first';
CREATE FUNCTION cbind(anycompatiblearray, anycompatiblearray) RETURNS anycompatiblearray
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'plcuda_cbind';
COMMENT ON FUNCTION cbind(anycompatiblearray, anycompatiblearray) IS 'the second matrix to the right of the first';

CREATE FUNCTION plcuda_matrix_add(internal, anyarray) RETURNS internal
	LANGUAGE C IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME';
CREATE FUNCTION plcuda_matrix_add_bits(internal, bit varying) RETURNS internal
	LANGUAGE C IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME';
CREATE FUNCTION plcuda_rbind_add(internal, anyarray) RETURNS internal
	LANGUAGE C IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME';
CREATE FUNCTION plcuda_cbind_add(internal, anyarray) RETURNS internal
	LANGUAGE C IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME';
CREATE FUNCTION plcuda_rbind_end(internal, anyarray) RETURNS anyarray
	LANGUAGE C IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME';
CREATE FUNCTION plcuda_matrix_end_bits(internal, bit varying) RETURNS integer[]
	LANGUAGE C IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'plcuda_rbind_end';
CREATE FUNCTION plcuda_cbind_end(internal, anyarray) RETURNS anyarray
	LANGUAGE C IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME';

DO LANGUAGE plpgsql $$
DECLARE
	element text;
BEGIN
	FOREACH element IN ARRAY ARRAY['boolean', 'smallint', 'integer', 'bigint', 'real', 'double precision'] LOOP
		EXECUTE pg_catalog.format('CREATE AGGREGATE array_matrix(VARIADIC %s[]) (SFUNC = plcuda_matrix_add, STYPE = internal,
			FINALFUNC = plcuda_rbind_end, FINALFUNC_EXTRA, PARALLEL = SAFE)', element);
		EXECUTE pg_catalog.format('COMMENT ON AGGREGATE array_matrix(VARIADIC %s[]) IS %L', element, 'matrix of rows of values');
	END LOOP;
END $$;
CREATE AGGREGATE array_matrix(bit varying) (SFUNC = plcuda_matrix_add_bits, STYPE = internal,
	FINALFUNC = plcuda_matrix_end_bits, FINALFUNC_EXTRA, PARALLEL = SAFE);
COMMENT ON AGGREGATE array_matrix(bit varying) IS 'matrix of rows of bits, in words of 32';
CREATE AGGREGATE rbind(anyarray) (SFUNC = plcuda_rbind_add, STYPE = internal,
	FINALFUNC = plcuda_rbind_end, FINALFUNC_EXTRA, PARALLEL = SAFE);
COMMENT ON AGGREGATE rbind(anyarray) IS 'matrices below each other';
CREATE AGGREGATE cbind(anyarray) (SFUNC = plcuda_cbind_add, STYPE = internal,
	FINALFUNC = plcuda_cbind_end, FINALFUNC_EXTRA, PARALLEL = SAFE);
COMMENT ON AGGREGATE cbind(anyarray) IS 'matrices beside each other';
