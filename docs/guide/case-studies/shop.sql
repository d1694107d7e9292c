PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;
CREATE TABLE customers(id INTEGER PRIMARY KEY, name TEXT, email TEXT, country TEXT);
CREATE TABLE orders(id INTEGER PRIMARY KEY, customer INTEGER, placed TEXT, state TEXT, note TEXT);
CREATE TABLE items(order_id INTEGER, product INTEGER, amount INTEGER, cents INTEGER);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<20000)
 INSERT INTO customers SELECT i, 'Customer ' || i, printf('user%05d@%s.example', i, char(97+i%26)), char(65+i%20, 65+i%17) FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<600000)
 INSERT INTO orders SELECT i, 1+(i*7919)%20000, date('2024-01-01', (i%700)||' days'), CASE i%9 WHEN 0 THEN 'returned' ELSE 'sent' END,
   'order ' || i || ' leave at the door of house ' || (i*31%977) FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<2400000)
 INSERT INTO items SELECT 1+i/4, (i*104729)%5000, 1+i%5, 99+(i*37)%10000 FROM n;
CREATE INDEX items_by_order ON items(order_id);
CREATE INDEX customers_by_email ON customers(email);
