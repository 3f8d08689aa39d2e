-- `classified` under long names. Times are nanoseconds of CLOCK_MONOTONIC of the machine that wrote the row.
CREATE OR REPLACE VIEW deliveries AS
SELECT run, date, grp AS consumer_group, client_id, broker AS broker_name, ptopic AS topic, qid AS queue_id,
       qoff AS queue_offset, rt AS reconsume_times, foreign_key AS message_key, lane AS producer_lane, lseq AS producer_sequence,
       bt AS begin_ns, et AS end_ns, status, class, after_success, counted
FROM classified
