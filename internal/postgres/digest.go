package postgres

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"

	"example.com/payonce/db"
)

// SchemaDigest identifies the schema that Migrate makes: it changes with any byte of any migration, and of the rights.
// Tests reuse a migrated database by this name.
func SchemaDigest() string {
	sum := sha256.New()
	_ = fs.WalkDir(db.Migrations, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := db.Migrations.ReadFile(name)
		_, _ = sum.Write([]byte(name))
		_, _ = sum.Write(text)
		return err
	}) // embedded files can always be read
	_, _ = sum.Write([]byte(db.Rights))
	return hex.EncodeToString(sum.Sum(nil)[:6])
}
