package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/postgres"
)

// TestUnverified: a machine between two others can read and change what they send, unless it is encrypted and the server
// has proved its name.
func TestUnverified(t *testing.T) {
	t.Parallel()
	for url, want := range map[string][]string{
		"postgres://u:p@db.example.com/orders?sslmode=disable":                                  {"db.example.com"},
		"postgres://u:p@db.example.com/orders?sslmode=prefer":                                   {"db.example.com"},
		"postgres://u:p@db.example.com/orders?sslmode=require":                                  {"db.example.com"},
		"postgres://u:p@db.example.com/orders?sslmode=verify-ca":                                {"db.example.com"},
		"postgres://u:p@db.example.com/orders?sslmode=verify-full":                              nil,
		"postgres://u:p@10.0.0.7/payonce?sslmode=require":                                       {"10.0.0.7"},
		"postgres://u:p@db1.example.com,127.0.0.1,db2.example.com:6432/payonce?sslmode=disable": {"db1.example.com", "db2.example.com"},
		"postgres://u:p@127.0.0.1/payonce?sslmode=disable":                                      nil,
		"postgres://u:p@[::1]/payonce?sslmode=disable":                                          nil,
		"postgres://u:p@localhost/payonce?sslmode=disable":                                      nil,
		"postgres://u:p@/payonce?host=/run/postgresql&sslmode=disable":                          nil,
		"host=db.example.com user=u sslmode=allow":                                              {"db.example.com"},
	} {
		got, err := postgres.Unverified(url)
		require.NoError(t, err, url)
		require.Equal(t, want, got, url)
	}
	_, err := postgres.Unverified("mysql:/nothing")
	require.Error(t, err)
}
