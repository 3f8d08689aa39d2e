-- `commit` under long names: each offset that a client gave to a broker.
CREATE OR REPLACE VIEW commits AS
SELECT run, date, grp AS consumer_group, client_id, broker AS broker_name, bid AS broker_id, addr AS broker_address, ptopic AS topic,
       qid AS queue_id, off AS queue_offset, prev AS previous_offset, kind, sent, result, t AS at_ns
FROM commit
