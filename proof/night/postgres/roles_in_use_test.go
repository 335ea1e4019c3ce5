package postgres_test

import (
	"context"
	"fmt"
	neturl "net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/deploy"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/devpg"
)

// TestRolesOnADatabaseInUse: the role that owns the tables of a database in use makes all its statements while
// deploy/roles.sql takes the tables from it and afterwards, until it is retired, as docs/operations.md says. Roles
// belong to the server, so each has its own.
func TestRolesOnADatabaseInUse(t *testing.T) {
	t.Parallel()
	for name, by := range map[string]string{
		"BySuperuser":                 "",     // of the server
		"ByTheOwnerItself":            "shop", // which may create roles, and owns the database
		"ByAnotherOwnerOfTheDatabase": "boss", // which is a member of it
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			superuser, url := usedByShop(t)
			run := func(role, sql string) {
				_, err := connect(t, devpg.As(url, role)).Exec(t.Context(), sql)
				require.NoError(t, err, sql)
			}
			shop := openAs(t, devpg.As(url, "shop"))
			_, err := shop.Migrate(t.Context())
			require.NoError(t, err)
			others := busy(t, shop)

			// It waits for no transaction that has a table for long, and others do not wait behind it.
			blocker := connect(t, devpg.As(url, "shop"))
			_, err = blocker.Exec(t.Context(), "BEGIN; SELECT * FROM payments")
			require.NoError(t, err)
			committed := make(chan error, 1)
			time.AfterFunc(time.Second, func() {
				_, err := blocker.Exec(context.WithoutCancel(t.Context()), "COMMIT")
				committed <- err
			})
			run(by, deploy.Roles)
			require.NoError(t, <-committed)
			others.goOn()

			for _, role := range []string{"owner", "service", "audit"} {
				_, err := superuser.Exec(t.Context(), fmt.Sprintf("ALTER ROLE payonce_%s PASSWORD '%s'", role,
					superuser.Config().Password))
				require.NoError(t, err)
			}
			_, err = openAs(t, devpg.As(url, "payonce_owner")).Migrate(t.Context())
			require.NoError(t, err)
			others.goOn()
			service := openAs(t, devpg.As(url, "payonce_service"))
			require.NoError(t, service.Ping(t.Context()))
			f, err := service.Facts(t.Context())
			require.NoError(t, err)
			require.Empty(t, f.Lacks)
			require.Empty(t, f.Owners)
			require.False(t, f.Owns)
			others.stop()
			require.NoError(t, shop.Ping(t.Context()))

			run(by, deploy.Roles) // again: it changes nothing
			run(by, "REVOKE payonce_owner FROM shop")
			require.ErrorIs(t, shop.Ping(t.Context()), postgres.ErrNoRights)
			_, err = shop.TenantServedHere(t.Context(), "ten_1")
			requirePermissionDenied(t, err)
			require.NoError(t, service.Ping(t.Context()))
		})
	}
}

// TestRolesRefuseAnOwnerThatInheritsNothing: before PostgreSQL 16 a member with NOINHERIT would lose its rights.
func TestRolesRefuseAnOwnerThatInheritsNothing(t *testing.T) {
	t.Parallel()
	superuser, url := usedByShop(t)
	shop := openAs(t, devpg.As(url, "shop"))
	_, err := shop.Migrate(t.Context())
	require.NoError(t, err)
	_, err = superuser.Exec(t.Context(), "ALTER ROLE shop NOINHERIT")
	require.NoError(t, err)
	_, err = connect(t, url).Exec(t.Context(), deploy.Roles)
	if superuser.PgConn().ParameterStatus("server_version") < "16" {
		require.ErrorContains(t, err, "ALTER ROLE shop INHERIT first")
	} else {
		require.NoError(t, err)
	}
	require.NoError(t, shop.Ping(t.Context()))
}

// usedByShop is a database of the role shop, which may create roles, and a session of the server's superuser.
func usedByShop(t *testing.T) (superuser *pgx.Conn, url string) {
	t.Helper()
	server := dbtest.Server(t)
	superuser = connect(t, server.URL)
	for _, sql := range []string{
		"CREATE ROLE shop LOGIN CREATEROLE PASSWORD '" + superuser.Config().Password + "'",
		"CREATE ROLE boss LOGIN CREATEROLE PASSWORD '" + superuser.Config().Password + "' IN ROLE shop",
		"CREATE DATABASE shop OWNER shop",
	} {
		_, err := superuser.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	u, err := neturl.Parse(server.URL)
	require.NoError(t, err)
	u.Path = "/shop"
	return superuser, u.String()
}

// traffic is statements that read and write, in and out of transactions, until they are stopped.
type traffic struct {
	t    *testing.T
	made atomic.Int64
	err  atomic.Pointer[error]
	stop func()
}

func busy(t *testing.T, pool *postgres.Pool) *traffic {
	t.Helper()
	s := &traffic{t: t}
	ctx, cancel := context.WithCancel(postgres.ForAllTenants(t.Context(), "test"))
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				id := fmt.Sprintf("ten_%d_%d", worker, n)
				err := pool.InTx(ctx, func(q *db.Queries) error {
					if err := q.TenantCreate(ctx, db.TenantCreateParams{ID: id, Name: "x", FingerprintSecret: make([]byte, 32)}); err != nil {
						return err
					}
					_, err := q.DB().Exec(ctx, "LOCK TABLE orders IN ROW EXCLUSIVE MODE")
					return err
				})
				if err == nil {
					_, err = pool.TenantServedHere(ctx, id)
				}
				if err != nil && ctx.Err() == nil {
					s.err.CompareAndSwap(nil, &err)
					return
				}
				s.made.Add(1)
			}
		})
	}
	s.stop = sync.OnceFunc(func() { s.goOn(); cancel(); all.Wait() })
	t.Cleanup(func() { cancel(); all.Wait() })
	return s
}

// goOn waits until a few more have been made, and none was refused.
func (s *traffic) goOn() {
	s.t.Helper()
	for before := s.made.Load(); s.made.Load() < before+20; time.Sleep(time.Millisecond) {
		if err := s.err.Load(); err != nil {
			require.NoError(s.t, *err)
		}
	}
}
