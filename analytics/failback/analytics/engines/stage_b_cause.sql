-- Stage B, second half: one cause for every DUP; the first rule that matches.
-- Views: held (of the first half), cover, reset, sent_back, produced.
WITH
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
LEFT JOIN produced q ON q.lane = h.lane AND q.lseq = h.lseq AND (q.grp IS NULL OR q.grp = h.grp)
