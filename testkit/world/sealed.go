package world

import (
	"context"
	"encoding/base64"

	"github.com/stretchr/testify/require"

	"example.com/payonce/internal/sealed"
)

// DataKey is the DATA_KEY of every service of a world, unless a test says otherwise: what a test finds in the database
// is what a dump of a real one would show.
var DataKey = base64.StdEncoding.EncodeToString([]byte("a data key of tests, not secret!"))

// OtherDataKey is another one.
var OtherDataKey = base64.StdEncoding.EncodeToString([]byte("another data key of tests, also!"))

// Box is the Box of a DATA_KEY.
func (w *World) Box(dataKey string) *sealed.Box {
	w.T.Helper()
	box, err := sealed.New(dataKey)
	require.NoError(w.T, err)
	return box
}

// StoredRequest is what the world's tenant has sent under a key, as it is stored.
func (w *World) StoredRequest(key string) []byte {
	w.T.Helper()
	var stored []byte
	require.NoError(w.T, w.DB.Raw().QueryRow(context.Background(),
		"SELECT request FROM idempotency_keys WHERE tenant_id = $1 AND key = $2", w.Tenant.ID, key).Scan(&stored))
	request, err := w.DB.Box().Open(sealed.Request(w.Tenant.ID, key), stored)
	require.NoError(w.T, err)
	return request
}
