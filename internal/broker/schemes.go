package broker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/payonce/internal/outbox"
)

// Scheme is a kind of broker, chosen by the scheme of BROKER_URL.
type Scheme struct {
	Names []string // of the URL, without the colon
	Use   string   // how an error suggests it
	// Open connects, and does not fail because the broker is away. Open of this package adds "BROKER_URL: " to its error,
	// which must not contain a password.
	Open func(ctx context.Context, brokerURL string, o Options) (Broker, error)
	// Examine asks the broker, and changes nothing there.
	Examine func(ctx context.Context, brokerURL string) (State, error)
	// Since is Since of this package; nil if a broker of this kind cannot be read again.
	Since func(ctx context.Context, brokerURL string, from time.Time, each func([]outbox.Envelope) error) error
}

// schemes are the brokers of this program. The embedded server needs the NATS client, so these two stay together.
var schemes = []Scheme{
	embeddedScheme,
	natsScheme,
	cdcScheme, // part: cdc
}

// Register adds a kind of broker. A package that connects to one calls it in its init, as a driver of database/sql
// does, and a program has the brokers whose packages it imports: their client libraries are larger than the service, and
// most programs need none of them. It panics if a name is taken.
func Register(s Scheme) {
	for _, name := range s.Names {
		if _, taken := find(name); taken {
			panic(fmt.Sprintf("bug: two brokers are registered as %q", name))
		}
	}
	schemes = append(schemes, s)
}

// linkedBy are the build tags that link the packages below this one, by the schemes that they register. The tag brokers links
// all of them.
var linkedBy = map[string]string{
	"kafka": "kafka",                         // part: kafka
	"sqs":   "sqs",                           // part: sqs
	"amqp":  "rabbitmq", "amqps": "rabbitmq", // part: rabbitmq
	"kinesis": "kinesis", // part: kinesis
}

func find(name string) (Scheme, bool) {
	i := slices.IndexFunc(schemes, func(s Scheme) bool { return slices.Contains(s.Names, name) })
	if i < 0 {
		return Scheme{}, false
	}
	return schemes[i], true
}

func schemeOf(brokerURL string) (Scheme, error) {
	name, _, ok := strings.Cut(brokerURL, ":")
	if s, found := find(name); ok && found {
		return s, nil
	}
	uses := make([]string, len(schemes))
	for i, s := range schemes {
		uses[i] = s.Use
	}
	last := len(uses) - 1
	use := strings.Join(uses[:last], ", ") + " or " + uses[last]
	if !ok {
		return Scheme{}, fmt.Errorf("a scheme is missing; use %s", use)
	}
	if tag, exists := linkedBy[name]; exists {
		use += "; go build -tags " + tag + " links " + name + ":"
	}
	return Scheme{}, fmt.Errorf("unsupported scheme %q; this program has %s", name+":", use)
}
