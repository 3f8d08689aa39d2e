-- Intervals of offsets that came more than once: `depth` times each, from `lo` up to before `hi`. What came
-- in the warm-up counts in `depth`; what came in the warm-up alone is left out.
CREATE OR REPLACE VIEW redelivered AS
SELECT run, grp, broker, ptopic, qid, min(qoff) AS lo, max(qoff) + 1 AS hi, depth
FROM (SELECT *, qoff - row_number() OVER (PARTITION BY run, grp, broker, ptopic, qid, depth ORDER BY qoff) AS island
      FROM (SELECT run, grp, broker, ptopic, qid, qoff, count(*) AS depth
            FROM handlings
            GROUP BY run, grp, broker, ptopic, qid, qoff HAVING count(CASE WHEN counted THEN 1 END) > 0) AS offsets
      WHERE depth > 1) AS numbered
GROUP BY run, grp, broker, ptopic, qid, depth, island
