-- The figures of each group: `totals` and `groups` of a report.
CREATE OR REPLACE VIEW totals AS
SELECT run, grp, count(*) AS delivered, count(CASE WHEN nth_counted = 1 THEN 1 END) AS distinct_messages,
       count(CASE WHEN class = 'PRIMARY' THEN 1 END) AS primary_deliveries, count(CASE WHEN class = 'RETRY' THEN 1 END) AS retries,
       count(CASE WHEN class = 'DUP' THEN 1 END) AS duplicates,
       CAST(count(CASE WHEN class = 'DUP' THEN 1 END) AS DOUBLE) / count(CASE WHEN nth_counted = 1 THEN 1 END) AS dup_ratio,
       count(CASE WHEN status = 'ABANDONED' THEN 1 END) AS abandoned,
       sum(CASE WHEN class = 'DUP' AND after_success THEN et - bt END) / 1e9 AS wasted_seconds
FROM classified WHERE counted
GROUP BY run, grp
