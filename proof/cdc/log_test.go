package cdc

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"example.com/payonce/proof/internal/inventory"
	"example.com/payonce/testkit/dbtest"
	"example.com/payonce/testkit/devpg"
	"example.com/payonce/testkit/world"
)

const (
	slot        = "payonce_events"
	publication = "payonce_events"
	password    = "change-me" // the page's
)

// change is one of a table's row, as pgoutput sends it.
type change struct {
	Op     string // insert, update, delete
	Table  string
	Row    map[string]*string // by column; of a delete only the key
	Commit pglogrepl.LSN      // of the transaction
}

func (c change) text(column string) string {
	if c.Row[column] == nil {
		return ""
	}
	return *c.Row[column]
}

// newServer is a server whose log can be decoded, with the service's schema.
func newServer(t *testing.T, settings map[string]string) (*devpg.Server, *world.World) {
	t.Helper()
	settings["wal_level"] = "logical"
	server := dbtest.Server(t, func(o *devpg.Options) { o.Settings, o.Durable = settings, false })
	dbtest.Migrated(t, server.URL)
	return server, world.On(t, server.URL)
}

// setUp runs the SQL of the page.
func setUp(t *testing.T, w *world.World) {
	t.Helper()
	page, err := inventory.Read("docs/change-data-capture.md")
	require.NoError(t, err)
	_, block, found := strings.Cut(page, "```postgresql\n")
	require.True(t, found)
	block, _, _ = strings.Cut(block, "```")
	statements := 0
	for statement := range strings.SplitSeq(block, ";\n") {
		w.Exec(statement)
		statements++
	}
	require.Greater(t, statements, 2)
}

// reader reads a slot as a role that may replicate and has no right to any table.
type reader struct {
	t         *testing.T
	conn      *pgconn.PgConn
	relations map[uint32]*pglogrepl.RelationMessage
	confirmed pglogrepl.LSN
}

func read(t *testing.T, w *world.World, slot, publication string) *reader {
	t.Helper()
	u, err := url.Parse(w.URL)
	require.NoError(t, err)
	u.User = url.UserPassword("payonce_cdc", password)
	query := u.Query()
	query.Set("replication", "database")
	u.RawQuery = query.Encode()
	conn, err := pgconn.Connect(t.Context(), u.String())
	require.NoError(t, err)
	r := &reader{t: t, conn: conn, relations: map[uint32]*pglogrepl.RelationMessage{}}
	t.Cleanup(r.close)
	require.NoError(t, pglogrepl.StartReplication(t.Context(), conn, slot, 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names '" + publication + "'", "messages 'true'"},
	}))
	return r
}

func (r *reader) close() { _ = r.conn.Close(context.WithoutCancel(r.t.Context())) }

// all returns the changes that were committed until now, and confirms them.
func (r *reader) all(w *world.World) (changes []change) {
	r.t.Helper()
	until := uuid.NewString() // other readers have theirs in the same log
	w.Exec(`SELECT pg_logical_emit_message(true, 'until', $1)`, until)
	ctx, cancel := context.WithTimeout(r.t.Context(), world.Patience)
	defer cancel()
	var commit pglogrepl.LSN
	for end := false; !end; {
		raw, err := r.conn.ReceiveMessage(ctx)
		require.NoError(r.t, err)
		if refused, ok := raw.(*pgproto3.ErrorResponse); ok {
			require.Fail(r.t, refused.Message)
		}
		data, ok := raw.(*pgproto3.CopyData)
		if !ok || data.Data[0] != pglogrepl.XLogDataByteID {
			continue
		}
		log, err := pglogrepl.ParseXLogData(data.Data[1:])
		require.NoError(r.t, err)
		message, err := pglogrepl.Parse(log.WALData)
		require.NoError(r.t, err)
		switch m := message.(type) {
		case *pglogrepl.RelationMessage:
			r.relations[m.RelationID] = m
		case *pglogrepl.BeginMessage:
			commit = m.FinalLSN
		case *pglogrepl.InsertMessage:
			changes = append(changes, r.change("insert", m.RelationID, m.Tuple, commit))
		case *pglogrepl.UpdateMessage:
			changes = append(changes, r.change("update", m.RelationID, m.NewTuple, commit))
		case *pglogrepl.DeleteMessage:
			changes = append(changes, r.change("delete", m.RelationID, m.OldTuple, commit))
		case *pglogrepl.CommitMessage:
			r.confirmed = m.TransactionEndLSN
		case *pglogrepl.LogicalDecodingMessage:
			end = string(m.Content) == until
		}
	}
	require.NoError(r.t, pglogrepl.SendStandbyStatusUpdate(ctx, r.conn,
		pglogrepl.StandbyStatusUpdate{WALWritePosition: r.confirmed, ClientTime: time.Now()}))
	return changes
}

func (r *reader) change(op string, relation uint32, row *pglogrepl.TupleData, commit pglogrepl.LSN) change {
	of := r.relations[relation]
	c := change{Op: op, Table: of.RelationName, Row: map[string]*string{}, Commit: commit}
	for i, column := range row.Columns {
		if column.DataType == pglogrepl.TupleDataTypeText {
			text := string(column.Data)
			c.Row[of.Columns[i].Name] = &text
		}
	}
	return c
}

// of are the changes of one kind of one table.
func of(changes []change, table, op string) (some []change) {
	for _, c := range changes {
		if c.Table == table && c.Op == op {
			some = append(some, c)
		}
	}
	return some
}
