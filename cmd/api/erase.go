package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"example.com/payonce/internal/erasure"
	"example.com/payonce/internal/postgres"
	"example.com/payonce/internal/sealed"
	"example.com/payonce/internal/terminal"
)

// Exit codes of tenant erase-customer, beside those of every command: who answers a customer's letter must know which.
const (
	eraseNoTenant   exitStatus = 3
	eraseNoCustomer exitStatus = 4 // nor was one of that reference erased before
	eraseUnfinished exitStatus = 5 // nothing was erased, or not all
)

// tenantEraseCustomer prints what it has erased, or what keeps it from that. The reference is printed nowhere: what a
// command prints is kept in logs.
func tenantEraseCustomer(ctx context.Context, cli cli, args []string) error {
	flags := flags("tenant erase-customer")
	actor := flags.String("by", "", "who asks for it, for the record")
	given, err := parse(flags, args, "TENANT", "REFERENCE")
	if err != nil {
		return err
	}
	if err := checkText("-by", *actor); err != nil {
		return err
	}
	err = withTenant(ctx, cli, given[:1], func(pool *postgres.Pool, tenantID string) error {
		stored, err := pool.ErasureSecret(ctx, tenantID)
		if err != nil {
			return fmt.Errorf("read the tenant's secret: %w", err)
		}
		secret, err := pool.Box().Open(sealed.FingerprintSecret(tenantID), stored)
		if err != nil {
			return fmt.Errorf("the secret of %s: %w", tenantID, err)
		}
		customer := erasure.Customer{TenantID: tenantID, Reference: given[1], Secret: secret}
		done, err := erasure.Erase(ctx, pool, customer, *actor)
		var unfinished *erasure.UnfinishedError
		switch {
		case errors.As(err, &unfinished):
			cli.printUnfinished(unfinished)
			return eraseUnfinished
		case err != nil:
			return err
		}
		done.ErasedAt = done.ErasedAt.UTC().Truncate(time.Second)
		return json.NewEncoder(cli.stdout).Encode(struct {
			TenantID string `json:"tenant_id"`
			erasure.Result
		}{tenantID, done})
	})
	status := exitStatus(exitOK)
	if unknown := unknownTenantError(""); errors.As(err, &unknown) {
		status = eraseNoTenant
	} else if errors.Is(err, erasure.ErrUnknown) {
		status = eraseNoCustomer
	}
	if status == exitOK {
		return err
	}
	printError(cli.stderr, err)
	return status
}

func (c cli) printUnfinished(e *erasure.UnfinishedError) {
	_, _ = fmt.Fprintf(c.stderr, "api: %d orders were erased, the others were not: %s. Run it again when they are:\n",
		e.Erased, e.Error())
	for _, thing := range e.Things {
		_, _ = fmt.Fprintf(c.stderr, "  %s %s\n", terminal.Text(thing.ID), unfinishedAdvice[thing.Kind])
	}
}

// unfinishedAdvice is what each kind of unfinished thing waits for.
var unfinishedAdvice = map[string]string{
	"key":         "is being worked on: a payment waits for its customer, a refund for the bank, or a process for its turn",
	"event":       "is not published. The relay publishes it while the service runs; unpark it if it is parked",
	"unread":      "is not read by the notifier. It reads it while the service runs", // part: webhooks
	"received":    "is received and not applied. It is applied while the service runs; unpark it if it is parked",
	"owed":        "owes a refund, for which the customer may have to be found",
	"discrepancy": "is an unresolved discrepancy, for which the customer may have to be found",
	"dispute":     "is an open dispute, in which the customer is named as evidence", // part: disputes
}
