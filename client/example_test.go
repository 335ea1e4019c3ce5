package client_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"example.com/payonce/client"
)

// The examples of README.md. TestReadme compares them with it.

func useIt(ctx context.Context, apiKey string) error {
	journal, err := client.OpenFile("/var/lib/shop/intents") // made if it is not there
	if err != nil {
		return err // in use, damaged, not a journal, not writable: nothing can be sent
	}
	defer journal.Close()

	shop, err := client.New(client.Options{
		Base:    "https://pay.example.com",
		Header:  http.Header{"Authorization": {"Bearer " + apiKey}},
		Journal: journal,
	})
	if err != nil {
		return err
	}
	if _, err := shop.Resume(ctx); err != nil { // what an earlier process has left
		return err
	}

	payment, err := shop.Do(ctx, client.Request{
		Intent: "order 17, payment 1", // the same after a restart
		Path:   "/v1/payments",
		Body:   []byte(`{"order_id":"ord_17","payment_method":"pm_card_visa"}`),
	})
	return whatComesBack(payment, err)
}

func whatComesBack(payment *client.Response, err error) error {
	var refused *client.RefusedError
	var unknown *client.UnknownError
	switch {
	case err == nil && payment.OK():
		return ship(payment.Body)
	case err == nil && !payment.Final:
		return sendToCustomer(payment.Body) // 3-D Secure; call Do again afterwards
	case err == nil:
		return askForAnotherCard(payment.Body) // declined, for good; another card is another intent
	case errors.As(err, &refused):
		return fix(refused.Response) // the server did nothing: correct the request, and call Do again
	case errors.As(err, &unknown):
		return later(unknown.Intent) // it may have been done: call Do again with the same request, or Resume
	case errors.Is(err, client.ErrNotSent):
		return later("order 17, payment 1") // this call has sent nothing; an earlier one may have
	default:
		return page(err) // MismatchError, ExpiredError, BrokenPromiseError: an operator must look
	}
}

func inDatabase(ctx context.Context) error {
	db, err := sql.Open("pgx", "postgres://…") // or another driver of database/sql
	if err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, client.SQLSchema); err != nil { // once, as a migration
		return err
	}
	journal, err := client.SQL(ctx, db)
	_ = journal
	return err
}

func otherAPIs(journal client.Journal, secretKey string) error {
	stripe, err := client.New(client.Options{
		Base:    "https://api.stripe.com",
		Header:  http.Header{"Authorization": {"Bearer " + secretKey}},
		Journal: journal,
		Profile: &client.Stripe, // forms; a 500 is repeated under its key; keys are kept for 24 hours
	})
	_ = stripe
	return err
}

func ship([]byte) error              { return errors.New("shipped") }
func sendToCustomer([]byte) error    { return errors.New("sent to the customer") }
func askForAnotherCard([]byte) error { return errors.New("asked for another card") }
func fix(*client.Response) error     { return errors.New("to be fixed") }
func later(string) error             { return errors.New("later") }
func page(error) error               { return errors.New("paged") }

// The API executes a payment, and its response is lost: the client retries under the same key. A second process finds
// the response in the journal.
func Example() {
	var mu sync.Mutex
	payments := 0
	stored := map[string]string{}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // an API that keeps its promise
		mu.Lock()
		defer mu.Unlock()
		key := r.Header.Get("Idempotency-Key")
		if stored[key] == "" {
			payments++
			var body struct {
				Order string `json:"order_id"`
			}
			_ = json.NewDecoder(r.Body).Decode(&body)
			stored[key] = fmt.Sprintf(`{"id":"pay_%d","object":"payment","status":"succeeded","order_id":%q}`, payments, body.Order)
			panic(http.ErrAbortHandler) // and its response is lost
		}
		w.Header().Set("Idempotent-Replayed", "true")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, stored[key])
	}))
	defer api.Close()
	folder, err := os.MkdirTemp("", "example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)

	for range 2 { // processes
		journal, err := client.OpenFile(filepath.Join(folder, "intents"))
		if err != nil {
			fmt.Println(err)
			return
		}
		shop, err := client.New(client.Options{Base: api.URL, Journal: journal})
		if err != nil {
			fmt.Println(err)
			return
		}
		payment, err := shop.Do(context.Background(), client.Request{
			Intent: "order 17, payment 1", Path: "/v1/payments", Body: []byte(`{"order_id":"ord_17"}`),
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(payment.Status, string(payment.Body))
		_ = journal.Close()
	}
	fmt.Println("payments:", payments)
	// Output:
	// 201 {"id":"pay_1","object":"payment","status":"succeeded","order_id":"ord_17"}
	// 201 {"id":"pay_1","object":"payment","status":"succeeded","order_id":"ord_17"}
	// payments: 1
}

// Each block of Go in README.md is code of this file, which compiles.
func TestReadme(t *testing.T) {
	plain := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for line := range strings.Lines(string(text)) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		return strings.Join(lines, "\n")
	}
	source := plain("example_test.go")
	blocks := strings.Split(plain("README.md"), "```go\n")[1:]
	if len(blocks) != 4 {
		t.Errorf("%d blocks", len(blocks))
	}
	for _, block := range blocks {
		block, _, _ = strings.Cut(block, "\n```")
		if !strings.Contains(source, block) {
			t.Errorf("not in example_test.go:\n%s", block)
		}
	}
	for _, unused := range []any{useIt, inDatabase, otherAPIs} { // they need a server or a database
		_ = unused
	}
	res := func(status int, final bool) *client.Response { return &client.Response{Status: status, Final: final} }
	for want, got := range map[string]error{
		"shipped":                whatComesBack(res(201, true), nil),
		"sent to the customer":   whatComesBack(res(202, false), nil),
		"asked for another card": whatComesBack(res(402, true), nil),
		"to be fixed":            whatComesBack(nil, &client.RefusedError{}),
		"later":                  whatComesBack(nil, &client.UnknownError{}),
		"paged":                  whatComesBack(nil, &client.MismatchError{}),
	} {
		if got.Error() != want {
			t.Errorf("%s: %s", want, got)
		}
	}
	if err := whatComesBack(nil, fmt.Errorf("%w: %w", client.ErrNotSent, client.ErrJournalFailed)); err.Error() != "later" {
		t.Error(err)
	}
}
