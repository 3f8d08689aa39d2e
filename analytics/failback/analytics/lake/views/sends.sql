-- `produce` under long names: each attempt to send a message.
CREATE OR REPLACE VIEW sends AS
SELECT run, date, topic, broker AS broker_name, qid AS queue_id, bid AS broker_id, addr AS broker_address, lane AS producer_lane,
       lseq AS producer_sequence, att AS attempt, ukey AS message_key, due AS due_ns, t0 AS begin_ns, t1 AS end_ns, res AS result,
       code AS response_code, queue_offset
FROM produce
