package postgres

import "example.com/payonce/db"

// webhookInvariants are those of the notifier, which sends events to tenants: no published event is missing from its inbox.
var webhookInvariants = []invariant{
	{"I22", "published events reach the notifier", offenders((*db.Queries).InvariantPublishedReachesNotifier)},
}
