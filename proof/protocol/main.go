// Command protocol explores the model of the payment protocol: every interleaving of two processes, Stripe, webhooks,
// browsers, people and faults, within the bounds of each scope.
//
//	go run -C proof ./protocol [-scope "two payments"] [-depth 40] [-more 1]
//	go run -C proof ./protocol -without close-first,adoption [-only I24]
//	go run -C proof ./protocol -write
//
// It exits 0 only if no invariant is broken. -without leaves rules of the protocol out, and prints the shortest
// history that breaks an invariant then, or the one that -only names.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"example.com/payonce/proof/internal/inventory"
	"example.com/payonce/proof/internal/protocol"
)

var errBroken = errors.New("an invariant is broken")

func main() {
	var o options
	flag.StringVar(&o.scope, "scope", "", "one scope; empty: all, or the one in which the rule is missed")
	flag.IntVar(&o.depth, "depth", 0, "the longest history; 0: until nothing new is found")
	flag.IntVar(&o.more, "more", 0, "faults beyond those of each scope")
	flag.StringVar(&o.without, "without", "", "rules to leave out, with commas between them: "+
		strings.Join(protocol.Names(), ", "))
	flag.StringVar(&o.only, "only", "", "the invariant to look for; empty: any")
	flag.BoolVar(&o.write, "write", false, "write the results into "+protocol.Page)
	flag.Parse()
	err := o.run()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "protocol:", err)
	if errors.Is(err, errBroken) {
		os.Exit(1)
	}
	os.Exit(2)
}

type options struct {
	scope, without, only string
	depth, more          int
	write                bool
}

func (o options) run() error {
	if o.write && (o.scope != "" || o.without != "" || o.only != "" || o.depth != 0 || o.more != 0) {
		return errors.New("-write wants all scopes, all rules and no other bounds")
	}
	rule, scopes, err := o.chosen()
	if err != nil {
		return err
	}
	only, err := protocol.Numbered(o.only)
	if err != nil {
		return err
	}
	var results []protocol.Result
	for _, s := range scopes {
		s.Faults += uint8(o.more)
		m, err := protocol.New(s, rule)
		if err != nil {
			return err
		}
		m.Only = only
		r := protocol.Explore(m, o.depth)
		fmt.Println(r)
		results = append(results, r)
		if r.Broken != 0 {
			return fmt.Errorf("%w: %s", errBroken, r.Broken)
		}
	}
	if !o.write {
		return nil
	}
	return write(results)
}

// chosen are the rules that are left out and the scopes that are explored.
func (o options) chosen() (without protocol.Rule, scopes []protocol.Scope, err error) {
	scope := o.scope
	for name := range strings.SplitSeq(o.without, ",") {
		if name == "" {
			continue
		}
		left, err := protocol.Named(name)
		if err != nil {
			return 0, nil, err
		}
		fmt.Printf("without %s: %s\n", left.Name, left.What)
		if without |= left.Rule; scope == "" {
			scope = left.Scope
		}
	}
	if scope == "" {
		return without, protocol.Scopes, nil
	}
	i := slices.IndexFunc(protocol.Scopes, func(s protocol.Scope) bool { return s.Name == scope })
	if i < 0 {
		var names []string
		for _, s := range protocol.Scopes {
			names = append(names, strconv.Quote(s.Name))
		}
		return 0, nil, fmt.Errorf("there is no scope %q, but %s", scope, strings.Join(names, ", "))
	}
	return without, protocol.Scopes[i : i+1], nil
}

// write finds the shortest history without each rule, too, and writes everything into the page.
func write(results []protocol.Result) error {
	without, err := protocol.WithoutEach()
	if err != nil {
		return err
	}
	root, err := inventory.Root()
	if err != nil {
		return err
	}
	path := filepath.Join(root, filepath.FromSlash(protocol.Page))
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	written, err := protocol.Write(string(page), results, without)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(written), 0o644)
}
