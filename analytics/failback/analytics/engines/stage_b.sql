-- Stage B: PRIMARY, RETRY or DUP of every candidate, who held its copy before, and one cause for every
-- DUP; the first rule that matches. Views: cand (tables.DELIVERY), assigned, clock_error, cover, reset,
-- sent_back. The numpy twin is classify.py, which also names the causes of what is "resent" here: of
-- such messages the send attempts are looked for when it is known which they are.
-- Small tables are broadcast: candidates are wide, and are shuffled by message and by copy only. What
-- tells most rows apart comes first in a partition's columns: sorts compare the first eight bytes alone
-- where those differ. Windows of one order follow each other, for one sort.
WITH by_message AS (
  SELECT c.*,
    row_number() OVER message AS nth,
    min(CASE WHEN status = 'SUCCESS' AND et IS NOT NULL THEN struct(et, did, host) END)
      OVER (PARTITION BY lseq, lane, fkey, grp ORDER BY bt, did
            ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS ok1
  FROM cand c
  WINDOW message AS (PARTITION BY lseq, lane, fkey, grp ORDER BY bt, did)
),
-- ok(L): a repeat's own end is never it, so the second earliest is needed where the row is first.
succeeded AS (
  SELECT o.*,
    CASE WHEN ok1.did = did
      THEN min(CASE WHEN status = 'SUCCESS' AND et IS NOT NULL AND did <> ok1.did
                    THEN struct(et, did, host) END) OVER (PARTITION BY lseq, lane, fkey, grp)
      ELSE ok1 END AS ok
  FROM by_message o
),
by_attempt AS (
  SELECT s.*,
    row_number() OVER (PARTITION BY lseq, lane, fkey, grp, rt ORDER BY bt, did) AS nth_at_rt
  FROM succeeded s
),
-- Of the attempt before: the same rows in the same order as the number above.
failed AS (
  SELECT s.*,
    min(CASE WHEN status IN ('LATER', 'EXC', 'NULL', 'SUSPEND') AND et IS NOT NULL THEN et END)
      OVER (PARTITION BY lseq, lane, fkey, grp ORDER BY rt
            RANGE BETWEEN 1 PRECEDING AND 1 PRECEDING) AS fail_et
  FROM by_attempt s
),
by_holder AS (
  SELECT s.*,
    row_number() OVER (
      PARTITION BY qoff, qid, omid, ptopic, broker, grp, inc, pqe ORDER BY bt, did
    ) AS nth_of_holder
  FROM failed s
),
by_copy AS (
  SELECT s.*,
    row_number() OVER copy AS nth_of_copy,
    lag(inc) OVER copy AS prev_inc,
    lag(pqe) OVER copy AS prev_pqe,
    lag(bt) OVER copy AS prev_bt
  FROM by_holder s
  WINDOW copy AS (PARTITION BY qoff, qid, omid, ptopic, broker, grp ORDER BY bt, did)
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
),
held AS (
  SELECT /*+ BROADCAST(a, p) */ c.*, a.a_no, a.t AS a_t, a.src, a.src_bid, a.src_binc,
    p.a_no AS p_no, p.end_t AS p_end_t, p.end_reason AS p_end_reason
  FROM classed c
  LEFT JOIN assigned a ON a.grp = c.grp AND a.broker = c.broker AND a.ptopic = c.ptopic
    AND a.qid = c.qid AND a.inc = c.inc AND a.pqe = c.pqe
  LEFT JOIN assigned p ON p.grp = c.grp AND p.broker = c.broker AND p.ptopic = c.ptopic
    AND p.qid = c.qid AND p.inc = c.prev_inc AND p.pqe = c.prev_pqe
),
-- What each assignment has of them, in one row: to look through a few costs less than a join.
told AS (
  SELECT a_no, collect_list(struct(bid, binc, epoch, off)) AS told FROM cover GROUP BY a_no
),
resetting AS (
  SELECT a_no, collect_list(struct(by_inc, by_pqe, r_t, r_off, taken)) AS resets
  FROM reset GROUP BY a_no
),
-- Which incarnations had been told an offset above the copy, before the assignment, in its epochs.
explained AS (
  SELECT /*+ BROADCAST(k, r) */ h.*,
    CASE WHEN h.cls = 'DUP' AND h.nth_of_copy > 1 THEN
      filter(k.told, t -> t.off > h.qoff AND t.epoch BETWEEN h.epoch AND h.epoch_end)
    END AS covering,
    CASE WHEN h.cls = 'DUP' AND h.nth_of_copy > 1 THEN
      exists(r.resets, t -> t.taken <= h.qoff AND h.prev_bt <= t.r_t
        AND (t.r_off <= h.qoff
             OR (t.r_off IS NULL AND t.by_inc = h.prev_inc AND t.by_pqe = h.prev_pqe)))
    END AS was_reset
  FROM held h
  LEFT JOIN told k ON k.a_no = h.a_no
  LEFT JOIN resetting r ON r.a_no = h.a_no
)
SELECT /*+ BROADCAST(b) */ h.did, h.proc_no, h.host, h.grp, h.client_id, h.broker, h.ptopic, h.qid, h.epoch,
  h.epoch_end, h.qoff, h.omid, h.lane, h.lseq, h.fkey, h.okey, h.rt, h.inc, h.pqe, h.bt, h.et,
  h.status, h.store_ms, h.nth, h.nth_of_copy, h.prev_inc, h.prev_pqe, h.cls,
  CASE
    WHEN h.cls <> 'DUP' THEN NULL
    WHEN h.nth_of_holder > 1 THEN 'CLIENT_BUG'
    WHEN h.nth_of_copy > 1 AND (h.a_no IS NULL OR h.p_no IS NULL) THEN NULL
    WHEN h.was_reset THEN 'OFFSET_RESET'
    WHEN size(h.covering) > 0 THEN
      CASE WHEN h.src = 'NO_ENTRY' THEN 'ROLLBACK_NO_ENTRY'
           WHEN h.src_bid IS NULL THEN NULL
           WHEN exists(h.covering, t -> t.bid = h.src_bid AND t.binc = h.src_binc)
             THEN 'ROLLBACK_OVERWRITTEN'
           WHEN exists(h.covering, t -> t.bid = h.src_bid) THEN
             CASE WHEN h.src_binc IS NOT NULL THEN 'ROLLBACK_RESTART' END
           WHEN NOT coalesce(exists(h.covering, t -> t.bid <> h.src_bid), false) THEN NULL
           WHEN h.src_bid = 0 THEN 'ROLLBACK_SLAVE_ONLY_PROGRESS'
           ELSE 'ROLLBACK_STALE_SLAVE' END
    WHEN h.nth_of_copy > 1 THEN
      CASE WHEN h.p_end_t IS NULL OR h.p_end_t > h.a_t THEN 'OVERLAP'
           ELSE concat('TAIL_', h.p_end_reason) END
    WHEN startswith(h.ptopic, '%RETRY%') AND h.nth_at_rt > 1 THEN
      CASE WHEN coalesce(b.stored, 0) > 1 THEN 'SENDBACK_DUP' ELSE 'DELAY_REPLAY' END
    WHEN startswith(h.ptopic, '%RETRY%') THEN
      CASE WHEN coalesce(b.expired, false) THEN 'CONSUME_TIMEOUT' ELSE 'SENDBACK_ORPHAN' END
    END AS cause,
  CASE WHEN h.ambiguous THEN NULL
       ELSE h.nth > 1 AND h.ok IS NOT NULL AND h.bt >= h.ok.et END AS after_success,
  coalesce(h.ambiguous, false) AS ambiguous,
  h.ok.et AS ok_end,
  h.cls = 'DUP' AND h.nth_of_copy = 1 AND NOT startswith(h.ptopic, '%RETRY%') AS resent
FROM explained h
LEFT JOIN sent_back b ON b.grp = h.grp AND b.lane = h.lane AND b.lseq = h.lseq AND b.rt = h.rt
