package world

import (
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
