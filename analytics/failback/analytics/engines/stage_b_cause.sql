-- Stage B, second half: one cause for every DUP; the first rule that matches.
-- Views: held (of the first half), cover, reset, sent_back, produced.
WITH
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
    WHEN q.ukeys IS NULL THEN NULL
    WHEN q.ukeys > 1 THEN 'APP_RESEND'
    WHEN q.doubtful THEN 'SEND_TIMEOUT_DUP'
    WHEN q.degraded_then_more THEN 'NOT_STORE_OK_RESEND'
    ELSE 'BROKER_COPY' END AS cause,
  CASE WHEN h.ambiguous THEN NULL
       ELSE h.nth > 1 AND h.ok IS NOT NULL AND h.bt >= h.ok.et END AS after_success,
  coalesce(h.ambiguous, false) AS ambiguous,
  h.ok.et AS ok_end
FROM explained h
LEFT JOIN sent_back b ON b.grp = h.grp AND b.lane = h.lane AND b.lseq = h.lseq AND b.rt = h.rt
LEFT JOIN produced q ON q.lane = h.lane AND q.lseq = h.lseq AND (q.grp IS NULL OR q.grp = h.grp)
