package dbtest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/payonce/deploy"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/devpg"
)

const (
	testPrefix     = "payonce_test_" // then when it was made, and noise
	templatePrefix = "payonce_template_"

	leftAfter    = 2 * time.Hour      // no test runs for so long: its database was left behind
	templateDays = 7                  // an unused template belongs to an abandoned branch
	templateLock = 0x7061796f6e636531 // advisory: "payonce1"
)

// server is the shared server, and our sessions that make and drop databases.
type server struct {
	*devpg.Server
	admin *pgxpool.Pool

	once     sync.Once
	template string // the migrated database, made when the first test wants a copy
	err      error

	recycles bool // our role may make an event trigger, so a database can be used again
	mu       sync.Mutex
	spares   spares
	open     map[string]*database // by DSN: those that are recycled
}

func start(ctx context.Context) (*server, error) {
	pg, err := devpg.Start(ctx, options(func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "dbtest: "+format+"\n", args...)
	}))
	if err != nil {
		return nil, err
	}
	s := &server{Server: pg, spares: spares{}, open: map[string]*database{}}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func (s *server) prepare(ctx context.Context) error {
	cfg, err := pgxpool.ParseConfig(s.URL)
	if err != nil {
		return err
	}
	cfg.MaxConns = 4 // as many databases are made at once, whatever the number of tests
	if s.admin, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return err
	}
	var may bool
	if err := s.admin.QueryRow(ctx,
		"SELECT rolcreatedb OR rolsuper, rolsuper FROM pg_roles WHERE rolname = current_user").Scan(&may, &s.recycles); err != nil {
		return err
	}
	if !may {
		return errors.New("the role of TEST_DATABASE_URL may not create databases: ALTER ROLE … CREATEDB")
	}
	if s.Source == devpg.FromURL {
		return s.dropLeftovers(ctx)
	}
	return nil
}

func (s *server) stop() error {
	err := s.discardSpares()
	if s.admin != nil {
		s.admin.Close()
	}
	return errors.Join(err, s.Stop())
}

// dsn is the server's DSN with another database.
func (s *server) dsn(database string) string {
	u, err := url.Parse(s.URL)
	if err != nil || u.Scheme == "" {
		return s.URL + " dbname=" + database // keyword=value, where the last word counts
	}
	u.Path = "/" + database
	return u.String()
}

// create makes a database, as a copy of the template if it is to be migrated.
func (s *server) create(ctx context.Context, migrated bool) (name string, err error) {
	from := "template0"
	if migrated {
		s.once.Do(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // for all tests, not this one
			defer cancel()
			s.template, s.err = s.makeTemplate(ctx)
		})
		if s.err != nil {
			return "", s.err
		}
		from = s.template
	}
	var noise [6]byte
	_, _ = rand.Read(noise[:]) // never fails
	name = fmt.Sprintf("%s%d_%s", testPrefix, time.Now().Unix(), hex.EncodeToString(noise[:]))
	return name, s.copy(ctx, name, from)
}

func (s *server) copy(ctx context.Context, to, from string) error {
	_, err := s.admin.Exec(ctx, "CREATE DATABASE "+quoted(to)+" TEMPLATE "+quoted(from)+" STRATEGY "+s.strategy())
	if err == nil { // which deploy/roles.sql has done in the template, and no copy has from it
		_, err = s.admin.Exec(ctx, "REVOKE TEMPORARY ON DATABASE "+quoted(to)+" FROM PUBLIC")
	}
	return err
}

// strategy is how CREATE DATABASE copies. Copying files forces two checkpoints,
// which cost nothing on a server of ours, where fsync is off, and a lot on a
// server where it is on.
func (s *server) strategy() string {
	if s.Source == devpg.FromURL {
		return "wal_log"
	}
	return "file_copy"
}

func (s *server) drop(ctx context.Context, name string) error {
	_, err := s.admin.Exec(ctx, "DROP DATABASE IF EXISTS "+quoted(name)+" WITH (FORCE)")
	return err
}

// makeTemplate returns the migrated database that tests are copied from.
// Being a template is the last thing a database becomes here, so one that is
// has been migrated to the end; and no one may connect to it, because a
// session in the original stops every copy.
func (s *server) makeTemplate(ctx context.Context) (string, error) {
	name := templatePrefix + s.digest()
	conn, err := s.admin.Acquire(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", int64(templateLock)); err != nil {
		return "", err
	}
	defer func() {
		_, _ = conn.Exec(ctx, "SELECT pg_advisory_unlock($1)",
			int64(templateLock))
	}() // else it ends with the session
	var whole bool
	err = conn.QueryRow(ctx, "SELECT datistemplate FROM pg_database WHERE datname = $1", name).Scan(&whole)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "", err
	}
	if !whole {
		if err := s.migrateInto(ctx, name); err != nil {
			return "", fmt.Errorf("make the migrated template: %w", err)
		}
	}
	_, err = conn.Exec(ctx, "COMMENT ON DATABASE "+quoted(name)+" IS "+literal("payonce tests, last used "+
		time.Now().UTC().Format(time.DateOnly)))
	return name, err
}

func (s *server) migrateInto(ctx context.Context, name string) error {
	if err := s.drop(ctx, name); err != nil { // what a killed process left half migrated
		return err
	}
	if err := s.copy(ctx, name, "template0"); err != nil {
		return err
	}
	if _, err := devpg.Migrate(ctx, s.dsn(name)); err != nil {
		return err
	}
	if s.recycles {
		if err := s.prepareSQL(ctx, name, notesChanges+";"+keepsSeeds); err != nil {
			return err
		}
	}
	_, err := s.admin.Exec(ctx, "ALTER DATABASE "+quoted(name)+" WITH ALLOW_CONNECTIONS false IS_TEMPLATE true")
	return err
}

// digest is of the migrations, and of what else the template contains.
func (s *server) digest() string {
	text := postgres.SchemaDigest() + deploy.Roles
	if s.recycles {
		text += notesChanges + keepsSeeds
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:6])
}

// dropLeftovers drops what killed tests and old branches left on a server that
// outlives them. Another process may drop the same ones.
func (s *server) dropLeftovers(ctx context.Context) error {
	const query = `
SELECT d.datname, d.datistemplate, coalesce(shobj_description(d.oid, 'pg_database'), '')
  FROM pg_database d
 WHERE pg_has_role(d.datdba, 'USAGE')
   AND NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.datid = d.oid)`
	rows, err := s.admin.Query(ctx, query)
	if err != nil {
		return err
	}
	type database struct {
		Name     string
		Template bool
		Comment  string
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[database])
	if err != nil {
		return err
	}
	for _, d := range all {
		if !leftBehind(d.Name, d.Comment, time.Now()) {
			continue
		}
		if d.Template {
			if _, err := s.admin.Exec(ctx, "ALTER DATABASE "+quoted(d.Name)+" WITH IS_TEMPLATE false"); err != nil {
				continue // another process is at it
			}
		}
		_ = s.drop(ctx, d.Name) // and if not now, then at a later run
	}
	return nil
}

// leftBehind goes by the time in a test's database's name, and by the day in a
// template's comment.
func leftBehind(name, comment string, now time.Time) bool {
	if made, ok := strings.CutPrefix(name, testPrefix); ok {
		made, _, _ = strings.Cut(made, "_")
		seconds, err := strconv.ParseInt(made, 10, 64)
		return err == nil && now.Sub(time.Unix(seconds, 0)) > leftAfter
	}
	if strings.HasPrefix(name, templatePrefix) {
		_, day, _ := strings.Cut(comment, "last used ")
		used, err := time.Parse(time.DateOnly, day)
		return err == nil && now.Sub(used) > templateDays*24*time.Hour
	}
	return false
}

func quoted(name string) string { return pgx.Identifier{name}.Sanitize() }

func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
