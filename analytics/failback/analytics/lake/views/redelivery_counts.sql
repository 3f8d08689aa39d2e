-- How many messages of a group were delivered how often.
CREATE OR REPLACE VIEW redelivery_counts AS
SELECT run, grp, times, count(*) AS messages
FROM (SELECT run, grp, lane, lseq, foreign_key, count(*) AS times
      FROM handlings WHERE counted
      GROUP BY run, grp, lane, lseq, foreign_key) AS messages
GROUP BY run, grp, times
