package mutation

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Packages are those whose conditions have mutants: what moves money, the
// patterns below it, and the batches in which both are sent.
var Packages = []string{
	"payments", "paging", "idempotency", "outbox", "inbox", "checkout", "disputes", "reconcile", "compare",
	"postgres", "broker",
}

// filesOf are the files with mutants of a package of which others have none: they connect, migrate and measure, which
// tests of the other packages do not miss.
var filesOf = map[string][]string{
	"postgres": {"batched.go", "pool.go"},
	"broker":   {"jetstream.go", "jetstream_batch.go"},
}

const switchImport = "example.com/payonce/internal/mutantswitch"

// condition finds the mutants of one file and rewrites it.
type conditions struct {
	files  *token.FileSet
	file   *ast.File
	name   string // path from the root
	unit   string
	source []byte
	next   func() int // the next number

	function string
	mutants  []Mutant
	edits    []edit
	done     map[ast.Expr]bool // already part of a condition
}

// edit puts text before or after an expression, or instead of some bytes.
type edit struct {
	at      int
	text    string
	instead int
	// rank orders edits at one place: what closes comes before what opens, an outer
	// opening before an inner one, an inner closing before an outer one.
	rank int
}

// goMutants finds the mutants of the packages and writes their instrumented
// files into dir. Numbers come from next. It returns what replaces which file.
func goMutants(root, dir string, next func() int) ([]Mutant, map[string]string, error) {
	var all []Mutant
	replace := map[string]string{}
	for _, pkg := range Packages {
		names, err := filepath.Glob(filepath.Join(root, "internal", pkg, "*.go"))
		if err != nil {
			return nil, nil, err
		}
		slices.Sort(names)
		for _, name := range names {
			files, some := filesOf[pkg]
			if strings.HasSuffix(name, "_test.go") || some && !slices.Contains(files, filepath.Base(name)) {
				continue
			}
			found, text, err := instrument(root, name, next)
			if err != nil {
				return nil, nil, err
			}
			if len(found) == 0 {
				continue
			}
			all = append(all, found...)
			to := filepath.Join(dir, pkg+"_"+filepath.Base(name))
			if err := os.WriteFile(to, text, 0o600); err != nil {
				return nil, nil, err
			}
			replace[name] = to
		}
	}
	unique(all)
	return all, replace, nil
}

// instrument returns the mutants of a file, and its text with the switches.
func instrument(root, name string, next func() int) ([]Mutant, []byte, error) {
	source, err := os.ReadFile(name)
	if err != nil {
		return nil, nil, err
	}
	rel, err := filepath.Rel(root, name)
	if err != nil {
		return nil, nil, err
	}
	c := conditions{files: token.NewFileSet(), name: filepath.ToSlash(rel), source: source, next: next,
		done: map[ast.Expr]bool{}}
	c.unit = path.Base(path.Dir(c.name))
	if c.file, err = parser.ParseFile(c.files, name, source, parser.SkipObjectResolution); err != nil {
		return nil, nil, err
	}
	for _, d := range c.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			c.function = functionName(d)
			ast.Inspect(d, c.visit)
		case *ast.GenDecl:
			if d.Tok == token.VAR {
				c.function = "var"
				ast.Inspect(d, c.visit)
			}
		}
	}
	if len(c.mutants) == 0 {
		return nil, source, nil
	}
	c.edits = append(c.edits, c.importSwitch(c.file))
	return c.mutants, c.apply(), nil
}

func functionName(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return d.Name.Name
	}
	t := d.Recv.List[0].Type
	if p, ok := t.(*ast.StarExpr); ok {
		t = p.X
	}
	switch i := t.(type) { // of a generic type
	case *ast.IndexExpr:
		t = i.X
	case *ast.IndexListExpr:
		t = i.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name + "." + d.Name.Name
	}
	return d.Name.Name
}

func (c *conditions) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok != token.CONST // constants stay constants
	case *ast.IfStmt:
		c.condition(n.Cond, true, true, "if ")
	case *ast.ForStmt:
		if n.Cond != nil {
			c.condition(n.Cond, true, false, "for ") // a loop without an end shows nothing
		}
	case *ast.SwitchStmt:
		c.cases(n)
	case ast.Expr:
		if !c.done[n] && isBoolean(n) {
			c.condition(n, true, true, "")
		}
	}
	return true
}

// isBoolean says of an expression that is not a condition by its place whether
// it decides something.
func isBoolean(e ast.Expr) bool {
	b, ok := e.(*ast.BinaryExpr)
	return ok && slices.Contains(decisive, b.Op)
}

var decisive = []token.Token{
	token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ, token.LAND, token.LOR,
}

// condition wraps a condition. Of a chain of && each operand is left out, and
// the whole is never true; of a chain of || each operand is left out, and the
// whole is always true; anything else is never and always true. Which of never and
// always make sense depends on where it stands.
func (c *conditions) condition(e ast.Expr, never, always bool, word string) {
	if c.done[e] {
		return
	}
	c.done[e] = true
	inner := e
	for {
		p, ok := inner.(*ast.ParenExpr)
		if !ok {
			break
		}
		inner = p.X
		c.done[inner] = true
	}
	b, ok := inner.(*ast.BinaryExpr)
	switch {
	case ok && b.Op == token.LAND:
		c.wrap(e, never, false, word)
		c.chain(b, token.LAND, func(operand ast.Expr) { c.condition(operand, false, true, word+"… && ") })
	case ok && b.Op == token.LOR:
		c.wrap(e, false, always, word)
		c.chain(b, token.LOR, func(operand ast.Expr) { c.condition(operand, true, false, word+"… || ") })
	default:
		c.wrap(e, never, always, word)
	}
}

func (c *conditions) chain(b *ast.BinaryExpr, op token.Token, do func(ast.Expr)) {
	c.done[b] = true
	for _, operand := range []ast.Expr{b.X, b.Y} {
		if inner, ok := operand.(*ast.BinaryExpr); ok && inner.Op == op {
			c.chain(inner, op, do)
			continue
		}
		do(operand)
	}
}

func (c *conditions) wrap(e ast.Expr, never, always bool, word string) {
	numbers := [2]int{}
	text := c.text(e)
	if never {
		numbers[0] = c.add(e, fmt.Sprintf("%s%s → false", word, text))
	}
	if always {
		numbers[1] = c.add(e, fmt.Sprintf("%s%s → true", word, text))
	}
	if numbers == [2]int{} {
		return
	}
	c.around(e, fmt.Sprintf("mutantswitch.If(%d, %d, ", numbers[0], numbers[1]), ")")
}

func (c *conditions) around(e ast.Expr, before, after string) {
	from, to := c.offset(e.Pos()), c.offset(e.End())
	c.edits = append(c.edits, edit{at: from, text: before, rank: 1_000_000 - (to - from)},
		edit{at: to, text: after, rank: to - from - 1_000_000})
}

// cases wraps the values of a switch: each is left out.
func (c *conditions) cases(s *ast.SwitchStmt) {
	if s.Tag == nil {
		for _, stmt := range s.Body.List {
			for _, e := range stmt.(*ast.CaseClause).List {
				c.condition(e, true, true, "case ")
			}
		}
		return
	}
	tag := c.text(s.Tag)
	if s.Init == nil {
		tag = fmt.Sprintf("mutantTag%d", c.offset(s.Pos()))
		c.edits = append(c.edits, edit{at: c.offset(s.Tag.Pos()), text: tag + " := "},
			edit{at: c.offset(s.Tag.End()), text: "; " + tag})
	} else if !isSimple(s.Tag) {
		return
	}
	for _, stmt := range s.Body.List {
		for _, e := range stmt.(*ast.CaseClause).List {
			n := c.add(e, fmt.Sprintf("switch %s, without case %s", c.text(s.Tag), c.text(e)))
			c.around(e, fmt.Sprintf("mutantswitch.Case(%d, %s, ", n, tag), ")")
		}
	}
}

// isSimple says of a tag that it can be read twice.
func isSimple(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return true
	case *ast.SelectorExpr:
		return isSimple(e.X)
	}
	return false
}

func (c *conditions) add(e ast.Expr, change string) int {
	n := c.next()
	c.mutants = append(c.mutants, Mutant{
		ID: c.name[len("internal/"):] + " " + c.function + ": " + change, Kind: Go, Unit: c.unit, File: c.name, source: c.name,
		Line: c.files.Position(e.Pos()).Line, to: c.files.Position(e.End()).Line, number: n, reach: []int{n},
	})
	return n
}

// importSwitch stays on the line of the package clause, so that lines keep their
// numbers.
func (c *conditions) importSwitch(file *ast.File) edit {
	return edit{at: c.offset(file.Name.End()), text: fmt.Sprintf("; import mutantswitch %q", switchImport)}
}

func (c *conditions) offset(p token.Pos) int { return c.files.Position(p).Offset }

func (c *conditions) text(e ast.Expr) string {
	var b bytes.Buffer
	if err := printer.Fprint(&b, c.files, e); err != nil {
		panic(fmt.Sprintf("bug: print an expression that was parsed: %v", err))
	}
	return oneLine(b.String())
}

func (c *conditions) apply() []byte {
	slices.SortStableFunc(c.edits, func(a, b edit) int {
		if a.at != b.at {
			return a.at - b.at
		}
		return a.rank - b.rank
	})
	var out bytes.Buffer
	from := 0
	for _, e := range c.edits {
		out.Write(c.source[from:e.at])
		out.WriteString(e.text)
		from = e.at + e.instead
	}
	out.Write(c.source[from:])
	return out.Bytes()
}
