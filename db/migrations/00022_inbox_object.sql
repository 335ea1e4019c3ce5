-- +goose Up

-- The sender's object that an event is about, where the receiver could tell: by it the webhooks of a payment are found.
ALTER TABLE inbox_events ADD COLUMN object_id text COLLATE "C";
CREATE INDEX inbox_events_of_object ON inbox_events (object_id) WHERE object_id IS NOT NULL;

-- +goose Down
DROP INDEX inbox_events_of_object;
ALTER TABLE inbox_events DROP COLUMN object_id;
