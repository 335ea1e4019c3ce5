package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/postgres"
)

// PostgreSQL versions that the service is tested with.
const (
	postgresMin = 15
	postgresMax = 18
)

// database examines the server and the role of DATABASE_URL.
func (p patient) database(ctx context.Context, d *diagnosis) {
	afterReachable := []string{
		"database.version", "database.primary", "database.fsync", "database.synchronous_commit", "database.rights", "database.row_security",
		"database.pooler", "database.schema", "database.guards", "database.encryption", "database.retention", "clock.database",
	}
	pool, f, err := p.openDatabase(ctx)
	if err != nil {
		d.say(bad, "database.reachable", "%w; see that DATABASE_URL is right and PostgreSQL runs", err)
		p.tls(d)
		d.notAsked("the database is away", afterReachable...)
		return
	}
	defer pool.Close()
	d.say(healthy, "database.reachable", "as role %s", f.Role)
	p.tls(d)
	server(d, f)
	writable(d, f)
	rights(d, f)
	rowSecurity(d, f)
	pooler(ctx, d, pool, f)
	schema(ctx, d, pool, f)
	guards(ctx, d, pool, f)
	p.encryption(ctx, d, pool, f)
	p.retention(ctx, d, pool, f)
	p.clock(d, "clock.database", "the database's", f.Now, f.Asked, f.Answered, 0)
}

// openDatabase opens DATABASE_URL as the service does, which looks for a server that can be written to. If there is
// none, the one that can only be read is examined.
func (p patient) openDatabase(ctx context.Context) (pool *postgres.Pool, f postgres.Facts, err error) {
	for _, readOnly := range []bool{false, true} {
		pool, err = postgres.Open(ctx, p.getenv("DATABASE_URL"), postgres.Options{
			Name: "payonce-doctor", MaxConn: 4, Statement: doctorWithin / 2, ReadOnly: readOnly,
		})
		if err != nil {
			return nil, f, err
		}
		if f, err = pool.Facts(ctx); err == nil {
			return pool, f, nil
		}
		pool.Close()
		if !errors.Is(err, postgres.ErrReadOnly) {
			break
		}
	}
	return nil, f, err
}

func server(d *diagnosis, f postgres.Facts) {
	switch {
	case f.Version < postgresMin:
		d.say(bad, "database.version", "PostgreSQL %s is too old: the service needs %d to %d; upgrade it",
			f.FullVersion, postgresMin, postgresMax)
	case f.Version > postgresMax:
		d.say(warning, "database.version", "PostgreSQL %s: this version of the service is tested with %d to %d",
			f.FullVersion, postgresMin, postgresMax)
	default:
		d.say(healthy, "database.version", "PostgreSQL %s", f.FullVersion)
	}
	switch {
	case f.InRecovery:
		d.say(bad, "database.primary", "the server is read-only: a standby; name the primary in DATABASE_URL, or promote it "+
			"(docs/operations.md, Failover)")
	case f.ReadOnly:
		d.say(bad, "database.primary", "the server is read-only: default_transaction_read_only is on, for the server, the "+
			"database or the role; ask who set it, then turn it off")
	default:
		d.say(healthy, "database.primary", "a primary, and writable")
	}
}

// writable is what a commit means on this server.
func writable(d *diagnosis, f postgres.Facts) {
	switch {
	case !f.Fsync:
		d.say(bad, "database.fsync", "fsync is off: a crash of the machine loses payments that were acknowledged, or the "+
			"whole database; turn it on")
	case !f.FullPageWrites:
		d.say(warning, "database.fsync", "fsync is on, but full_page_writes is off, which only a file system that never "+
			"tears a page allows; turn it on")
	default:
		d.say(healthy, "database.fsync", "on")
	}
	switch commit := f.SynchronousCommit; {
	case commit == "off":
		d.say(bad, "database.synchronous_commit", "synchronous_commit is off: a crash loses the last payments that were "+
			"acknowledged; turn it on for the server, the database and the role")
	case commit == "local":
		d.say(warning, "database.synchronous_commit", "synchronous_commit is local: a commit does not wait for a synchronous "+
			"standby, if there is one, and a failover may lose it; on waits")
	case commit == "remote_write":
		d.say(warning, "database.synchronous_commit", "synchronous_commit is remote_write: a commit waits until a synchronous "+
			"standby has it in memory, and a failover after a power cut may lose it; on waits for the standby's disk")
	case f.Standbys == "":
		d.say(healthy, "database.synchronous_commit", "%s; synchronous_standby_names is empty: a commit waits for no standby, "+
			"and a failover may lose the last ones (docs/operations.md, Failover)", commit)
	default:
		d.say(healthy, "database.synchronous_commit", "%s; a commit waits for a standby (synchronous_standby_names = %s)",
			commit, f.Standbys)
	}
}

func rights(d *diagnosis, f postgres.Facts) {
	if len(f.Lacks) > 0 {
		shown := f.Lacks[:min(len(f.Lacks), 5)]
		d.say(bad, "database.rights", "the role %s lacks %d rights: %s; grant them, or use the service's role",
			f.Role, len(f.Lacks), strings.Join(shown, ", "))
		return
	}
	if f.Owns {
		d.say(warning, "database.rights", "the role %s owns the tables, so neither rights nor policies bind it; make the roles of "+
			"deploy/roles.sql and serve as payonce_service", f.Role)
		return
	}
	if len(f.Owners) > 0 {
		d.say(warning, "database.rights", "tables or functions belong to %s and not to payonce_owner, as after a restore with "+
			"--no-owner: `api migrate` as payonce_owner is refused, and the function erase_customer has its owner's rights; run "+
			"deploy/roles.sql again as a superuser", strings.Join(f.Owners, ", "))
		return
	}
	if f.Temps {
		d.say(warning, "database.rights", "the role %s may make temporary tables, which hide tables of the same names; run "+
			"deploy/roles.sql in this database, or REVOKE TEMPORARY ON DATABASE … FROM PUBLIC", f.Role)
		return
	}
	d.say(healthy, "database.rights", "the role %s may read and write what the service does", f.Role)
}

// rowSecurity says whether the policies of the tables bind the role.
func rowSecurity(d *diagnosis, f postgres.Facts) {
	switch {
	case !f.Migrated:
		d.say(warning, "database.row_security", "not known: the database is empty")
	case f.Scoped:
		d.say(healthy, "database.row_security", "on: a statement sees only the rows of the tenants that it names")
	case f.Owns:
		d.say(warning, "database.row_security", "row-level security is off, because the role %s owns the tables: "+
			"a query without its tenant's condition returns every tenant's rows", f.Role)
	default:
		d.say(warning, "database.row_security", "row-level security is off, because the role %s has BYPASSRLS: a "+
			"query without its tenant's condition returns every tenant's rows; ALTER ROLE %[1]s NOBYPASSRLS turns it on, at a price "+
			"(docs/operations.md, Roles)", f.Role)
	}
}

func pooler(ctx context.Context, d *diagnosis, pool *postgres.Pool, f postgres.Facts) {
	err := pool.Check(ctx)
	switch {
	case err != nil:
		d.say(bad, "database.pooler", "%w", err)
	case f.Pooled:
		d.say(healthy, "database.pooler", "behind a connection pooler, with the timeouts and the kind of statements that "+
			"the service needs; `api migrate` needs a direct connection")
	default:
		d.say(healthy, "database.pooler", "none: the connection is direct, and its timeouts are set")
	}
}

func schema(ctx context.Context, d *diagnosis, pool *postgres.Pool, f postgres.Facts) {
	if f.Elsewhere != nil {
		d.say(bad, "database.schema", "%w", f.Elsewhere)
		return
	}
	if !f.Migrated { // asking for the migrations would make their table
		d.say(bad, "database.schema", "the database is empty; run `api migrate`")
		return
	}
	switch err := pool.CheckSchema(ctx); {
	case errors.Is(err, postgres.ErrSchemaTooOld):
		d.say(bad, "database.schema", "%w; run `api migrate`", err)
	case err != nil:
		d.say(bad, "database.schema", "%w", err)
	default:
		d.say(healthy, "database.schema", "has every migration of this program, up to %d", postgres.SchemaVersion())
	}
}

// guards are what makes the database refuse what must not be.
func guards(ctx context.Context, d *diagnosis, pool *postgres.Pool, f postgres.Facts) {
	const id = "database.guards"
	if !f.Migrated {
		d.notAsked("the database is empty", id)
		return
	}
	missing, err := pool.MissingGuards(ctx)
	switch shown := missing[:min(len(missing), 5)]; {
	case err != nil:
		d.say(bad, id, "%w", err)
	case len(missing) > 0:
		d.say(bad, id, "%d guards are missing or disabled: %s; make them as `api migrate print` shows them, or restore again",
			len(missing), strings.Join(shown, ", "))
	default:
		d.say(healthy, id, "every constraint, trigger and unique index is there and enabled")
	}
}

// encryption is what a copy of the database would show, and whether the service can read it.
func (p patient) encryption(ctx context.Context, d *diagnosis, pool *postgres.Pool, f postgres.Facts) {
	const id = "database.encryption"
	if !f.Migrated {
		d.notAsked("the database is empty", id)
		return
	}
	e := environment{getenv: p.getenv}
	box := e.dataKey()
	if e.err != nil {
		d.notAsked("DATA_KEY is wrong", id)
		return
	}
	found, err := encryptedSecrets(postgres.ForAllTenants(ctx, "doctor"), pool, box)
	switch {
	case err != nil:
		d.notAsked(err.Error(), id)
	case len(found.missing) > 0:
		d.say(bad, id, "DATA_KEY %s; the service does not start", found.lacks())
	case box == nil:
		d.say(warning, id, "DATA_KEY is unset: a copy of the database shows stored requests and responses, "+
			"and the secrets of tenants; set it to a key of openssl rand -base64 32")
	case !box.Seals():
		d.say(warning, id, "DATA_KEY begins with none: what is encrypted is read (%d secrets of tenants), and what is stored "+
			"now is not encrypted; take none away when every process has the key %s", found.first+found.others, box.KeyIDs()[0])
	case published(box):
		d.say(p.unlessSimulated(bad), id, "DATA_KEY is "+isPublished+"; replace it by a key of openssl rand -base64 32 "+
			"(docs/operations.md, Data key)")
	case found.others+found.plain > 0:
		d.say(healthy, id, "of the secrets of tenants %d of %d are encrypted with the first key, %s; the service encrypts the "+
			"others", found.first, found.first+found.others+found.plain, box.KeyIDs()[0])
	default:
		d.say(healthy, id, "the secrets of tenants are encrypted with the first key, %s (%d)", box.KeyIDs()[0], found.first)
	}
}

// retention is whether stored responses are dropped, by the reaper or by a job in the database.
func (p patient) retention(ctx context.Context, d *diagnosis, pool *postgres.Pool, f postgres.Facts) {
	const id = "database.retention"
	e := environment{getenv: p.getenv}
	c := readSettings(&e)
	if !f.Migrated || e.isWrong("IDEMPOTENCY_RETENTION") || e.isWrong("IDEMPOTENCY_REAPER") {
		d.notAsked("the database is empty, or IDEMPOTENCY_RETENTION or IDEMPOTENCY_REAPER is wrong", id)
		return
	}
	by := "the service's processes drop them"
	if !c.IdempotencyReaper {
		by = "IDEMPOTENCY_REAPER is false, so a job in the database must drop them"
	}
	age, err := idempotency.OldestResponse(postgres.ForAllTenants(ctx, "doctor"), pool)
	switch {
	case err != nil:
		d.notAsked(err.Error(), id)
	case age > c.IdempotencyRetention+idempotency.OverdueAfter:
		d.say(warning, id, "the oldest stored response finished %s ago, and IDEMPOTENCY_RETENTION is %s; %s; see that this "+
			"happens (docs/operations.md, Retention)", age.Round(time.Minute), c.IdempotencyRetention, by)
	default:
		d.say(healthy, id, "no stored response is older than IDEMPOTENCY_RETENTION, %s, by more than %s; %s",
			c.IdempotencyRetention, idempotency.OverdueAfter, by)
	}
}

// unlessSimulated is a warning in the place of bad while payments go to a simulator: a key of test mode, and another
// address than Stripe's. The Compose file is such a system, and must run without any setting.
func (p patient) unlessSimulated(v verdict) verdict {
	if !live(p.getenv("STRIPE_SECRET_KEY")) && p.getenv("STRIPE_API_BASE") != "" {
		return warning
	}
	return v
}

// tls is whether the network between the service and its database can read or change what they send.
func (p patient) tls(d *diagnosis) {
	const id = "database.tls"
	hosts, err := postgres.Unverified(p.getenv("DATABASE_URL"))
	switch {
	case err != nil:
		d.notAsked("DATABASE_URL is wrong", id)
	case len(hosts) > 0:
		d.say(warning, id, "sslmode is below verify-full, so that the connection to %s is not encrypted, or goes to any server "+
			"that answers for it; add sslmode=verify-full to DATABASE_URL, and sslrootcert=FILE if the server's CA is not one of "+
			"the system's", strings.Join(hosts, ", "))
	default:
		d.say(healthy, id, "verify-full, or within this machine")
	}
}
