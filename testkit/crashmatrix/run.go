package crashmatrix

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/payonce/db"
	"example.com/payonce/internal/payments"
	"example.com/payonce/testkit/pgproxy"
	"example.com/payonce/testkit/world"
)

// Places are the places of all operations, each as "operation/place".
func Places() (names []string) {
	for _, o := range operations() {
		for _, p := range o.places {
			names = append(names, o.name+"/"+p.name)
		}
	}
	return names
}

// Run runs cells as sub-tests with their names:
//
//	<operation>/<place>/<Stripe>/<disturbance>/<way back>
//
// Without names it runs all, and the cells of one place and one answer of Stripe's share a world. Those that are named
// share a world by operation, one after the other, so they should be few. Run fails the test for a name that no cell has.
func Run(t *testing.T, cells ...string) {
	t.Helper()
	if len(cells) == 0 {
		runAll(t)
		return
	}
	left := slices.Clone(cells)
	for _, o := range operations() {
		var chosen []func(s *stage)
		for _, p := range o.places {
			requireStatement(t, p)
			for _, out := range p.reached(o.outcomes) {
				for _, disturbance := range p.disturbed() {
					for _, way := range o.back(p, out, disturbance) {
						name := strings.Join([]string{p.name, out.name, disturbance, way}, "/")
						n := slices.Index(left, o.name+"/"+name)
						if n < 0 {
							continue
						}
						left = slices.Delete(left, n, n+1)
						chosen = append(chosen, func(s *stage) {
							s.t.Run(name, func(t *testing.T) { s.cell(t, p, out, disturbance, way) })
						})
					}
				}
			}
		}
		if chosen == nil {
			continue
		}
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, o)
			for _, run := range chosen {
				run(s)
			}
			s.requireInvariants()
		})
	}
	require.Empty(t, left, "no cells have these names")
}

func runAll(t *testing.T) {
	t.Helper()
	for _, o := range operations() {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			for _, p := range o.places {
				requireStatement(t, p)
				for _, out := range p.reached(o.outcomes) {
					t.Run(p.name+"/"+out.name, func(t *testing.T) {
						t.Parallel()
						s := newStage(t, o)
						for _, disturbance := range p.disturbed() {
							for _, way := range o.back(p, out, disturbance) {
								t.Run(disturbance+"/"+way, func(t *testing.T) { s.cell(t, p, out, disturbance, way) })
							}
						}
						s.requireInvariants()
					})
				}
			}
		})
	}
}

// requireStatement fails the test if a place is known by a statement that there is not.
func requireStatement(t *testing.T, p place) {
	t.Helper()
	_, known := reflect.TypeFor[*db.Queries]().MethodByName(p.commit)
	require.True(t, known || p.commit == "", "no query is named %s", p.commit)
}

// stage is the world of some cells of an operation. Its cells take turns: they share the servers and the database, and
// nothing else.
type stage struct {
	t            *testing.T
	o            operation
	w            *world.World
	mailbox      *world.Mailbox
	proxy        *pgproxy.Proxy
	seam         *seam
	victim, heir *world.Local
	cells        int
}

func newStage(t *testing.T, o operation) *stage {
	t.Helper()
	w := world.New(t)
	w.WatchHolders()
	s := &stage{t: t, o: o, w: w, mailbox: w.Mailbox(), seam: &seam{operation: o.key}}
	var err error
	s.proxy, err = pgproxy.Start(w.URL)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.proxy.Close()) })
	victim := world.LocalOptions{Name: "victim"}
	victim.Database = s.proxy.URL()
	victim.Boundary = s.seam.boundary
	victim.Gateway = func(g payments.Gateway) payments.Gateway { return seamAtStripe{g, s.seam} }
	s.victim, s.heir = w.Local(victim), w.Local(world.LocalOptions{Name: "heir"})
	return s
}
