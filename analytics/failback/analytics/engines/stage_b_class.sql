-- Stage B, first half: PRIMARY, RETRY or DUP of every candidate, and who held its copy before.
-- Views: cand (tables.DELIVERY), assigned, clock_error. The numpy twin is classify.py.
-- Its result is kept as the view "held": it is read to find whose sends matter, and by the second half.
-- Small tables are broadcast: candidates are wide, and are shuffled by message and by copy only.
WITH by_message AS (
  SELECT c.*,
    row_number() OVER message AS nth,
    row_number() OVER (PARTITION BY grp, lane, lseq, fkey, rt ORDER BY bt, did) AS nth_at_rt,
    -- Of the attempt before: the same rows in the same order as the number above.
    min(CASE WHEN status IN ('LATER', 'EXC', 'NULL', 'SUSPEND') AND et IS NOT NULL THEN et END)
      OVER (PARTITION BY grp, lane, lseq, fkey ORDER BY rt
            RANGE BETWEEN 1 PRECEDING AND 1 PRECEDING) AS fail_et,
    min(CASE WHEN status = 'SUCCESS' AND et IS NOT NULL THEN struct(et, did, host) END)
      OVER (PARTITION BY grp, lane, lseq, fkey ORDER BY bt, did
            ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS ok1
  FROM cand c
  WINDOW message AS (PARTITION BY grp, lane, lseq, fkey ORDER BY bt, did)
),
-- ok(L): a repeat's own end is never it, so the second earliest is needed where the row is first.
succeeded AS (
  SELECT o.*,
    CASE WHEN ok1.did = did
      THEN min(CASE WHEN status = 'SUCCESS' AND et IS NOT NULL AND did <> ok1.did
                    THEN struct(et, did, host) END) OVER (PARTITION BY grp, lane, lseq, fkey)
      ELSE ok1 END AS ok
  FROM by_message o
),
by_copy AS (
  SELECT s.*,
    row_number() OVER copy AS nth_of_copy,
    lag(inc) OVER copy AS prev_inc,
    lag(pqe) OVER copy AS prev_pqe,
    lag(bt) OVER copy AS prev_bt,
    row_number() OVER (
      PARTITION BY grp, broker, ptopic, qid, qoff, omid, inc, pqe ORDER BY bt, did
    ) AS nth_of_holder
  FROM succeeded s
  WINDOW copy AS (PARTITION BY grp, broker, ptopic, qid, qoff, omid ORDER BY bt, did)
),
classed AS (
  SELECT /*+ BROADCAST(e1, e2) */ s.*,
    CASE WHEN s.nth = 1 THEN 'PRIMARY'
         WHEN s.rt > 0 AND s.nth_at_rt = 1 AND s.fail_et <= s.bt THEN 'RETRY'
         ELSE 'DUP' END AS cls,
    s.nth > 1 AND s.ok IS NOT NULL AND s.ok.host <> s.host
      AND abs(s.bt - s.ok.et) <= coalesce(e1.error_ns, 0) + coalesce(e2.error_ns, 0)
      AND (SELECT count(*) FROM clock_error) > 1 AS ambiguous
  FROM by_copy s
  LEFT JOIN clock_error e1 ON e1.host = s.host
  LEFT JOIN clock_error e2 ON e2.host = s.ok.host
)
SELECT /*+ BROADCAST(a, p) */ c.*, a.a_no, a.t AS a_t, a.src, a.src_bid, a.src_binc,
  p.a_no AS p_no, p.end_t AS p_end_t, p.end_reason AS p_end_reason
FROM classed c
LEFT JOIN assigned a ON a.grp = c.grp AND a.broker = c.broker AND a.ptopic = c.ptopic
  AND a.qid = c.qid AND a.inc = c.inc AND a.pqe = c.pqe
LEFT JOIN assigned p ON p.grp = c.grp AND p.broker = c.broker AND p.ptopic = c.ptopic
  AND p.qid = c.qid AND p.inc = c.prev_inc AND p.pqe = c.prev_pqe
