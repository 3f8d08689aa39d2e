-- The class of a delivery, as `analysis/causes/classify.py` decides it for reports.
-- PRIMARY: the first delivery of a message in its group. RETRY: the first of a copy that exists because
-- a handler failed before. DUP: everything else, which nobody asked for. `after_success`: it had been
-- handled with success before.
CREATE OR REPLACE VIEW classified AS
SELECT *, CASE WHEN nth = 1 THEN 'PRIMARY'
               WHEN rt > 0 AND nth_at_rt = 1 AND failed_at <= bt THEN 'RETRY' ELSE 'DUP' END AS class,
       nth > 1 AND coalesce(bt >= first_done, false) AS after_success
FROM (SELECT *,
        row_number() OVER (PARTITION BY run, grp, lane, lseq, foreign_key ORDER BY bt, did) AS nth,
        row_number() OVER (PARTITION BY run, grp, lane, lseq, foreign_key, rt ORDER BY bt, did) AS nth_at_rt,
        row_number() OVER (PARTITION BY run, grp, lane, lseq, foreign_key, counted ORDER BY bt, did) AS nth_counted,
        min(CASE WHEN status = 'SUCCESS' THEN et END) OVER (PARTITION BY run, grp, lane, lseq, foreign_key) AS first_done,
        min(CASE WHEN status IN ('LATER', 'EXC', 'NULL', 'SUSPEND') THEN et END)
          OVER (PARTITION BY run, grp, lane, lseq, foreign_key ORDER BY rt RANGE BETWEEN 1 PRECEDING AND 1 PRECEDING) AS failed_at
      FROM handlings) AS numbered
