package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// writeReadme replaces the README of this project, whose links lead to files that a starter does not have. With the
// part proof all of them are there, and the README stays.
func (s starter) writeReadme() error {
	if s.parts["proof"] {
		return nil
	}
	var gives strings.Builder
	for _, p := range parts {
		if s.parts[p.name] {
			fmt.Fprintf(&gives, "- **%s**: %s\n", p.name, p.gives)
		}
	}
	if gives.Len() == 0 {
		gives.WriteString("- none: orders, payments, refunds, cancels, idempotency keys, events to one broker, " +
			"webhooks from Stripe\n")
	}
	docs := "The API's contract is internal/http/openapi.yaml, and tests compare every response with it"
	if s.parts["docs"] {
		docs = "The API's documentation, with requests to copy, is at http://127.0.0.1:8080/docs"
	}
	text := strings.NewReplacer("MODULE", s.module, "NAME", path.Base(s.module), "PARTS", gives.String(), "DOCS", docs).
		Replace(readme)
	return os.WriteFile(filepath.Join(s.to, "README.md"), []byte(text), 0o644)
}

const readme = `# NAME

Orders and payments over Stripe. A request that is sent again, or whose process is killed, charges once.

Made with cmd/new of ` + ours + `. Parts:

PARTS
## Run it

` + "```sh" + `
createdb -h 127.0.0.1 -U postgres NAME  # PostgreSQL runs on this machine; if it asks for a password, export PGPASSWORD first
go run ./cmd/stripesim -keys '*' &      # a simulator of Stripe, at 127.0.0.1:12111
export DATABASE_URL=postgres://postgres@127.0.0.1:5432/NAME STRIPE_SECRET_KEY=sk_test_local
export STRIPE_API_BASE=http://127.0.0.1:12111
go run ./cmd/api migrate
go run ./cmd/api tenant create acme     # prints the API key
go run ./cmd/api
` + "```" + `

DOCS; the settings are in .env.example.

## Change it

| folder | what it has |
| --- | --- |
| cmd/api | the service: settings, loops, and how the packages are wired |
| internal/payments | orders, payments, refunds |
| internal/idempotency, outbox, inbox | idempotency keys, events sent and received; independent of payments |
| internal/http | the API |
| db | migrations, queries, and the Go that sqlc generates (make generate) |
| client | a client in Go for the programs that call the service, a module of its own: it keeps each key in a journal |
| testkit, stripesim | what the tests use; the simulator of Stripe is a module of its own (go test -C stripesim ./...) |

docs/add-an-operation.md adds a request that charges a card. docs/operations.md is the runbook that the alerts refer to.
Both describe ` + ours + ` with all its parts: where they name one that is not above, skip it.

` + "`go test ./...`" + ` needs PostgreSQL's programs, or Docker, or an internet connection to download them once.
`
