-- Stage B: class and cause of every candidate, in built-in functions. The numpy twin is classify.py.
-- Views: cand (tables.DELIVERY), assigned, cover, reset, sent_back, produced, clock_error.
WITH ordered AS (
  SELECT c.*,
    row_number() OVER (PARTITION BY grp, lane, lseq, fkey ORDER BY bt, did) AS nth,
    row_number() OVER (PARTITION BY grp, lane, lseq, fkey, rt ORDER BY bt, did) AS nth_at_rt,
    row_number() OVER copy AS nth_of_copy,
    lag(inc) OVER copy AS prev_inc,
    lag(pqe) OVER copy AS prev_pqe,
    lag(bt) OVER copy AS prev_bt,
    row_number() OVER (
      PARTITION BY grp, broker, ptopic, qid, qoff, omid, inc, pqe ORDER BY bt, did
    ) AS nth_of_holder,
    min(CASE WHEN status = 'SUCCESS' AND et IS NOT NULL THEN struct(et, did, host) END)
      OVER (PARTITION BY grp, lane, lseq, fkey) AS ok1
  FROM cand c
  WINDOW copy AS (PARTITION BY grp, broker, ptopic, qid, qoff, omid ORDER BY bt, did)
),
-- ok(L): a repeat's own end is never it, so the second earliest is needed where the row is first.
succeeded AS (
  SELECT o.*,
    CASE WHEN ok1.did = did
      THEN min(CASE WHEN status = 'SUCCESS' AND et IS NOT NULL AND did <> ok1.did
                    THEN struct(et, did, host) END) OVER (PARTITION BY grp, lane, lseq, fkey)
      ELSE ok1 END AS ok
  FROM ordered o
),
failed AS (
  SELECT grp, lane, lseq, fkey, rt, min(et) AS fail_et
  FROM cand
  WHERE status IN ('LATER', 'EXC', 'NULL', 'SUSPEND') AND et IS NOT NULL
  GROUP BY grp, lane, lseq, fkey, rt
),
classed AS (
  SELECT s.*,
    CASE WHEN s.nth = 1 THEN 'PRIMARY'
         WHEN s.rt > 0 AND s.nth_at_rt = 1 AND f.fail_et <= s.bt THEN 'RETRY'
         ELSE 'DUP' END AS cls,
    s.nth > 1 AND s.ok IS NOT NULL AND s.ok.host <> s.host
      AND abs(s.bt - s.ok.et) <= coalesce(e1.error_ns, 0) + coalesce(e2.error_ns, 0)
      AND (SELECT count(*) FROM clock_error) > 1 AS ambiguous
  FROM succeeded s
  LEFT JOIN failed f ON f.grp = s.grp AND f.lane = s.lane AND f.lseq = s.lseq
    AND f.fkey = s.fkey AND f.rt = s.rt - 1
  LEFT JOIN clock_error e1 ON e1.host = s.host
  LEFT JOIN clock_error e2 ON e2.host = s.ok.host
),
held AS (
  SELECT c.*, a.a_no, a.t AS a_t, a.src, a.src_bid, a.src_binc,
    p.a_no AS p_no, p.end_t AS p_end_t, p.end_reason AS p_end_reason
  FROM classed c
  LEFT JOIN assigned a ON a.grp = c.grp AND a.broker = c.broker AND a.ptopic = c.ptopic
    AND a.qid = c.qid AND a.inc = c.inc AND a.pqe = c.pqe
  LEFT JOIN assigned p ON p.grp = c.grp AND p.broker = c.broker AND p.ptopic = c.ptopic
    AND p.qid = c.qid AND p.inc = c.prev_inc AND p.pqe = c.prev_pqe
),
-- Which incarnations had been told an offset above the copy, before the assignment, in its epochs.
covering AS (
  SELECT h.did,
    coalesce(bool_or(k.bid = h.src_bid AND k.binc = h.src_binc), false) AS same_inc,
    coalesce(bool_or(k.bid = h.src_bid), false) AS same_bid,
    coalesce(bool_or(k.bid <> h.src_bid), false) AS other_bid
  FROM held h
  JOIN cover k ON k.a_no = h.a_no AND k.off > h.qoff AND k.epoch BETWEEN h.epoch AND h.epoch_end
  WHERE h.cls = 'DUP' AND h.nth_of_copy > 1
  GROUP BY h.did
),
resetting AS (
  SELECT DISTINCT h.did
  FROM held h
  JOIN reset r ON r.a_no = h.a_no AND r.taken <= h.qoff AND h.prev_bt <= r.r_t
    AND (r.r_off <= h.qoff
         OR (r.r_off IS NULL AND r.by_inc = h.prev_inc AND r.by_pqe = h.prev_pqe))
  WHERE h.cls = 'DUP' AND h.nth_of_copy > 1
)
SELECT h.did, h.proc_no, h.host, h.grp, h.client_id, h.broker, h.ptopic, h.qid, h.epoch,
  h.epoch_end, h.qoff, h.omid, h.lane, h.lseq, h.fkey, h.okey, h.rt, h.inc, h.pqe, h.bt, h.et,
  h.status, h.store_ms, h.nth, h.nth_of_copy, h.prev_inc, h.prev_pqe, h.cls,
  CASE
    WHEN h.cls <> 'DUP' THEN NULL
    WHEN h.nth_of_holder > 1 THEN 'CLIENT_BUG'
    WHEN h.nth_of_copy > 1 AND (h.a_no IS NULL OR h.p_no IS NULL) THEN NULL
    WHEN h.nth_of_copy > 1 AND z.did IS NOT NULL THEN 'OFFSET_RESET'
    WHEN h.nth_of_copy > 1 AND v.did IS NOT NULL THEN
      CASE WHEN h.src = 'NO_ENTRY' THEN 'ROLLBACK_NO_ENTRY'
           WHEN h.src_bid IS NULL THEN NULL
           WHEN v.same_inc THEN 'ROLLBACK_OVERWRITTEN'
           WHEN v.same_bid AND h.src_binc IS NULL THEN NULL
           WHEN v.same_bid THEN 'ROLLBACK_RESTART'
           WHEN NOT v.other_bid THEN NULL
           WHEN h.src_bid = 0 THEN 'ROLLBACK_SLAVE_ONLY_PROGRESS'
           ELSE 'ROLLBACK_STALE_SLAVE' END
    WHEN h.nth_of_copy > 1 THEN
      CASE WHEN h.p_end_t IS NULL OR h.p_end_t > h.a_t THEN 'OVERLAP'
           ELSE concat('TAIL_', h.p_end_reason) END
    WHEN startswith(h.ptopic, '%RETRY%') AND h.nth_at_rt > 1 THEN
      CASE WHEN coalesce(b.stored, 0) > 1 THEN 'SENDBACK_DUP' ELSE 'DELAY_REPLAY' END
    WHEN startswith(h.ptopic, '%RETRY%') THEN
      CASE WHEN coalesce(b.expired, false) THEN 'CONSUME_TIMEOUT' ELSE 'SENDBACK_ORPHAN' END
    WHEN q.ukeys IS NULL THEN NULL
    WHEN q.ukeys > 1 THEN 'APP_RESEND'
    WHEN q.doubtful THEN 'SEND_TIMEOUT_DUP'
    WHEN q.degraded_then_more THEN 'NOT_STORE_OK_RESEND'
    ELSE 'BROKER_COPY' END AS cause,
  CASE WHEN h.ambiguous THEN NULL
       ELSE h.nth > 1 AND h.ok IS NOT NULL AND h.bt >= h.ok.et END AS after_success,
  coalesce(h.ambiguous, false) AS ambiguous,
  h.ok.et AS ok_end
FROM held h
LEFT JOIN covering v ON v.did = h.did
LEFT JOIN resetting z ON z.did = h.did
LEFT JOIN sent_back b ON b.grp = h.grp AND b.lane = h.lane AND b.lseq = h.lseq AND b.rt = h.rt
LEFT JOIN produced q ON q.lane = h.lane AND q.lseq = h.lseq
