package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/payonce/testkit/port"
)

// What a cache of responses would save, which the service has not (docs/adr/0019-no-redis.md): a handler before the
// service's that answers a replay itself if it can. It has what a cache would have to have:
//
//   - An entry belongs to one API key and one request, byte for byte; another request goes to the service, which refuses
//     it.
//   - An API key is trusted for a second after the service has accepted it, as the service trusts its own look-ups.
//   - An entry ends. It ends when it has been cached for that long, and not when its row does, which a cache cannot know.
//
// It writes no line of log, counts nothing and limits nobody, so it is cheaper than one in the service would be.
type cached struct {
	next    http.Handler
	store   store
	keep    time.Duration
	misses  bool // nothing is ever found: what a first request pays
	now     func() time.Time
	trusted sync.Map // SHA-256 of an Authorization → until when
	asked   atomic.Int64
}

// store keeps entries under keys.
type store interface {
	get(ctx context.Context, key string) ([]byte, error) // nil: there is none
	set(ctx context.Context, key string, entry []byte, keep time.Duration) error
}

const (
	apiKeyTrusted = time.Second // cmd/api's
	bodyMost      = 1 << 20
)

// remembered is an entry: the response, and of which request.
type remembered struct {
	Request     []byte    `json:"r"`
	Until       time.Time `json:"u"`
	Status      int       `json:"s"`
	ContentType string    `json:"t"`
	Location    string    `json:"l"`
	Body        []byte    `json:"b"`
}

func (c *cached) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyMost))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	caller := sha256.Sum256([]byte(r.Header.Get("Authorization")))
	request := requestSum(r, body)
	key := string(caller[:16]) + r.Header.Get("Idempotency-Key")
	if c.misses {
		key += strconv.FormatInt(c.asked.Add(1), 10)
	}
	if until, ok := c.trusted.Load(caller); ok && c.now().Before(until.(time.Time)) {
		entry, err := c.store.get(r.Context(), key)
		if err == nil && entry != nil { // a cache that is away is one that has nothing
			var e remembered
			if e.decode(entry) == nil && bytes.Equal(e.Request, request) && c.now().Before(e.Until) {
				e.write(w)
				return
			}
		}
	}
	answer := httptest.NewRecorder()
	c.next.ServeHTTP(answer, r)
	if answer.Code != http.StatusUnauthorized {
		c.trusted.Store(caller, c.now().Add(apiKeyTrusted))
	} else {
		c.trusted.Delete(caller)
	}
	if answer.Code == http.StatusCreated { // final: an answer that is not is 202, and is never stored
		e := remembered{request, c.now().Add(c.keep), answer.Code, answer.Header().Get("Content-Type"),
			answer.Header().Get("Location"), answer.Body.Bytes()}
		if err := c.store.set(r.Context(), key, e.encode(), c.keep); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError) // it would be a cache that measures nothing
			return
		}
	}
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

func requestSum(r *http.Request, body []byte) []byte {
	h := sha256.New()
	for _, part := range []string{r.Method, r.URL.RequestURI()} {
		_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		_, _ = io.WriteString(h, part)
	}
	_, _ = h.Write(body)
	return h.Sum(nil)
}

func (e *remembered) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", e.ContentType)
	h.Set("Location", e.Location)
	h.Set("Cache-Control", "no-store")
	h.Set("Idempotent-Replayed", "true")
	w.WriteHeader(e.Status)
	_, _ = w.Write(e.Body)
}

// encode puts the body last and as it is: JSON of it, in base64, would cost more than the look-up.
func (e *remembered) encode() []byte {
	head := *e
	head.Body = nil
	text, _ := json.Marshal(head) // strings, numbers and a time: it cannot fail
	return append(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...), e.Body...)
}

func (e *remembered) decode(b []byte) error {
	if len(b) < 4 || uint64(len(b)) < 4+uint64(binary.BigEndian.Uint32(b)) {
		return errors.New("cut short")
	}
	n := 4 + binary.BigEndian.Uint32(b)
	if err := json.Unmarshal(b[4:n], e); err != nil {
		return err
	}
	e.Body = b[n:]
	return nil
}

// inMemoryStore is a map without bounds: the most that a cache in the process could do.
type inMemoryStore struct{ entries sync.Map }

func (m *inMemoryStore) get(_ context.Context, key string) ([]byte, error) {
	entry, ok := m.entries.Load(key)
	if !ok {
		return nil, nil
	}
	return entry.([]byte), nil
}

func (m *inMemoryStore) set(_ context.Context, key string, entry []byte, _ time.Duration) error {
	m.entries.Store(key, entry)
	return nil
}

type inRedis struct{ client *redis.Client }

func (c inRedis) get(ctx context.Context, key string) ([]byte, error) {
	entry, err := c.client.Get(ctx, key).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return entry, err
}

func (c inRedis) set(ctx context.Context, key string, entry []byte, keep time.Duration) error {
	return c.client.Set(ctx, key, entry, keep).Err()
}

// fronts are the service's handler behind each cache, under a path of its own. Redis gets as many connections as
// PostgreSQL.
func fronts(api http.Handler, redisAddr string, conns int) map[string]http.Handler {
	client := redis.NewClient(&redis.Options{Addr: redisAddr, PoolSize: conns})
	front := func(s store, misses bool) http.Handler {
		return &cached{next: api, store: s, keep: time.Hour, misses: misses, now: time.Now}
	}
	return map[string]http.Handler{
		"/memory": front(&inMemoryStore{}, false), "/redis": front(inRedis{client}, false),
		"/redis-miss": front(inRedis{client}, true),
	}
}

const (
	readReplays      = "replays over many keys"
	memoryReplays    = "replays over many keys, found in memory"
	redisReplays     = "replays over many keys, found in Redis"
	redisMisses      = "replays over many keys, not found in Redis"
	cachedKeys       = 50_000 // whatever -stored says: each is asked for before the first round
	redisStartWithin = 10 * time.Second
)

// cacheGroup compares replays as they are with the same behind a cache in which each is found.
func (b *bench) cacheGroup() group {
	var full *bench
	var server *exec.Cmd
	var template string
	stored := 0
	// asks for the random keys of store, which are the even ones.
	asking := func(path string) func(context.Context) (sample, error) {
		return func(ctx context.Context) (sample, error) {
			addr := full.addr
			if path != "" {
				addr = full.peers
			}
			before := full.stores(ctx, server)
			got, err := full.measured(ctx, addr, http.StatusCreated, func(int, int) ([]byte, bool) {
				return full.request(path+"/v1/payments", randomKey(rand.N(stored/2)*2), paymentOf(template)), true
			})
			if err == nil && got.n > 0 {
				after, each := full.stores(ctx, server), time.Duration(got.n)
				got.note = fmt.Sprintf("%d µs CPU (PostgreSQL), %d µs CPU (Redis)",
					((after[0] - before[0]) / each).Microseconds(), ((after[1] - before[1]) / each).Microseconds())
			}
			return got, err
		}
	}
	// found has each key asked for once.
	found := func(ctx context.Context, path string) error {
		l := full.closed(full.peers, time.Minute, http.StatusCreated)
		got, err := drive(ctx, l, func(conn, i int) ([]byte, bool) {
			at := (i-1)*full.s.connections + conn
			return full.request(path+"/v1/payments", randomKey(at*2), paymentOf(template)), at < stored/2
		})
		if err == nil && got.n != stored/2 {
			err = fmt.Errorf("only %d of %d keys are cached", got.n, stored/2)
		}
		return err
	}
	return group{
		name: inCache,
		says: func() string {
			return fmt.Sprintf("What a cache of finished responses could save: a handler before the service's which answers "+
				"replays itself, from a map in memory without bounds or from Redis on loopback. Each of %s random keys was "+
				"cached before the first round, so every look-up finds it, but for the last line, which is what every first "+
				"request would pay. An entry is for one API key and one request; an API key is trusted for a second. The cache "+
				"writes no line of log and counts nothing.", grouped(stored/2))
		},
		prepare: func(ctx context.Context) (err error) {
			var addr string
			if server, addr, err = startRedis(ctx, b.dir); err != nil {
				return err
			}
			s := b.s
			s.stored = cachedKeys
			if full, err = b.another(ctx, s, "-redis", addr); err != nil {
				return err
			}
			if err = full.answerSome(ctx); err != nil {
				return err
			}
			if template, stored, err = full.store(ctx); err != nil {
				return err
			}
			return errors.Join(found(ctx, "/memory"), found(ctx, "/redis"))
		},
		finish: func() {
			if full != nil {
				full.close()
			}
			if server != nil {
				_ = server.Process.Kill()
				_ = server.Wait()
			}
		},
		list: []*measurement{
			{name: readReplays, unit: "answers/s", run: asking("")},
			{name: memoryReplays, unit: "answers/s", floor: readReplays, run: asking("/memory")},
			{name: redisReplays, unit: "answers/s", floor: readReplays, run: asking("/redis")},
			{name: redisMisses, unit: "answers/s", floor: readReplays, run: asking("/redis-miss")},
		},
	}
}

// stores is the processor time of PostgreSQL's processes and of Redis so far.
func (b *bench) stores(ctx context.Context, redis *exec.Cmd) [2]time.Duration {
	return [2]time.Duration{b.serverCPU(ctx), cpuOf(redis.Process.Pid)}
}

// startRedis starts Debian's, which keeps nothing on a disk.
func startRedis(ctx context.Context, dir string) (*exec.Cmd, string, error) {
	at, err := port.Loopback(ctx)
	if err != nil {
		return nil, "", err
	}
	cmd := exec.CommandContext(ctx, "redis-server", "--bind", at.Addr().String(), "--port", strconv.Itoa(int(at.Port())),
		"--save", "", "--appendonly", "no", "--dir", dir)
	if err := cmd.Start(); err != nil {
		return nil, "", fmt.Errorf("%w (Debian: apt-get install redis-server)", err)
	}
	for deadline := time.Now().Add(redisStartWithin); ; time.Sleep(20 * time.Millisecond) {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", at.String())
		if err == nil {
			return cmd, at.String(), conn.Close()
		}
		if time.Now().After(deadline) {
			_ = cmd.Process.Kill()
			return nil, "", errors.Join(fmt.Errorf("redis-server does not listen: %w", err), cmd.Wait())
		}
	}
}
