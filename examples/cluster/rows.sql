-- Loads the rows that belong to a server, with the variables of server.sql; after a restart, too, behind TRUNCATE orders, lines, items.
-- Here they are made up. Others come by COPY from files, or from a query, with the same conditions.
SELECT :number * :items / :servers AS low, (:number + 1) * :items / :servers AS high \gset
INSERT INTO orders
    SELECT id, id % 1000, date '2024-01-01' + (id % 366)::int FROM generate_series(1::bigint, :orders) id
    WHERE satisfies_hash_partition('order_key'::regclass, :servers, :number, id);
INSERT INTO lines
    SELECT id, (id * 7 + line * 13) % 50 + 1, (id * 31 + line * 17) % 10000 / 100.0
    FROM generate_series(1::bigint, :orders) id, generate_series(1, 3) line
    WHERE satisfies_hash_partition('order_key'::regclass, :servers, :number, id);
INSERT INTO items
    SELECT id, ARRAY(SELECT (id::bigint * (id % 97 + d) / (d + 2) % 101)::real FROM generate_series(1, 8) d)
    FROM generate_series(:low, :high - 1) id;
ANALYZE orders, lines, items;
