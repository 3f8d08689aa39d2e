-- One row for each delivery, its end beside its begin. `counted`: after the warm-up, as in a report.
-- A message of the workload is (lane, lseq); of any other producer `foreign_key` says which it is.
-- Rows that cannot be true are left out. A group in which every member gets every message is one group for each client, as in a report.
CREATE OR REPLACE VIEW handlings AS
SELECT d.run, d.date, d.did, CASE WHEN b.grp IS NULL THEN d.grp ELSE concat(d.grp, '@', d.client_id) END AS grp,
       d.client_id, d.broker, d.ptopic, d.qid, d.qoff, d.rt, d.lane, d.lseq,
       CASE WHEN d.lane IS NULL THEN coalesce(d.ukey, d.keys) END AS foreign_key,
       d.bt, coalesce(e.et, d.et) AS et, coalesce(e.status, d.status) AS status,
       d.bt >= r.figures_from AS counted
FROM deliver d
JOIN runs r ON r.run = d.run
LEFT JOIN deliver_end e ON e.run = d.run AND e.did = d.did
LEFT JOIN (SELECT DISTINCT run, grp FROM groups WHERE broadcasting) AS b ON b.run = d.run AND b.grp = d.grp
WHERE d.qoff >= 0 AND coalesce(e.et, d.et, d.bt) >= d.bt
