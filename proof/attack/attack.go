package main

import (
	"context"
	"errors"
	"fmt"
)

// attack is what somebody tries against a running service, and what must hold all the same.
type attack struct {
	name  string // -only selects by it
	who   string // what they have to have
	tries string
	holds string // what must hold, as the table says it
	run   func(ctx context.Context, s *site) (seen string, err error)
}

// attacks are all of them, in the order of the table. The threat model in docs/security.md names them.
var attacks = []attack{
	authorizationForms, keysOfOthers,
	tenancyByRoute, tenancyByList, tenancyByBody,
	forgedWebhooks, replayedWebhook, brokerForgery,
	internalAddresses, internalThings, hostileAnswers, hostileProvider, hostileBroker,
	malformedBodies, malformedKeys, cardNumbers, hostilePaths,
	operatorWithoutToken, operatorFromAnotherSite, scriptsInText,
	slowClients,
	floodOfWrongKeys, floodOfReads, floodOfReplays, floodOfNewWork, floodOfInvalidBodies, floodOfRefusals,
	floodOfMistakes, floodOfBadQueries, floodOfLargeOrders, floodOfLargeLists, floodOfCheckouts, floodOfRefunds, floodOfResumes,
	floodOfStock, floodOfStockMistakes, floodOfWaiters,
	floodOfUnsignedWebhooks, floodOfHeldWebhooks, floodOfProbes, floodOfPages, floodOfPayments,
	floodOfErrors, floodOfDocuments,
	floodOfStrangers, floodOfManyProbes, floodOfManyPages, floodOfConnections,
	memory, unfinishedHeaders, unreadAnswers, halfSentBodies,
	readOnlyServer, connectionSlots, fullDisk, stolenConnection,
	secretsInOutputs, signedOutSession, escapesInTerminal,
	foreignProfiles, guessedTokens, // last: they use up the tries of the address from which the others sign in
}

// errDidNotHold is wrapped in the error of an attack that succeeded. Any other error means that it could not be tried.
var errDidNotHold = errors.New("did not hold")

func didNotHold(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errDidNotHold, fmt.Sprintf(format, args...))
}

// tried is the result of an attack.
type tried struct {
	attack
	seen string
	err  error
}

// allRefused sends every request and expects its status. It is for attacks that are many forms of one thing: the first
// form that gets through is named.
func allRefused(ctx context.Context, c client, forms []form) error {
	for _, f := range forms {
		a, err := c.send(ctx, f.method, f.path, f.body, f.header)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		if a.status != f.want {
			return didNotHold("%s: %d instead of %d: %.200s", f.name, a.status, f.want, a.body)
		}
	}
	return nil
}

// form is one way to try an attack.
type form struct {
	name, method, path, body string
	header                   map[string][]string
	want                     int
}
