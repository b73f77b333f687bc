\set id random(1, 100000)
SELECT json_agg(row_to_json(a)) FROM (SELECT * FROM pgbench_accounts WHERE aid BETWEEN :id AND :id + 50) a;
SELECT regexp_replace(filler, '(\s+)$', 'x') , md5(filler) FROM pgbench_accounts WHERE aid = :id;
SELECT bid, count(*), avg(abalance), string_agg(aid::text, ',' ORDER BY aid DESC) FROM pgbench_accounts WHERE aid < 500 GROUP BY bid;
DO $$ BEGIN PERFORM 1 / (random() * 0)::int; EXCEPTION WHEN division_by_zero THEN NULL; END $$;
UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :id;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100) SELECT sum(sqrt(i::numeric)) FROM n;
