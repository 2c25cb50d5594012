-- A join of tables that are partitioned alike is one of partitions, on each server. Groups by other keys are added up here.
SELECT customer, sum(lines) AS lines, sum(total) AS total FROM (
    SELECT customer, count(*) AS lines, sum(quantity * price) AS total FROM orders_0 JOIN lines_0 ON order_id = id WHERE placed < '2024-04-01' GROUP BY customer UNION ALL
    SELECT customer, count(*), sum(quantity * price) FROM orders_1 JOIN lines_1 ON order_id = id WHERE placed < '2024-04-01' GROUP BY customer UNION ALL
    SELECT customer, count(*), sum(quantity * price) FROM orders_2 JOIN lines_2 ON order_id = id WHERE placed < '2024-04-01' GROUP BY customer) part
GROUP BY customer ORDER BY total DESC, customer LIMIT 5
