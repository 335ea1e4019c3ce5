package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"example.com/payonce/internal/ledger"
	"example.com/payonce/internal/outbox"
	"example.com/payonce/internal/payments"
)

// brokersLog reads the whole log and walks it: every event of ours is in it,
// once, as it was written, and those of one object in their order.
func (j *checks) brokersLog(ctx context.Context) (err error) {
	if j.log, err = j.world.events.read(ctx); err != nil {
		return err
	}
	written, err := j.eventsWritten(ctx)
	if err != nil {
		return err
	}
	w := walk(j.log, written)
	j.add("I6", "every event is in the log", byBroker, len(written), w.missing)
	j.add("I6", "none is in it twice, or other than it was written", byBroker, len(j.log), w.repeated)
	j.add("I6", "each object's events are in order, without a gap", byBroker, w.objects, w.disordered)
	return nil
}

// walked is what offends in a log.
type walked struct {
	objects                       int
	missing, repeated, disordered []string
}

func walk(log []message, written map[string]event) (w walked) {
	versions := map[string]int64{} // by object: the last that came
	seen := map[string]bool{}
	for _, m := range log {
		var e outbox.Envelope
		if err := json.Unmarshal(m.body, &e); err != nil {
			w.repeated = append(w.repeated, fmt.Sprintf("%s is not an event of ours: %s", m.id, err))
			continue
		}
		ours, known := written[e.ID]
		switch {
		case m.id != e.ID:
			w.repeated = append(w.repeated, fmt.Sprintf("%s was sent as message %s", e.ID, m.id))
		case !known:
			w.repeated = append(w.repeated, e.ID+" was never written")
		case seen[e.ID]:
			w.repeated = append(w.repeated, e.ID+" is in the log again")
		case ours.kind != e.Type || !bytes.Equal(ours.data, compact(e.Data)):
			w.repeated = append(w.repeated, e.ID+" is another in the log than in the outbox")
		}
		if seen[e.ID] {
			continue
		}
		seen[e.ID] = true
		if e.Version != versions[e.Subject]+1 {
			w.disordered = append(w.disordered,
				fmt.Sprintf("version %d of %s comes after %d", e.Version, e.Subject, versions[e.Subject]))
		}
		versions[e.Subject] = e.Version
	}
	for id := range written {
		if !seen[id] {
			w.missing = append(w.missing, id+" is not in the log")
		}
	}
	w.objects = len(versions)
	return w
}

type event struct {
	kind string
	data []byte
}

func (j *checks) eventsWritten(ctx context.Context) (map[string]event, error) {
	rows, err := j.world.pool.Raw().Query(ctx, `SELECT tenant_id, aggregate_id, version, type, data FROM outbox_events`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var events []outbox.Envelope
	for rows.Next() {
		var e outbox.Envelope
		if err := rows.Scan(&e.TenantID, &e.Subject, &e.Version, &e.Type, &e.Data); err != nil {
			return nil, err
		}
		events = append(events, e)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	// Now, at the end: what the log has was rendered when it was published.
	if err := payments.RenderEvents(ctx, j.world.pool, events); err != nil {
		return nil, err
	}
	written := map[string]event{}
	for _, e := range events {
		written[outbox.EventID(e.Subject, e.Version)] = event{kind: e.Type, data: compact(e.Data)}
	}
	return written, nil
}

// compact takes the white space out: an envelope has its own.
func compact(data []byte) []byte {
	var b bytes.Buffer
	if json.Compact(&b, data) != nil {
		return data
	}
	return b.Bytes()
}

// consumersInbox asks whether each consumer has a row for every event that it is
// for: applied, or kept. Nothing vanishes between the broker and the two.
func (j *checks) consumersInbox(ctx context.Context) error {
	for _, consumer := range consumers {
		rows, err := j.world.strings(ctx, `SELECT event_id FROM inbox_events WHERE consumer = $1`, consumer)
		if err != nil {
			return err
		}
		received := map[string]bool{}
		for _, id := range rows {
			received[id] = true
		}
		var vanished []string
		meant, distinct := 0, map[string]bool{}
		for _, m := range j.log {
			var e outbox.Envelope
			if json.Unmarshal(m.body, &e) != nil || distinct[e.ID] || !isFor(consumer, e.Type) {
				continue
			}
			distinct[e.ID] = true
			if meant++; !received[e.ID] {
				vanished = append(vanished, fmt.Sprintf("%s %s never reached %s", e.Type, e.ID, consumer))
			}
			delete(received, e.ID)
		}
		for id := range received {
			vanished = append(vanished, fmt.Sprintf("%s received %s, which was not sent", consumer, id))
		}
		j.add("I22", consumer+" has received all that was published, and no more", byBroker, meant, vanished)
	}
	booked, err := j.world.count(ctx, `SELECT count(DISTINCT event_id) FROM ledger_entries`)
	if err != nil {
		return err
	}
	list, err := j.world.strings(ctx,
		`SELECT event_id || ' is booked ' || count(*) || ' times' FROM ledger_entries
			WHERE event_id NOT LIKE 'dsp\_%' -- one event of a dispute may announce several movements; I24 has them
			GROUP BY event_id, account HAVING count(*) > 1`)
	j.add("I7", "an event is booked once", byQuery, booked, list)
	return err
}

// isFor says whether a consumer wants events of a type.
func isFor(consumer, kind string) bool {
	if consumer != ledger.Name {
		return true
	}
	for _, t := range ledger.WithDisputes(ledger.Handler()).Types {
		if t == kind {
			return true
		}
	}
	return false
}
