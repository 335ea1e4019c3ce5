// Command demo shows that every order is charged once, even when requests are
// repeated, responses are lost and processes are killed. It needs Go and nothing
// else: it starts PostgreSQL (or finds it), a Stripe simulator, a broker and two
// API processes.
//
//	go run ./cmd/demo                   three scenes in about ten seconds
//	go run ./cmd/demo -all              every scene
//	go run ./cmd/demo -run 'kill|lost'  the scenes whose titles match
//	go run ./cmd/demo -serve            the same, then keep it running, with a console in the browser
//	demo -against URL -simulator URL    play against a system that is already running
//
// Exit codes: 0 every scene went as expected and every invariant held, 1 not,
// 2 the demo could not run, 130 interrupted (Ctrl-C).
//
// # Files
//
// Start with scenes.go, the list of scenes, and one of the scenes_*.go files.
//
//   - main.go, options.go: flags, exit codes, and the order of one run.
//   - system.go, api.go, broker.go, database.go, stripe.go: what the demo runs,
//     and what it can do to each part.
//   - client.go: the shop, an HTTP client of the API.
//   - scenes.go, scenes_*.go: the scenes. scene_run.go has the steps they are made of.
//   - invariants.go, audit.go: the checks at the end.
//   - report.go: what is printed.
//   - serve.go: the addresses that -serve prints.
//   - console*.go, console/: the page with the buttons. console_actions.go has the
//     buttons, console_run.go what one press does, console_watch.go reads the
//     database and Stripe, console_board.go holds what the page shows,
//     console_http.go sends it, and console_code.go shows source files.
package main
