// Package sealed encrypts single values of the database: stored requests and responses, webhooks that wait, and the
// secrets of tenants. A dump, a backup, a replica and the disk show none of them without DATA_KEY, which
// is in the environment of the service and never in the database.
//
// A sealed value is bound to its place: the table, the column, the tenant and the row. A sealed value that was copied
// to another place, and one of which a bit was changed, does not open.
//
// A Box has one or several keys. The first seals, all open, so a key is changed without a moment at which a value
// cannot be read (docs/operations.md, Data key). Values that are not sealed open with every Box, and with none: they
// were written before there was a key.
//
//	00 50 4f 01 │ key id, 4 bytes │ nonce, 24 bytes │ ciphertext │ tag, 16 bytes
//
// The first four bytes mark a sealed value. The first is NUL, with which neither JSON nor any other text of ours
// begins. The cipher is XChaCha20-Poly1305, whose nonce is long enough to be random for any number of values. A sealed
// value is Overhead bytes longer than what is in it, so that a constraint on a length holds for both
// (db/migrations/00001_tenants.sql has the same numbers in SQL).
//
// Sealing does not hide that a value exists, when it was written and its length, nor what stands in other columns. It
// does not help against a reader of the environment or the memory of the process.
package sealed
