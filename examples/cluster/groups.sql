-- Groups by the key that decides on the partition are each on one server: those that HAVING leaves are all that is sent.
SELECT order_id, count(*) AS lines, sum(quantity * price) AS total FROM lines
GROUP BY order_id HAVING sum(quantity * price) > 11000 ORDER BY total DESC, order_id LIMIT 5
