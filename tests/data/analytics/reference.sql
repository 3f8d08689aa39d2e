-- The measures and causes as plain SQL over all rows: an illustration of the definitions, used as
-- a third opinion beside the engines. Times in ms, already aligned; lid is the message.
-- V1: order every delivery of a logical message inside its group
CREATE OR REPLACE TEMP VIEW v_order AS
SELECT d.*,
  row_number() OVER (PARTITION BY run, grp, lid     ORDER BY bt, did) AS nth,
  row_number() OVER (PARTITION BY run, grp, lid, rt ORDER BY bt, did) AS nth_at_rt,
  row_number() OVER (PARTITION BY run, grp, broker, ptopic, qid, qoff, omid ORDER BY bt, did) AS nth_of_copy,
  lag(inc) OVER (PARTITION BY run, grp, broker, ptopic, qid, qoff, omid ORDER BY bt, did) AS prev_inc,
  lag(pqe) OVER (PARTITION BY run, grp, broker, ptopic, qid, qoff, omid ORDER BY bt, did) AS prev_pqe,
  min(CASE WHEN status = 'SUCCESS' THEN et END) OVER (PARTITION BY run, grp, lid) AS first_ok_end
FROM deliver d;
-- V2: PRIMARY / RETRY / DUP, plus the harm flags
CREATE OR REPLACE TEMP VIEW v_class AS
WITH f AS (SELECT run, grp, lid, rt, min(bt) AS fail_bt FROM deliver
           WHERE status IN ('LATER','EXC','NULL','SUSPEND') GROUP BY run, grp, lid, rt)
SELECT o.*,
  CASE WHEN o.nth = 1 THEN 'PRIMARY'
       WHEN o.rt > 0 AND o.nth_at_rt = 1 AND f.fail_bt < o.bt THEN 'RETRY'
       ELSE 'DUP' END AS cls,
  (o.nth > 1 AND o.first_ok_end IS NOT NULL AND o.bt >= o.first_ok_end) AS after_success
FROM v_order o LEFT JOIN f ON f.run=o.run AND f.grp=o.grp AND f.lid=o.lid AND f.rt=o.rt-1;
-- V3: what was known about progress when a queue was (re)assigned
CREATE OR REPLACE TEMP VIEW v_rollback AS
WITH c AS (SELECT a.run, a.grp, a.inc, a.pqe, max(k.off) AS cbest
           FROM assign a JOIN commit k ON k.run=a.run AND k.grp=a.grp AND k.broker=a.broker
             AND k.ptopic=a.ptopic AND k.qid=a.qid AND k.t <= a.t AND k.sent
           GROUP BY a.run, a.grp, a.inc, a.pqe),
     h AS (SELECT a.run, a.grp, a.inc, a.pqe, max(d.qoff)+1 AS hproc
           FROM assign a JOIN deliver d ON d.run=a.run AND d.grp=a.grp AND d.broker=a.broker
             AND d.ptopic=a.ptopic AND d.qid=a.qid AND d.status='SUCCESS' AND d.et <= a.t
           GROUP BY a.run, a.grp, a.inc, a.pqe),
     w AS (SELECT run, grp, inc, pqe, count(DISTINCT qoff) AS redelivered,
                  min(qoff) AS w_lo, max(qoff)+1 AS w_hi
           FROM v_order WHERE nth_of_copy > 1 AND (prev_inc<>inc OR prev_pqe<>pqe) GROUP BY run, grp, inc, pqe)
SELECT a.*, coalesce(c.cbest,-1) AS cbest, coalesce(h.hproc,0) AS hproc,
  greatest(coalesce(c.cbest,a.start_off)-a.start_off,0) AS d_commit,
  greatest(coalesce(h.hproc,a.start_off)-a.start_off,0) AS d_proc,
  coalesce(w.redelivered,0) AS redelivered, w.w_lo, w.w_hi
FROM assign a
LEFT JOIN c ON c.run=a.run AND c.grp=a.grp AND c.inc=a.inc AND c.pqe=a.pqe
LEFT JOIN h ON h.run=a.run AND h.grp=a.grp AND h.inc=a.inc AND h.pqe=a.pqe
LEFT JOIN w ON w.run=a.run AND w.grp=a.grp AND w.inc=a.inc AND w.pqe=a.pqe;
-- V4: one cause for every DUP
CREATE OR REPLACE TEMP VIEW v_cause AS
WITH sb AS (SELECT run, grp, lid, rt_next AS rt, count(*) AS n,
                   max(CASE WHEN reason='EXPIRE' THEN 1 ELSE 0 END) AS expired
            FROM sendback GROUP BY run, grp, lid, rt_next),
     cov AS (SELECT y.run, y.did, bool_or(k.bid=a.src_bid AND k.binc=a.src_binc) AS same_inc,
                    bool_or(k.bid=a.src_bid) AS same_bid
             FROM v_order y JOIN assign a ON a.run=y.run AND a.grp=y.grp AND a.inc=y.inc AND a.pqe=y.pqe
             JOIN commit k ON k.run=a.run AND k.grp=a.grp AND k.broker=a.broker AND k.ptopic=a.ptopic
               AND k.qid=a.qid AND k.sent AND k.t <= a.t AND k.off > y.qoff
             WHERE y.nth_of_copy > 1 GROUP BY y.run, y.did),
     pr AS (SELECT run, lid, count(DISTINCT ukey) AS n_ukey, count(*) AS n_att,
                   max(CASE WHEN res IN ('TIMEOUT','CONN','UNKNOWN') THEN 1 ELSE 0 END) AS doubtful,
                   max(CASE WHEN res='OK_DEGRADED' THEN 1 ELSE 0 END) AS degraded
            FROM produce GROUP BY run, lid)
SELECT v.*,
 CASE
  WHEN v.cls <> 'DUP' THEN NULL
  WHEN v.nth_of_copy > 1 AND v.prev_inc = v.inc AND v.prev_pqe = v.pqe THEN 'CLIENT_BUG'
  WHEN v.nth_of_copy > 1 AND r.end_of_prev = 'RESET' THEN 'OFFSET_RESET'
  WHEN v.nth_of_copy > 1 AND cov.did IS NOT NULL THEN
    CASE WHEN r.src = 'NO_ENTRY' THEN 'ROLLBACK_NO_ENTRY'
         WHEN cov.same_inc THEN 'ROLLBACK_OVERWRITTEN'
         WHEN cov.same_bid THEN 'ROLLBACK_RESTART'
         WHEN r.src_bid = 0 THEN 'ROLLBACK_SLAVE_ONLY_PROGRESS'
         ELSE 'ROLLBACK_STALE_SLAVE' END
  WHEN v.nth_of_copy > 1 THEN
    CASE WHEN r.prev_end_t IS NULL OR r.prev_end_t > r.t THEN 'OVERLAP'
         ELSE concat('TAIL_', r.end_of_prev) END
  WHEN startswith(v.ptopic,'%RETRY%') AND v.nth_at_rt > 1 THEN
    CASE WHEN coalesce(sb.n,0) > 1 THEN 'SENDBACK_DUP' ELSE 'DELAY_REPLAY' END
  WHEN startswith(v.ptopic,'%RETRY%') THEN
    CASE WHEN coalesce(sb.expired,0) = 1 THEN 'CONSUME_TIMEOUT' ELSE 'SENDBACK_ORPHAN' END
  WHEN pr.n_ukey > 1 THEN 'APP_RESEND'
  WHEN pr.doubtful = 1 THEN 'SEND_TIMEOUT_DUP'
  WHEN pr.degraded = 1 AND pr.n_att > 1 THEN 'NOT_STORE_OK_RESEND'
  ELSE 'BROKER_COPY' END AS cause
FROM v_class v
LEFT JOIN (SELECT x.*, p.end_t AS prev_end_t, p.end_reason AS end_of_prev, y.did AS k_did
           FROM v_order y
           JOIN v_rollback x ON x.run=y.run AND x.grp=y.grp AND x.inc=y.inc AND x.pqe=y.pqe
           LEFT JOIN assign p ON p.run=y.run AND p.grp=y.grp AND p.inc=y.prev_inc AND p.pqe=y.prev_pqe) r
       ON r.run=v.run AND r.k_did=v.did
LEFT JOIN cov ON cov.run=v.run AND cov.did=v.did
LEFT JOIN sb ON sb.run=v.run AND sb.grp=v.grp AND sb.lid=v.lid AND sb.rt=v.rt
LEFT JOIN pr ON pr.run=v.run AND pr.lid=v.lid;
-- V5: headline ratios
CREATE OR REPLACE TEMP VIEW v_ratio AS
SELECT run, grp, count(*) AS deliveries, count(DISTINCT lid) AS logical,
  count_if(cls='RETRY') AS retries, count_if(cls='DUP') AS dups,
  count_if(cls='DUP' AND after_success) AS dups_after_success,
  count(DISTINCT CASE WHEN cls='DUP' THEN lid END) AS logical_with_dup,
  round(count_if(cls='DUP')/count(DISTINCT lid),4) AS dup_ratio,
  round(count(DISTINCT CASE WHEN cls='DUP' THEN lid END)/count(DISTINCT lid),4) AS dup_msg_ratio,
  round(count(*)/count(DISTINCT lid),4) AS amplification
FROM v_class GROUP BY run, grp;
-- V6: loss
CREATE OR REPLACE TEMP VIEW v_loss AS
WITH p AS (SELECT run, lid, max(CASE WHEN res='OK' THEN 2 WHEN res='OK_DEGRADED' THEN 1 ELSE 0 END) AS ack FROM produce GROUP BY run, lid),
     d AS (SELECT run, grp, lid, max(CASE WHEN status='SUCCESS' THEN 1 ELSE 0 END) AS ok, count(*) AS n FROM deliver GROUP BY run, grp, lid),
     s AS (SELECT run, lid, max(CASE WHEN startswith(ptopic,'%DLQ%') THEN 1 ELSE 0 END) AS dlq, count(*) AS copies FROM scan GROUP BY run, lid)
SELECT p.run, g.grp, p.lid, p.ack, coalesce(d.ok,0) AS ok, coalesce(s.copies,0) AS copies,
 CASE WHEN coalesce(d.ok,0)=1 THEN 'OK' WHEN coalesce(s.dlq,0)=1 THEN 'DLQ'
      WHEN p.ack>0 AND coalesce(s.copies,0)=0 THEN 'STORE_LOST'
      WHEN p.ack>0 AND coalesce(d.n,0)=0 THEN 'SKIPPED'
      WHEN p.ack>0 THEN 'FAILED_NOT_DLQ'
      WHEN coalesce(s.copies,0)>0 THEN 'UNACKED_PRESENT' ELSE 'UNACKED_ABSENT' END AS fate
FROM p JOIN (SELECT DISTINCT run AS grun, grp FROM assign) g ON g.grun=p.run
LEFT JOIN d ON d.run=p.run AND d.grp=g.grp AND d.lid=p.lid LEFT JOIN s ON s.run=p.run AND s.lid=p.lid;
-- V7: order inversions per key
CREATE OR REPLACE TEMP VIEW v_order_viol AS
SELECT run, grp, count_if(cls='PRIMARY' AND kseq < mx) AS ooo_first, count_if(cls<>'PRIMARY' AND kseq < mx) AS ooo_replay
FROM (SELECT run, grp, cls, kseq, max(kseq) OVER (PARTITION BY run, grp, okey ORDER BY bt, did
             ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS mx FROM v_class) GROUP BY run, grp;
-- V8: produce RTO, w = 5000 ms quiet window
CREATE OR REPLACE TEMP VIEW v_rto_produce AS
WITH p AS (SELECT f.run, f.fid, f.t AS tk, x.t0, x.t1, x.res LIKE 'OK%' AS ok,
   min(CASE WHEN x.res NOT LIKE 'OK%' THEN x.t0 END) OVER (PARTITION BY f.run, f.fid ORDER BY x.t0, x.t1
        ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS next_bad
   FROM fault f JOIN produce x ON x.run=f.run AND x.t1 >= f.t WHERE f.kind='KILL')
SELECT run, fid, CASE WHEN max(CASE WHEN NOT ok THEN 1 ELSE 0 END)=0 THEN 0
   ELSE min(CASE WHEN ok AND (next_bad IS NULL OR next_bad >= t0+5000) AND t1 > fb THEN t1 END) - max(tk) END AS rto_ms
FROM (SELECT p.*, min(CASE WHEN NOT ok THEN t0 END) OVER (PARTITION BY run, fid) AS fb FROM p) GROUP BY run, fid;
-- V9: consume RTO per queue from successful pulls issued after the kill
CREATE OR REPLACE TEMP VIEW v_rto_consume AS
SELECT f.run, f.fid, u.grp, u.ptopic, u.qid, min(u.t1)-max(f.t) AS rto_ms
FROM fault f JOIN pull u ON u.run=f.run AND u.broker=f.broker AND u.t0 >= f.t AND u.res IN ('FOUND','NO_NEW_MSG')
WHERE f.kind='KILL' GROUP BY f.run, f.fid, u.grp, u.ptopic, u.qid;
-- V10: time to first redelivery after each fault
CREATE OR REPLACE TEMP VIEW v_ttfr AS
SELECT f.run, f.fid, f.kind, min(v.bt)-max(f.t) AS ttfr_ms
FROM fault f JOIN v_class v ON v.run=f.run AND v.cls='DUP' AND v.bt >= f.t GROUP BY f.run, f.fid, f.kind;
