package http

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckCell(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"e", "eu1", "eu-1", "a-b-c-1", "abcdefghijklmnop"} {
		require.NoError(t, CheckCell(name), name)
	}
	for _, name := range []string{"", "1eu", "-eu", "eu-", "eu_1", "Eu1", "eu 1", "eu1\n", "éu", "abcdefghijklmnopq"} {
		require.ErrorIs(t, CheckCell(name), errCellName, name)
	}
}

// TestSplitAPIKey: what a key names, and that a key of a deployment without a name is read as it always was.
func TestSplitAPIKey(t *testing.T) {
	t.Parallel()
	id, secret := strings.Repeat("v", 26), strings.Repeat("S", 43)
	for _, c := range []struct {
		key, cell, tenant string
		ok                bool
	}{
		{"payonce_" + id + "_" + secret, "", id, true},
		{"payonce_eu1_" + id + "_" + secret, "eu1", id, true},
		{"payonce_eu1_" + id + "_a_b-c", "eu1", id, true},
		{"payonce_" + id + "_a_" + id + "_b", "", id, true}, // a secret may look like a tenant
		// Of no cell, as before there were any; such a tenant does not exist.
		{"payonce_eu1_" + id[1:] + "_" + secret, "", "eu1", true},
		{"payonce_eu1_" + id + "v_" + secret, "", "eu1", true},
		{"payonce_eu1_" + id[1:] + "w_" + secret, "", "eu1", true},
		{"payonce_eu1_" + id, "", "eu1", true},
		{"payonce_EU1_" + id + "_" + secret, "", "EU1", true},
		{"payonce__" + id + "_" + secret, "", "", true},
		{"payonce_" + id, "", id, false},
		{"payonce_", "", "", false},
		{"Payonce_" + id + "_" + secret, "", "", false},
		{"", "", "", false},
	} {
		cell, tenant, ok := splitAPIKey(c.key)
		require.Equal(t, c.cell, cell, c.key)
		require.Equal(t, c.ok, ok, c.key)
		require.Equal(t, c.tenant, tenant, c.key)
	}
	for _, cell := range []string{"", "eu1", "abcdefghijklmnop"} {
		key, _, hint := NewCellAPIKey(cell, "ten_"+id)
		of, tenant, ok := splitAPIKey(key)
		require.True(t, ok)
		require.Equal(t, cell, of)
		require.Equal(t, id, tenant)
		require.True(t, strings.HasSuffix(key, hint))
		require.LessOrEqual(t, len(key), 256)
	}
}
