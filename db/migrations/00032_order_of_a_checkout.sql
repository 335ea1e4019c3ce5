-- +goose Up

-- The order of a checkout is paid by that checkout and by nobody else, also in the moment before its payment exists.
ALTER TABLE orders ADD COLUMN checkout_id text COLLATE "C";

-- +goose Down
ALTER TABLE orders DROP COLUMN checkout_id;
