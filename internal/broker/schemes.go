package broker

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// scheme is a kind of broker, chosen by the scheme of BROKER_URL.
type scheme struct {
	names []string // of the URL, without the colon
	use   string   // how an error suggests it
	open  func(ctx context.Context, brokerURL string, o Options) (Broker, error)
	// examine asks the broker, and changes nothing there.
	examine func(ctx context.Context, brokerURL string) (State, error)
}

// schemes is the table of brokers. To leave one out, delete its line and its files: nothing else imports its client
// library. The embedded server needs the NATS client, so these two stay together.
var schemes = []scheme{
	embeddedScheme,
	natsScheme,
	kafkaScheme,   // part: kafka
	sqsScheme,     // part: sqs
	rabbitScheme,  // part: rabbitmq
	kinesisScheme, // part: kinesis
	cdcScheme,     // part: cdc
}

func schemeOf(brokerURL string) (scheme, error) {
	name, _, ok := strings.Cut(brokerURL, ":")
	for _, s := range schemes {
		if ok && slices.Contains(s.names, name) {
			return s, nil
		}
	}
	uses := make([]string, len(schemes))
	for i, s := range schemes {
		uses[i] = s.use
	}
	last := len(uses) - 1
	use := strings.Join(uses[:last], ", ") + " or " + uses[last]
	if !ok {
		return scheme{}, fmt.Errorf("a scheme is missing; use %s", use)
	}
	return scheme{}, fmt.Errorf("unsupported scheme %q; use %s", name+":", use)
}
