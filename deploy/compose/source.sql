-- One of the shop's databases, for ../compose.yaml: tables of an owner, a role for kuvasz, and a procedure that changes a few
-- rows. Run once by the superuser, in an empty database.

CREATE ROLE shop_owner;
CREATE ROLE kuvasz LOGIN REPLICATION PASSWORD 'only-for-this-machine';
GRANT shop_owner TO kuvasz;
GRANT USAGE, CREATE ON SCHEMA public TO shop_owner;
DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO kuvasz', current_database()); END $$;

SET ROLE shop_owner;

CREATE TABLE customers (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text NOT NULL,
  country char(2) NOT NULL,
  since timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE prices (
  product integer PRIMARY KEY,
  price numeric(10, 2) NOT NULL
);
CREATE TABLE orders (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  customer bigint NOT NULL REFERENCES customers,
  product integer NOT NULL REFERENCES prices,
  quantity integer NOT NULL,
  state text NOT NULL DEFAULT 'placed',
  placed_at timestamptz NOT NULL DEFAULT now()
);

INSERT INTO customers (name, country)
SELECT 'customer ' || n, (ARRAY['DE', 'FR', 'US', 'JP'])[1 + n % 4] FROM generate_series(1, 1000) n;
INSERT INTO prices SELECT n, 1 + n * 0.37 FROM generate_series(1, 100) n;
INSERT INTO orders (customer, product, quantity, state)
SELECT 1 + n % 1000, 1 + n % 100, 1 + n % 5, CASE WHEN n <= 10000 THEN 'sent' ELSE 'placed' END FROM generate_series(1, 20000) n;

-- Ten orders placed, ten sent, the ten oldest gone, a price changed: one transaction, after which there are as many as before.
CREATE PROCEDURE a_moment() LANGUAGE sql AS $$
  INSERT INTO orders (customer, product, quantity)
  SELECT 1 + floor(random() * 1000), 1 + floor(random() * 100), 1 + floor(random() * 5) FROM generate_series(1, 10);
  UPDATE orders SET state = 'sent' WHERE id IN (SELECT id FROM orders WHERE state = 'placed' ORDER BY id LIMIT 10);
  DELETE FROM orders WHERE id IN (SELECT id FROM orders WHERE state = 'sent' ORDER BY id LIMIT 10);
  UPDATE prices SET price = 1 + random() * 50 WHERE product = (SELECT 1 + floor(random() * 100)::integer);
$$;

RESET ROLE;
