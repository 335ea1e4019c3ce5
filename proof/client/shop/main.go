// Command shop is a program that sells: it places orders and pays them with payonce's client, and may be killed at any
// moment. Its parent starts it again, with the same arguments, until it exits by itself.
//
// Everything that it does not do to be safe is what the client does: it draws no key, keeps no list of what it has sent,
// and after a start does all its orders again, from the first.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"example.com/payonce/client"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(1)
	}
}

// Line is what the shop prints of an order once it is settled.
type Line struct {
	Name    string `json:"name"`    // of the order, in this shop
	Outcome string `json:"outcome"` // paid, declined or refused
	Order   string `json:"order"`
	Payment string `json:"payment"`
}

type shop struct {
	client *client.Client
	name   string
	mu     sync.Mutex
}

func run(ctx context.Context) error {
	journal := flag.String("journal", "", "a file, or the postgres:// URL of a database with the table of client.SQLSchema")
	apis := flag.String("api", "", "the base URLs of the API, separated by commas: each request goes to one of them")
	name := flag.String("name", "", "of the shop: orders of two shops are different")
	first := flag.Int("first", 0, "the first order")
	last := flag.Int("last", 0, "the one after the last order")
	resume := flag.Bool("resume", false, "finish what an earlier process has begun, and nothing else")
	flag.Parse()
	j, err := open(ctx, *journal)
	if err != nil {
		return err
	}
	hosts := strings.Split(*apis, ",")
	c, err := client.New(client.Options{
		Base: hosts[0], Header: http.Header{"Authorization": {"Bearer " + os.Getenv("API_KEY")}}, Journal: j,
		HTTP: spread(hosts), Timeout: time.Minute, AttemptTimeout: 15 * time.Second,
	})
	if err != nil {
		return err
	}
	outcomes, err := c.Resume(ctx)
	if err != nil {
		return err
	}
	for _, o := range outcomes {
		if err := settled(ctx, c, o.Err); err != nil {
			return fmt.Errorf("resume %q: %w", o.Intent, err)
		}
	}
	if *resume {
		return nil
	}
	s := &shop{client: c, name: *name}
	errs := make([]error, *last)
	slots := make(chan struct{}, 4)
	var all sync.WaitGroup
	for n := *first; n < *last; n++ {
		slots <- struct{}{}
		all.Go(func() {
			errs[n] = s.sell(ctx, n)
			<-slots
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func open(ctx context.Context, journal string) (client.Journal, error) {
	if !strings.HasPrefix(journal, "postgres") {
		return client.OpenFile(journal)
	}
	db, err := sql.Open("pgx", journal)
	if err != nil {
		return nil, err
	}
	return client.SQL(ctx, db)
}

// sell places an order and pays it. Of ten orders one is paid with a card that is declined, one with a request that is
// refused, and one by two callers at once.
func (s *shop) sell(ctx context.Context, n int) error {
	name := fmt.Sprintf("%s, order %d", s.name, n)
	order, err := s.client.Do(ctx, client.Request{Intent: name, Path: "/v1/orders", Body: fmt.Appendf(nil,
		`{"currency":"usd","items":[{"sku":"tea","quantity":1,"unit_amount":%d}],"customer_reference":%q}`, 1000+n, name)})
	if err != nil {
		return err
	}
	line := Line{Name: name, Order: id(order)}
	pay := client.Request{Intent: name + ", payment 1", Path: "/v1/payments",
		Body: fmt.Appendf(nil, `{"order_id":%q,"payment_method":"pm_card_visa"}`, line.Order)}
	switch n % 10 {
	case 3:
		pay.Body = fmt.Appendf(nil, `{"order_id":%q,"payment_method":"pm_card_visa_chargeDeclined"}`, line.Order)
	case 5:
		pay.Body = fmt.Appendf(nil, `{"order_id":%q,"card":"visa"}`, line.Order)
	case 7:
		var other sync.WaitGroup
		other.Go(func() { _, _ = s.client.Do(ctx, pay) }) // gets the same as the call below
		defer other.Wait()
	}
	paid, err := s.client.Do(ctx, pay)
	switch {
	case err != nil:
		if err := settled(ctx, s.client, err); err != nil {
			return err
		}
		line.Outcome = "refused"
	case paid.Status == http.StatusBadRequest:
		line.Outcome = "refused" // and settled before
	case paid.OK():
		line.Outcome, line.Payment = "paid", id(paid)
	case paid.Status == http.StatusPaymentRequired:
		line.Outcome = "declined"
	default:
		return fmt.Errorf("%q: %d %s", pay.Intent, paid.Status, paid.Body)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return json.NewEncoder(os.Stdout).Encode(line)
}

// settled returns nil if the error says that the API has refused a request as invalid. If an earlier attempt may have
// arrived, the client cannot know that it was refused as well; this shop can, because the API does not change.
func settled(ctx context.Context, c *client.Client, err error) error {
	var unknown *client.UnknownError
	switch {
	case errors.As(err, new(*client.RefusedError)):
		return nil
	case errors.As(err, &unknown) && unknown.Response != nil && unknown.Response.Status == http.StatusBadRequest:
		_ = c.Settle(ctx, unknown.Intent, *unknown.Response) // the other caller may have settled it
		return nil
	}
	return err
}

func id(r *client.Response) string {
	var object struct{ ID string }
	_ = json.Unmarshal(r.Body, &object)
	return object.ID
}

// spread sends each request to one of several processes of the API, as a load balancer does.
type spread []string

func (hosts spread) RoundTrip(r *http.Request) (*http.Response, error) {
	to, err := url.Parse(hosts[rand.N(len(hosts))])
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.URL.Host, r.Host = to.Host, to.Host
	return http.DefaultTransport.RoundTrip(r)
}
