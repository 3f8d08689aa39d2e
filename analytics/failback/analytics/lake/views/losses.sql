-- The fate of lost messages, as `report/measures/loss.py` decides it for reports.
-- Messages sent after the warm-up that a broker acknowledged and a group never handled with success:
-- STORE_LOST is in no store, SKIPPED was not delivered, FAILED_NOT_DLQ failed for good. Only of runs whose
-- stores were scanned at their end. A report has them of broadcasting groups and of dead letters as well.
CREATE OR REPLACE VIEW losses AS
SELECT run, grp, fate, count(*) AS messages
FROM (SELECT p.run, g.grp, p.topic, p.lane, p.lseq, CASE WHEN count(s.qoff) = 0 THEN 'STORE_LOST'
             WHEN count(d.did) = 0 THEN 'SKIPPED' ELSE 'FAILED_NOT_DLQ' END AS fate
      FROM (SELECT p.run, p.topic, p.lane, p.lseq FROM produce p JOIN runs r ON r.run = p.run
            GROUP BY p.run, p.topic, p.lane, p.lseq
            HAVING count(CASE WHEN p.res IN ('OK', 'OK_DEGRADED') THEN 1 END) > 0 AND count(CASE WHEN p.t0 >= r.figures_from THEN 1 END) > 0) AS p
      JOIN groups g ON g.run = p.run AND g.topic = p.topic AND NOT g.broadcasting
      LEFT JOIN handlings d ON d.run = p.run AND d.grp = g.grp AND d.lane = p.lane AND d.lseq = p.lseq
      LEFT JOIN scan s ON s.run = p.run AND s.lane = p.lane AND s.lseq = p.lseq
                      AND s.ptopic IN (p.topic, concat('%RETRY%', g.grp), concat('%DLQ%', g.grp))
      WHERE p.run IN (SELECT run FROM scan)
      GROUP BY p.run, g.grp, p.topic, p.lane, p.lseq
      HAVING count(CASE WHEN d.status = 'SUCCESS' THEN 1 END) = 0 AND count(CASE WHEN s.ptopic = concat('%DLQ%', g.grp) THEN 1 END) = 0) AS lost
GROUP BY run, grp, fate
