-- The figures of each queue of a group: `queues` of a report.
CREATE OR REPLACE VIEW queue_totals AS
SELECT run, grp, broker, ptopic, qid, count(*) AS delivered, count(DISTINCT qoff) AS distinct_offsets,
       count(CASE WHEN class = 'DUP' THEN 1 END) AS duplicates
FROM classified WHERE counted
GROUP BY run, grp, broker, ptopic, qid
