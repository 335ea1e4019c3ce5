package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"unicode"

	"example.com/payonce/stripesim"
)

// unprintable moves the cursor up and clears a line, sets the terminal's title, is a C1 control and reverses text.
const unprintable = "ord_\x1b[1A\x1b[2K\x1b]0;ok\x07\u009b2J\u202e"

// escapesInTerminal: an object at Stripe says of itself what its metadata says, a tenant's name what somebody typed.
var escapesInTerminal = attack{
	name: "escapes in the terminal", who: "who can edit an object at Stripe, or whose text an operator pastes",
	tries: "escape sequences, C1 and bidirectional controls in a charge's metadata and an endpoint's address at Stripe, in names in the database, and in each argument of the command line",
	holds: "what every command prints about them is printable, as a table and as JSON; no such argument is stored",
	run: func(ctx context.Context, s *site) (string, error) {
		if err := s.placeUnprintable(ctx); err != nil {
			return "", err
		}
		const mark = "[2K" // of the text, which is printed escaped
		t := s.attacker.id
		shown := 0
		for _, try := range []struct {
			args  []string
			shows string // what its output must contain, or it was not about the text
		}{
			{[]string{"audit"}, mark},
			{[]string{"audit", "-json"}, mark},
			{[]string{"doctor"}, `\u202e`},
			{[]string{"doctor", "-json"}, `\u202e`},
			{[]string{"tenant", "list"}, mark},
			{[]string{"tenant", "key", "list", t}, mark},
			{[]string{unprintable}, ""},
			{[]string{"tenant", unprintable}, ""},
			{[]string{"tenant", "create", unprintable}, ""},
			{[]string{"tenant", "disable", unprintable}, ""},
			{[]string{"tenant", "key", "list", unprintable}, ""},
			{[]string{"tenant", "key", "create", t, "-name", unprintable}, ""},
			{[]string{"tenant", "key", "create", t, "-expires", unprintable}, ""},
			{[]string{"tenant", "key", "revoke", t, unprintable}, ""},
			{[]string{"tenant", "notify", t, "https://endpoint.example/" + unprintable}, ""},
			{[]string{"tenant", "erase-customer", t, unprintable}, ""},
			{[]string{"tenant", "erase-customer", t, "nobody", "-by", unprintable}, ""},
			{[]string{"relay", "replay", "-since", unprintable}, ""},
			{[]string{"audit", "-since", unprintable}, ""},
			{[]string{"doctor", "-" + unprintable}, ""},
			{[]string{"migrate", unprintable}, ""},
		} {
			command := exec.CommandContext(ctx, s.api.Program, try.args...)
			command.Env = append([]string{"PATH=" + os.Getenv("PATH")}, s.api.Env...)
			out, err := command.CombinedOutput()
			if exited := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exited) {
				return "", fmt.Errorf("api %q: %w", try.args, err)
			}
			if len(out) == 0 || !strings.Contains(string(out), try.shows) {
				return "", fmt.Errorf("api %q does not show the text: %.300s", try.args, out)
			}
			if i := strings.IndexFunc(string(out), func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }); i >= 0 {
				return "", didNotHold("api %q prints %q", try.args, out[i:min(i+8, len(out))])
			}
			if err == nil && slices.Contains(try.args, unprintable) {
				return "", didNotHold("api %q takes it: %.300s", try.args, out)
			}
			shown++
		}
		return fmt.Sprintf("%d outputs, each printable; none of the arguments is taken", shown), nil
	},
}

// placeUnprintable puts the text where others than the service write: at Stripe, and into names in the database, as an
// older release or a session of psql could have.
func (s *site) placeUnprintable(ctx context.Context) error {
	form := url.Values{"amount": {"1000"}, "currency": {"usd"}, "payment_method_types[]": {"card"},
		"payment_method": {"pm_card_visa"}, "confirm": {"true"}, "metadata[tenant_id]": {s.victim.id}, "metadata[order_id]": {unprintable}}
	a, err := client{base: s.stripe, key: stripesim.DefaultKey}.send(ctx, "POST", "/v1/payment_intents", form.Encode(),
		map[string][]string{"Content-Type": {"application/x-www-form-urlencoded"}, "Idempotency-Key": {"escapes"}})
	if err != nil {
		return err
	}
	if a.status != http.StatusOK {
		return fmt.Errorf("make a charge at Stripe: %d", a.status)
	}
	if _, err := s.sim.AddWebhookEndpoint(stripesim.DefaultKey, "http://127.0.0.1:9/\u009b2J\u202e/v1/webhooks/stripe", webhookSecret,
		"charge.dispute.closed"); err != nil {
		return err
	}
	for _, update := range []string{"UPDATE tenants SET name = $1 WHERE id = $2", "UPDATE api_keys SET name = $1 WHERE tenant_id = $2"} {
		if tag, err := s.pool.Raw().Exec(ctx, update, unprintable, s.attacker.id); err != nil {
			return fmt.Errorf("%s: %w", update, err)
		} else if tag.RowsAffected() == 0 {
			return fmt.Errorf("%s: no row", update)
		}
	}
	return nil
}
