package main

import (
	"context"

	"example.com/payonce/proof/internal/plot"
)

const (
	aloneBare      = "one client alone, neither"
	alonePolicies  = "one client alone, policies"
	aloneEncrypted = "one client alone, policies and encryption"
	freshBare      = "32 clients, neither"
	freshPolicies  = "32 clients, policies"
	freshEncrypted = "32 clients, policies and encryption"
	againBare      = "replays, neither"
	againPolicies  = "replays, policies"
	againEncrypted = "replays, policies and encryption"
)

// benchKey encrypts what a service stores. Anybody can read it here.
const benchKey = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// protectionGroup is what an operator may leave out: the policies of the tables, which do not bind the server's own user,
// and the encryption of what is stored. The services differ in nothing else, and each has a database of its own.
func (b *bench) protectionGroup() group {
	var bare, policies, encrypted *bench
	pays := func(which **bench, clients int) func(context.Context) (sample, error) {
		return func(ctx context.Context) (sample, error) { return (*which).as(clients).pays(ctx) }
	}
	again := func(which **bench) func(context.Context) (sample, error) {
		return func(ctx context.Context) (sample, error) { return (*which).replays(ctx) }
	}
	return group{
		name:    inProtection,
		clients: true,
		says: func() string {
			return "Neither: the service's user is the server's, whom no policy binds, and there is no DATA_KEY. Policies: " +
				"its user is payonce_service, as in Compose. Encryption: with a DATA_KEY, compared with the policies alone. " +
				"The setting that names a request's tenant is sent by all three. A gateway that answers at once."
		},
		prepare: func(ctx context.Context) error {
			for _, one := range []struct {
				service   **bench
				role, key string
			}{{&bare, "", ""}, {&policies, "payonce_service", ""}, {&encrypted, "payonce_service", benchKey}} {
				s := b.s
				s.role, s.dataKey, s.connections = one.role, one.key, 32
				service, err := b.another(ctx, s)
				if err != nil {
					return err
				}
				*one.service = service
				if err := service.answerSome(ctx); err != nil {
					return err
				}
			}
			return nil
		},
		finish: func() {
			for _, one := range []*bench{bare, policies, encrypted} {
				if one != nil {
					one.close()
				}
			}
		},
		list: []*measurement{
			{name: aloneBare, kind: plot.Floor, unit: "payments/s", timed: true, run: pays(&bare, 1)},
			{name: alonePolicies, unit: "payments/s", floor: aloneBare, timed: true, run: pays(&policies, 1)},
			{name: aloneEncrypted, unit: "payments/s", floor: alonePolicies, timed: true, run: pays(&encrypted, 1)},
			{name: freshBare, kind: plot.Floor, unit: "payments/s", timed: true, run: pays(&bare, 32)},
			{name: freshPolicies, unit: "payments/s", floor: freshBare, timed: true, run: pays(&policies, 32)},
			{name: freshEncrypted, unit: "payments/s", floor: freshPolicies, timed: true, run: pays(&encrypted, 32)},
			{name: againBare, kind: plot.Floor, unit: "answers/s", timed: true, run: again(&bare)},
			{name: againPolicies, unit: "answers/s", floor: againBare, timed: true, run: again(&policies)},
			{name: againEncrypted, unit: "answers/s", floor: againPolicies, timed: true, run: again(&encrypted)},
		},
	}
}
