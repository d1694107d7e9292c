\set aid random(1, 300000)
\set bid random(1, 10)
\set tid random(1, 100)
\set delta random(-5000, 5000)
update accounts set abalance = abalance + :delta where aid = :aid;
select abalance from accounts where aid = :aid;
update tellers set tbalance = tbalance + :delta where tid = :tid;
update branches set bbalance = bbalance + :delta where bid = :bid;
insert into history values (:tid, :bid, :aid, :delta, current_timestamp);
