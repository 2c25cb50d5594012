-- At the coordinator, for each of the other servers: psql -v servers=3 -v number=0 -v items=30000 -v host=HOST -f partition.sql
-- makes that server's partitions known. PGUSER must be able to log in there.
\set server gpu_ :number
\set orders_part orders_ :number
\set lines_part lines_ :number
\set items_part items_ :number
SELECT :number * :items / :servers AS low, (:number + 1) * :items / :servers AS high \gset

CREATE SERVER :"server" FOREIGN DATA WRAPPER postgres_fdw OPTIONS (
    host :'host', dbname :'DBNAME',
    extensions 'gstore_fdw',     -- what these define is computed there; built-in functions always are
    async_capable 'true',        -- servers work at the same time
    use_remote_estimate 'true',  -- that server's planner knows what its GPU costs
    fetch_size '10000',          -- rows in an answer
    connect_timeout '2', tcp_user_timeout '5000', keepalives_idle '2', keepalives_interval '1', keepalives_count '3');
CREATE USER MAPPING FOR CURRENT_USER SERVER :"server" OPTIONS (user :'USER');

CREATE FOREIGN TABLE :"orders_part" PARTITION OF orders FOR VALUES WITH (MODULUS :servers, REMAINDER :number)
    SERVER :"server" OPTIONS (table_name 'orders');
CREATE FOREIGN TABLE :"lines_part" PARTITION OF lines FOR VALUES WITH (MODULUS :servers, REMAINDER :number)
    SERVER :"server" OPTIONS (table_name 'lines');
CREATE FOREIGN TABLE :"items_part" PARTITION OF items FOR VALUES FROM (:low) TO (:high)
    SERVER :"server" OPTIONS (table_name 'items');
