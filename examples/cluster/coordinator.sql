-- The server that is asked: it has no rows and needs no GPU. psql -f coordinator.sql makes the tables, partition.sql what each of
-- the other servers has of them. docs/scale.md tells of it.
CREATE EXTENSION IF NOT EXISTS postgres_fdw;
CREATE EXTENSION IF NOT EXISTS gstore_fdw; -- operators and functions that are to be computed there must be known here

CREATE TABLE orders (id bigint NOT NULL, customer int NOT NULL, placed date NOT NULL) PARTITION BY HASH (id);
CREATE TABLE lines (order_id bigint NOT NULL, quantity int NOT NULL, price numeric(10,2) NOT NULL) PARTITION BY HASH (order_id);
CREATE TABLE items (id int NOT NULL, embedding real[]) PARTITION BY RANGE (id);

-- Both are off by default: partitions would be joined and aggregated here.
ALTER DATABASE :"DBNAME" SET enable_partitionwise_join = on;
ALTER DATABASE :"DBNAME" SET enable_partitionwise_aggregate = on;
