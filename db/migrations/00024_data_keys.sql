-- +goose Up

-- The keys of DATA_KEY that have encrypted, each by its id. `api migrate` writes the rows, and the service's role cannot:
-- with its connection string other bytes do not pass for a value that was encrypted anew.
CREATE TABLE data_keys (
    id            bytea       PRIMARY KEY,
    introduced_at timestamptz NOT NULL DEFAULT clock_timestamp(), -- the newest key is the one that encrypts anew
    -- A plain request or response is read if its key was made before. In a rolling deployment the processes of the former
    -- version still write plain values. Infinity: what is stored is not encrypted at present.
    plain_until   timestamptz NOT NULL,
    CONSTRAINT data_key_has_an_id CHECK (octet_length(id) = 4)
);
INSERT INTO data_keys (id, plain_until)
SELECT s.id, clock_timestamp() + interval '1 day'
FROM (SELECT sealed_by(t.fingerprint_secret) AS id, count(*) AS secrets FROM tenants t GROUP BY 1) s
WHERE s.id <> '' ORDER BY s.secrets;

-- +goose Down
DROP TABLE data_keys;
