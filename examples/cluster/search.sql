-- The nearest of all: ten of each server, of which the nearest ten are taken here. MATERIALIZED, or PostgreSQL merges the parts, and asks one server after the other.
WITH nearest AS MATERIALIZED (
    (SELECT id, embedding <-> '{50,40,30,20,10,20,30,40}' AS distance FROM items_0 ORDER BY distance, id LIMIT 10) UNION ALL
    (SELECT id, embedding <-> '{50,40,30,20,10,20,30,40}' AS distance FROM items_1 ORDER BY distance, id LIMIT 10) UNION ALL
    (SELECT id, embedding <-> '{50,40,30,20,10,20,30,40}' AS distance FROM items_2 ORDER BY distance, id LIMIT 10))
SELECT id, distance FROM nearest ORDER BY distance, id LIMIT 10
