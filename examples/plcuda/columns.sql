/* Numbers of columns, for functions that take them. */
CREATE OR REPLACE FUNCTION column_numbers(data regclass, names text[]) RETURNS smallint[] STABLE LANGUAGE plpgsql AS $$
DECLARE
    numbers smallint[];
BEGIN
    SELECT array_agg(attnum ORDER BY at) INTO numbers
        FROM unnest(names) WITH ORDINALITY AS name (name, at)
        JOIN pg_attribute ON attrelid = data AND attname = name AND NOT attisdropped AND attnum > 0;
    IF cardinality(numbers) IS DISTINCT FROM cardinality(names) THEN
        RAISE undefined_column USING MESSAGE = format('table %s does not have each of the columns %s', data, names);
    END IF;
    RETURN numbers;
END $$;
