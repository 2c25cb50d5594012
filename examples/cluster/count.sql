-- Aggregates over all servers: each has those of its own rows, which are added up here. Of SELECT count(*) FROM lines WHERE … postgres_fdw
-- would fetch the rows. An average is a sum by a count.
SELECT sum(lines) AS lines, sum(total) AS total, max(highest) AS highest FROM (
    SELECT count(*) AS lines, sum(quantity * price) AS total, max(price) AS highest FROM lines_0 WHERE quantity > 45 AND price < 20 UNION ALL
    SELECT count(*), sum(quantity * price), max(price) FROM lines_1 WHERE quantity > 45 AND price < 20 UNION ALL
    SELECT count(*), sum(quantity * price), max(price) FROM lines_2 WHERE quantity > 45 AND price < 20) part
