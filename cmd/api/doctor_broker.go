package main

import (
	"context"
	"strings"

	"example.com/payonce/internal/broker"
)

// broker examines what BROKER_URL names. Events wait in the database while it is away.
func (p patient) broker(ctx context.Context, d *diagnosis) {
	e := environment{getenv: p.getenv}
	brokerURL := e.text("BROKER_URL", defaultBroker)
	st, err := broker.Examine(ctx, brokerURL)
	if err != nil {
		d.say(bad, "broker.reachable", "%w; see BROKER_URL; until then events wait in the outbox, and nothing is lost", err)
		d.notAsked("the broker is away", "broker.stream")
		return
	}
	// part: cdc {
	if brokerURL == "cdc:" {
		p.cdc(ctx, d)
		return
	}
	// part: cdc }
	d.say(healthy, "broker.reachable", "%s", st.Reached)
	switch {
	case len(st.Loses) > 0:
		d.say(bad, "broker.stream", "%s: events that were published can be lost; %s",
			strings.Join(st.Loses, ", "), mendStream)
	case len(st.Differs) > 0:
		d.say(warning, "broker.stream", "%s; %s", strings.Join(st.Differs, ", "), mendStream)
	case st.Missing:
		d.say(healthy, "broker.stream", "none yet: the service makes it before its first event")
	case st.Stream == "":
		d.say(healthy, "broker.stream", "of the service's own process, which sets it at every start")
	default:
		d.say(healthy, "broker.stream", "%s", st.Stream)
	}
}

const mendStream = "set it at the broker; of a JetStream stream the service sets what can be changed when it starts"
