create table branches(bid int primary key, bbalance int);
create table tellers(tid int primary key, bid int, tbalance int);
create table accounts(aid int primary key, bid int, abalance int, filler char(84));
create table history(tid int, bid int, aid int, delta int, mtime timestamp);
insert into branches select "X", 0 from system_range(1,10);
insert into tellers select "X", ("X"-1)/10+1, 0 from system_range(1,100);
insert into accounts select "X", ("X"-1)/100000+1, 0, 'x' from system_range(1,300000);
