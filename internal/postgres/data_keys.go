package postgres

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"example.com/payonce/db"
	"example.com/payonce/internal/sealed"
)

// IntroduceKey records in the database which key of the pool's Box encrypts, or that none does. The role of the pool has
// to own the tables. Without a Box it does nothing.
func (p *Pool) IntroduceKey(ctx context.Context) error {
	if p.box == nil {
		return nil
	}
	err := p.InTx(ctx, func(q *db.Queries) error {
		if !p.box.Seals() {
			return q.DataKeysRest(ctx)
		}
		if err := q.DataKeysResume(ctx); err != nil {
			return err
		}
		return q.DataKeyIntroduce(ctx, p.box.SealedBy())
	})
	if err != nil {
		return fmt.Errorf("introduce the key of DATA_KEY: %w", err)
	}
	return nil
}

// KeyIntroduced is what the database knows of the key with which a Box encrypts.
type KeyIntroduced int

const (
	KeyIsUnknown KeyIntroduced = iota // the database accepts no secret that is encrypted with it
	KeyIsOlder                        // values are encrypted anew with another one
	KeyIsNewest
)

// KeyIntroduced returns what the database knows of the key of the pool's Box.
func (p *Pool) KeyIntroduced(ctx context.Context) (KeyIntroduced, error) {
	ids, err := p.DataKeys(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the keys that were introduced: %w", err)
	}
	for i, id := range ids {
		if bytes.Equal(id, p.box.SealedBy()) {
			if i == 0 {
				return KeyIsNewest, nil
			}
			return KeyIsOlder, nil
		}
	}
	return KeyIsUnknown, nil
}

// OpenOfKey opens a request or a response of an idempotency key that was made at a time. While values are sealed, one that
// is plain is not ours if the key was made after the first key was introduced: then the error is sealed.ErrPlain. q is
// where a look into the database is made.
func (p *Pool) OpenOfKey(ctx context.Context, q *db.Queries, place sealed.Place, made time.Time, stored []byte) ([]byte, error) {
	if p.box.Seals() && stored != nil && sealed.KeyID(stored) == nil {
		read, err := q.PlainIsRead(ctx, made)
		if err != nil {
			return nil, fmt.Errorf("read whether a value may be plain: %w", err)
		}
		if !read {
			return nil, fmt.Errorf("open %s: %w", place, sealed.ErrPlain)
		}
	}
	return p.box.Open(place, stored)
}
