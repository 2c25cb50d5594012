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
