package idemcheck

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Profile describes an API. Texts may contain {{name}}: a variable that a step of Setup has captured, or {{n}}, a number
// that is new for each intent.
type Profile struct {
	Name string `yaml:"name"`
	// Headers of every request, such as Authorization.
	Headers map[string]string `yaml:"headers"`
	// OtherTenant are the headers of another tenant; none: scope by tenant is not asked.
	OtherTenant map[string]string `yaml:"other_tenant"`
	Key         KeyPromise        `yaml:"key"`
	// Setup makes what an intent needs, such as an order to pay.
	Setup []Step `yaml:"setup"`
	// Intent is the request whose effect must happen once.
	Intent Request `yaml:"intent"`
	// OtherBody is another valid body of the intent, for a mismatch. Empty: not asked.
	OtherBody string `yaml:"other_body"`
	// Refused is a body that the API refuses for good, with RefusedStatus. Empty: not asked.
	Refused       string `yaml:"refused_body"`
	RefusedStatus int    `yaml:"refused_status"`
	// OtherEndpoint is a request to another endpoint that needs a key. Empty path: not asked.
	OtherEndpoint Endpoint `yaml:"other_endpoint"`
	// Safe is a request that changes nothing, on which a key is ignored. Empty path: not asked.
	Safe    Request  `yaml:"safe"`
	Effects Effects  `yaml:"effects"`
	Status  Statuses `yaml:"status"`
	Replay  Replay   `yaml:"replay"`
	// Problems: what is refused because of its key has the media type application/problem+json.
	Problems bool `yaml:"problems"`
	// Faults are ways to make the API fail. Empty: not asked.
	Faults []Fault `yaml:"faults"`
	// Expire has stored responses expire. Nil: not asked.
	Expire *Request `yaml:"expire"`
	// Concurrent is how many duplicates are sent at once. Default 100, at most 1000.
	Concurrent int `yaml:"concurrent"`
	// Within is how long an intent may take to be final. Default 30 s, at most 5 min.
	Within time.Duration `yaml:"within"`
	// Settle is how long the count of effects must not change before it is believed: effects may come after the response.
	// Default 500 ms, at most 1 min.
	Settle time.Duration `yaml:"settle"`
}

// KeyPromise is what the API says of the key itself.
type KeyPromise struct {
	Header   string `yaml:"header"`   // default Idempotency-Key
	Optional bool   `yaml:"optional"` // a request without one is executed
	Longest  int    `yaml:"longest"`  // characters; 0: not asked
	Prefix   string `yaml:"prefix"`   // of every key that is made here
	UUID     bool   `yaml:"uuid"`     // every key is a UUID
	// Invalid are keys that are refused, as they stand in the header.
	Invalid []string `yaml:"invalid"`
	// Syntax is how a key stands in the header: bare; quoted, as the string of a structured field that the draft's section
	// 2.1 asks for, and a bare key is refused; or both, which are one key. Default bare, and nothing is asked.
	Syntax string `yaml:"syntax"`
}

// The syntaxes.
const (
	bare   = "bare"
	quoted = "quoted"
	both   = "both"
)

// Request is one request. Path is relative to the address that is checked, or a whole URL.
type Request struct {
	Method      string            `yaml:"method"` // default POST
	Path        string            `yaml:"path"`
	Body        string            `yaml:"body"`
	ContentType string            `yaml:"content_type"` // default application/json
	Headers     map[string]string `yaml:"headers"`
}

// Step is a request before an intent. It gets a key of its own, unless it has one.
type Step struct {
	Request `yaml:",inline"`
	// Capture names members of the JSON response, by a path of names and indexes: data.0.id.
	Capture map[string]string `yaml:"capture"`
}

// Endpoint is a request to another endpoint than the intent's.
type Endpoint struct {
	Request `yaml:",inline"`
	// Effects counts what it does. Default: as for the intent.
	Effects Effects `yaml:"effects"`
	// Refused: a key that the intent has used is refused here, with status.mismatch. Otherwise it is another key here.
	Refused bool `yaml:"refused"`
}

// Effects is how often the effect of an intent has happened.
type Effects struct {
	URL string `yaml:"url"`
	// Count is the path to a number, or to a list, whose length counts. Empty: the whole response.
	Count string `yaml:"count"`
	// Command prints the number.
	Command []string `yaml:"command"`
	// Timeout bounds one count. Default 5 s, at most 1 min.
	Timeout time.Duration `yaml:"timeout"`
}

// Statuses are the responses that are promised.
type Statuses struct {
	Success  []int `yaml:"success"`   // default any 2xx but 202
	Pending  []int `yaml:"pending"`   // default 202, unless that is success; the same request is sent again until it is final
	Missing  int   `yaml:"missing"`   // default 400
	Invalid  int   `yaml:"invalid"`   // default 400
	Mismatch int   `yaml:"mismatch"`  // default 422
	InFlight []int `yaml:"in_flight"` // default 409; duplicates get these, pending if it is named, or the first response
	Again    []int `yaml:"again"`     // default 429 and 5xx: the same request may be sent again
	Expired  int   `yaml:"expired"`   // 0: after expiry the request may be executed again
}

// Replay is how a replay shows.
type Replay struct {
	Same   []string          `yaml:"same"`   // headers that are those of the first response
	Marker map[string]string `yaml:"marker"` // headers of a replay that the first response lacks
}

// Fault is a request that makes the next intent fail, before or after its effect.
type Fault struct {
	Name    string `yaml:"name"`
	Request `yaml:",inline"`
	// Status of the failure, if it is the response that is kept, which the draft allows. 0: a retry succeeds.
	Status int `yaml:"status"`
}

const (
	concurrentMax = 1000
	withinMax     = 5 * time.Minute
	settleMax     = time.Minute
	timeoutMax    = time.Minute

	timeoutDefault = 5 * time.Second
)

// Parse reads a profile. An unknown member is an error that says its line.
func Parse(text []byte) (Profile, error) {
	p := Profile{Concurrent: 100, Within: 30 * time.Second, Settle: 500 * time.Millisecond}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&p); err != nil && !errors.Is(err, io.EOF) {
		return p, fmt.Errorf("the profile: %w", err)
	}
	if err := decoder.Decode(new(any)); !errors.Is(err, io.EOF) {
		return p, errors.New("the profile: it must be one YAML document")
	}
	p.fill()
	return p, p.check()
}

func (p *Profile) fill() {
	if p.Key.Header == "" {
		p.Key.Header = "Idempotency-Key"
	}
	p.Intent.fill(http.MethodPost)
	p.Safe.fill(http.MethodGet)
	p.OtherEndpoint.fill(http.MethodPost)
	p.Effects.fill()
	if !p.OtherEndpoint.Effects.named() {
		p.OtherEndpoint.Effects = p.Effects
	}
	p.OtherEndpoint.Effects.fill()
	if p.Key.Syntax == "" {
		p.Key.Syntax = bare
	}
	for i := range p.Setup {
		p.Setup[i].fill(http.MethodPost)
	}
	for i := range p.Faults {
		p.Faults[i].fill(http.MethodPost)
	}
	if p.Expire != nil {
		p.Expire.fill(http.MethodPost)
	}
	s := &p.Status
	if s.Missing == 0 {
		s.Missing = http.StatusBadRequest
	}
	if s.Invalid == 0 {
		s.Invalid = http.StatusBadRequest
	}
	if s.Mismatch == 0 {
		s.Mismatch = http.StatusUnprocessableEntity
	}
	if len(s.InFlight) == 0 {
		s.InFlight = []int{http.StatusConflict}
	}
}

func (r *Request) fill(method string) {
	if r.Method == "" {
		r.Method = method
	}
	if r.ContentType == "" {
		r.ContentType = "application/json"
	}
}

func (e *Effects) fill() {
	if e.Timeout == 0 {
		e.Timeout = timeoutDefault
	}
}

func (e *Effects) named() bool { return e.URL != "" || len(e.Command) > 0 }

func (e *Effects) check(where string) error {
	switch {
	case e.URL != "" && len(e.Command) > 0:
		return fmt.Errorf("the profile: %s are counted at a url or by a command, not both", where)
	case e.Timeout < 0 || e.Timeout > timeoutMax:
		return fmt.Errorf("the profile: %s.timeout must be at most %s", where, timeoutMax)
	}
	return nil
}

func (p *Profile) check() error {
	switch {
	case p.Name == "":
		return errors.New("the profile: name is missing")
	case p.Intent.Path == "":
		return errors.New("the profile: intent.path is missing")
	case p.Concurrent < 2 || p.Concurrent > concurrentMax:
		return fmt.Errorf("the profile: concurrent must be from 2 to %d", concurrentMax)
	case p.Within <= 0 || p.Within > withinMax:
		return fmt.Errorf("the profile: within must be at most %s", withinMax)
	case p.Settle <= 0 || p.Settle > settleMax:
		return fmt.Errorf("the profile: settle must be at most %s", settleMax)
	case p.Refused != "" && p.RefusedStatus == 0:
		return errors.New("the profile: refused_body needs refused_status")
	case p.Key.UUID && p.Key.Prefix != "":
		return errors.New("the profile: a key that is a UUID has no prefix")
	case !slices.Contains([]string{bare, quoted, both}, p.Key.Syntax):
		return fmt.Errorf("the profile: key.syntax must be %s, %s or %s", bare, quoted, both)
	}
	return errors.Join(p.Effects.check("effects"), p.OtherEndpoint.Effects.check("other_endpoint.effects"), p.variables())
}

// variable matches what looks like one. A command may have others' braces, such as {{.Names}}.
var variable = regexp.MustCompile(`\{\{\s*[A-Za-z0-9_-]+\s*\}\}`)

// variables checks that every variable has a value. One that is misspelt would stay as it is: all intents were one thing,
// and the API would be called broken.
func (p *Profile) variables() error {
	known := []string{"{{n}}"}
	check := func(where string, texts ...string) error {
		for _, text := range texts {
			for _, name := range variable.FindAllString(text, -1) {
				if !slices.Contains(known, name) {
					return fmt.Errorf("the profile: %s has %s, which is no variable; there are %s", where, name,
						strings.Join(known, ", "))
				}
			}
		}
		return nil
	}
	request := func(where string, r Request) error {
		return check(where, append(slices.Sorted(maps.Values(r.Headers)), r.Path, r.Body)...)
	}
	var errs []error
	for i, step := range p.Setup {
		errs = append(errs, request(fmt.Sprintf("setup %d", i+1), step.Request))
		for _, name := range slices.Sorted(maps.Keys(step.Capture)) {
			known = append(known, "{{"+name+"}}")
		}
	}
	errs = append(errs,
		request("intent", p.Intent), check("other_body", p.OtherBody), check("refused_body", p.Refused),
		request("other_endpoint", p.OtherEndpoint.Request), request("safe", p.Safe),
		check("headers", slices.Sorted(maps.Values(p.Headers))...),
		check("other_tenant", slices.Sorted(maps.Values(p.OtherTenant))...))
	for _, fault := range p.Faults {
		errs = append(errs, request(fmt.Sprintf("the fault %q", fault.Name), fault.Request))
	}
	if p.Expire != nil {
		errs = append(errs, request("expire", *p.Expire))
	}
	for where, e := range map[string]Effects{"effects": p.Effects, "other_endpoint.effects": p.OtherEndpoint.Effects} {
		texts := append([]string{e.URL}, e.Command...)
		errs = append(errs, check(where, texts...))
		if e.named() && !variable.MatchString(strings.Join(texts, " ")) {
			errs = append(errs, fmt.Errorf("the profile: %s has no variable, such as {{n}}: what is counted must be of one intent", where))
		}
	}
	return errors.Join(errs...)
}

// expand puts variables into a text.
func expand(text string, variables map[string]string) string {
	for name, value := range variables {
		text = strings.ReplaceAll(text, "{{"+name+"}}", value)
	}
	return text
}
