package mutation

import (
	"fmt"
	"regexp"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	parser "github.com/wasilibs/go-pgquery"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// change is a mutated query.
type change struct {
	what string // what is different
	text string
}

// tree is a parsed query, of which one place at a time is changed.
type tree struct {
	parsed  *pg.ParseResult
	changes []change
	err     error
}

// changes are all mutants of a query: each operand of an AND or OR left out, each
// single condition of a WHERE, ON, HAVING and FILTER left out, each arm of a CASE
// never taken, each ON CONFLICT left out or made to do nothing, each row lock left
// out or made to wait, each ORDER BY reversed.
func changes(sql string) ([]change, error) {
	parsed, err := parser.Parse(sql)
	if err != nil {
		return nil, err
	}
	t := tree{parsed: parsed}
	for _, s := range parsed.Stmts {
		t.message(s.ProtoReflect())
	}
	return t.changes, t.err
}

// emit writes the tree as it is now.
func (t *tree) emit(what string) {
	if t.err != nil {
		return
	}
	text, err := parser.Deparse(t.parsed)
	if err != nil {
		t.err = fmt.Errorf("%s: %w", what, err)
		return
	}
	t.changes = append(t.changes, change{what: what, text: lockPolicy.ReplaceAllString(text, "$1 $2")})
}

// lockPolicy is where this version of the parser's library forgets a blank:
// FOR UPDATE OF oSKIP LOCKED.
var lockPolicy = regexp.MustCompile(`( OF [\w, ]+?)(SKIP LOCKED|NOWAIT)`)

// message visits what a node holds, in the order of its fields.
func (t *tree) message(m protoreflect.Message) {
	if n, ok := m.Interface().(*pg.Node); ok {
		t.node(n)
	}
	switch n := m.Interface().(type) {
	case *pg.SelectStmt:
		t.only(&n.WhereClause, "WHERE")
		t.only(&n.HavingClause, "HAVING")
		t.locks(n)
		t.order(n)
	case *pg.UpdateStmt:
		t.only(&n.WhereClause, "WHERE")
	case *pg.DeleteStmt:
		t.only(&n.WhereClause, "WHERE")
	case *pg.InsertStmt:
		t.conflict(n)
	case *pg.JoinExpr:
		t.only(&n.Quals, "ON")
	case *pg.FuncCall:
		t.only(&n.AggFilter, "FILTER")
	}
	fields := m.Descriptor().Fields() // in a fixed order, which Range has not
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.Kind() != protoreflect.MessageKind || !m.Has(f):
		case f.IsList():
			for i := range m.Get(f).List().Len() {
				t.message(m.Get(f).List().Get(i).Message())
			}
		default:
			t.message(m.Get(f).Message())
		}
	}
}

// only leaves a condition out. Its operands, if it is a chain of AND, have
// mutants of their own instead. A constant is no condition.
func (t *tree) only(where **pg.Node, clause string) {
	if *where == nil || isAnd(*where) || (*where).GetAConst() != nil { // ON true
		return
	}
	t.neutral(where, pg.BoolExprType_OR_EXPR, clause+" "+expression(*where)+" left out")
}

func isAnd(n *pg.Node) bool { return n.GetBoolExpr().GetBoolop() == pg.BoolExprType_AND_EXPR }

// node visits the conditions that are nodes by themselves.
func (t *tree) node(n *pg.Node) {
	if b := n.GetBoolExpr(); b != nil && b.Boolop != pg.BoolExprType_NOT_EXPR {
		word, neutral := "AND", pg.BoolExprType_OR_EXPR
		if b.Boolop == pg.BoolExprType_OR_EXPR {
			word, neutral = "OR", pg.BoolExprType_AND_EXPR
		}
		for i := range b.Args {
			t.neutral(&b.Args[i], neutral, word+" "+expression(b.Args[i])+" left out")
		}
	}
	if c := n.GetCaseExpr(); c != nil && c.Arg == nil {
		for _, arm := range c.Args {
			when := arm.GetCaseWhen()
			t.neutral(&when.Expr, pg.BoolExprType_AND_EXPR, "CASE WHEN "+expression(when.Expr)+" never")
		}
	} else if c != nil && len(c.Args) > 1 {
		args := c.Args
		for i := range args {
			c.Args = append(append([]*pg.Node{}, args[:i]...), args[i+1:]...)
			t.emit("CASE " + expression(c.Arg) + " WHEN " + expression(args[i].GetCaseWhen().Expr) + " never")
		}
		c.Args = args
	}
}

// neutral makes an operand count for nothing: x OR true, x AND false.
func (t *tree) neutral(at **pg.Node, op pg.BoolExprType, what string) {
	was := *at
	*at = pg.MakeBoolExprNode(op, []*pg.Node{was, boolean(op == pg.BoolExprType_OR_EXPR)}, 0)
	t.emit(what)
	*at = was
}

func boolean(v bool) *pg.Node {
	return &pg.Node{Node: &pg.Node_AConst{AConst: &pg.A_Const{Val: &pg.A_Const_Boolval{Boolval: &pg.Boolean{Boolval: v}}}}}
}

func (t *tree) locks(s *pg.SelectStmt) {
	if len(s.LockingClause) == 0 {
		return
	}
	was := s.LockingClause
	s.LockingClause = nil
	t.emit("row lock left out")
	s.LockingClause = was
	for _, c := range was {
		l := c.GetLockingClause()
		if policy := l.WaitPolicy; policy != pg.LockWaitPolicy_LockWaitBlock {
			l.WaitPolicy = pg.LockWaitPolicy_LockWaitBlock
			t.emit("row lock waits instead of " + strings.TrimPrefix(policy.String(), "LockWait"))
			l.WaitPolicy = policy
		}
	}
}

// order reverses what the rows are ordered by: all of it, since the second
// column decides only where the first is equal.
func (t *tree) order(s *pg.SelectStmt) {
	if len(s.SortClause) == 0 {
		return
	}
	was := s.SortClause
	var by []string
	s.SortClause = nil
	for _, n := range was {
		sort := proto.Clone(n.GetSortBy()).(*pg.SortBy)
		by = append(by, expression(sort.Node))
		if sort.SortbyDir == pg.SortByDir_SORTBY_DESC {
			sort.SortbyDir = pg.SortByDir_SORTBY_ASC
		} else {
			sort.SortbyDir = pg.SortByDir_SORTBY_DESC
		}
		s.SortClause = append(s.SortClause, &pg.Node{Node: &pg.Node_SortBy{SortBy: sort}})
	}
	t.emit("ORDER BY " + strings.Join(by, ", ") + " reversed")
	s.SortClause = was
}

func (t *tree) conflict(s *pg.InsertStmt) {
	on := s.OnConflictClause
	if on == nil {
		return
	}
	if on.Action == pg.OnConflictAction_ONCONFLICT_NOTHING {
		s.OnConflictClause = nil
		t.emit("ON CONFLICT DO NOTHING left out")
		s.OnConflictClause = on
		return
	}
	if on.WhereClause == nil {
		on.WhereClause = boolean(false)
		t.emit("ON CONFLICT DO UPDATE does nothing")
		on.WhereClause = nil
		return
	}
	t.neutral(&on.WhereClause, pg.BoolExprType_AND_EXPR, "ON CONFLICT DO UPDATE does nothing")
	t.only(&on.WhereClause, "ON CONFLICT DO UPDATE WHERE")
}

// expression is SQL on one line.
func expression(n *pg.Node) string {
	target := &pg.Node{Node: &pg.Node_ResTarget{ResTarget: &pg.ResTarget{Val: n}}}
	s := &pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: &pg.SelectStmt{TargetList: []*pg.Node{target},
		LimitOption: pg.LimitOption_LIMIT_OPTION_DEFAULT, Op: pg.SetOperation_SETOP_NONE}}}
	text, err := parser.Deparse(&pg.ParseResult{Stmts: []*pg.RawStmt{{Stmt: s}}})
	if err != nil {
		return "an expression"
	}
	return strings.TrimPrefix(oneLine(text), "SELECT ")
}
