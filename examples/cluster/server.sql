-- One of the servers that tables are spread over: psql -v servers=3 -v number=0 -v orders=100000 -v items=30000 -f server.sql
-- makes its partitions, in GPU memory, and loads the rows that belong there. All servers may do so at the same time. docs/scale.md tells of it.
CREATE EXTENSION IF NOT EXISTS gstore_fdw;

CREATE FOREIGN TABLE orders (id bigint NOT NULL, customer int NOT NULL, placed date NOT NULL) SERVER gstore_fdw;
CREATE FOREIGN TABLE lines (order_id bigint NOT NULL, quantity int NOT NULL, price numeric(10,2) NOT NULL) SERVER gstore_fdw;
CREATE FOREIGN TABLE items (id int NOT NULL, embedding real[] OPTIONS (length '8')) SERVER gstore_fdw;

-- After a restart the tables are empty. Statements then fail, in place of answers without these rows, until TRUNCATE and a load.
ALTER DATABASE :"DBNAME" SET gstore_fdw.lost_tables = 'error';
-- postgres_fdw reads by cursors, of which the planner expects a tenth to be fetched.
ALTER DATABASE :"DBNAME" SET cursor_tuple_fraction = 1;

-- Which orders are this server's, by the hash that partitions have: of a partitioned table that is never filled.
CREATE TABLE order_key (id bigint) PARTITION BY HASH (id);
\ir rows.sql
