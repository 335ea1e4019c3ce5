// Package pooler runs the service behind a real PgBouncer, Debian's, set up as docs/operations.md says.
//
//	go test -C proof ./pooler
//	PGBOUNCER=/opt/pgbouncer/bin/pgbouncer go test -C proof ./pooler    another version
package pooler
