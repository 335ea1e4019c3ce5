package inventory

import (
	"go/ast"
	"go/token"
	"strconv"
	"strings"
)

// Tests are the tests, fuzz tests, benchmarks and examples of each package, by folder.
type Tests map[string]subtests

// subtests are names of t.Run. A name that is computed may be any.
type subtests struct {
	named    map[string]subtests
	computed bool
}

// FindTests reads them from the source.
func FindTests() (Tests, error) {
	packages, err := parse(func(path string) bool { return strings.HasSuffix(path, "_test.go") })
	if err != nil {
		return nil, err
	}
	all := Tests{}
	for dir, files := range packages {
		functions := map[string]*ast.FuncDecl{}
		for _, file := range files {
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Body != nil {
					functions[f.Name.Name] = f
				}
			}
		}
		top := subtests{named: map[string]subtests{}}
		for name, f := range functions {
			if isTest(name) {
				top.named[name] = functionsOf(functions).below(f.Body, 0)
			}
		}
		all[dir] = top
	}
	return all, nil
}

func isTest(name string) bool {
	for _, prefix := range []string{"Test", "Fuzz", "Benchmark", "Example"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok && (rest == "" || rest[0] < 'a' || rest[0] > 'z') {
			return name != "TestMain"
		}
	}
	return false
}

// functionsOf are the functions of one package's tests, whose subtests belong to
// their callers.
type functionsOf map[string]*ast.FuncDecl

const depthMax = 6 // of helpers that call helpers

func (p functionsOf) below(body ast.Node, depth int) subtests {
	s := subtests{named: map[string]subtests{}}
	if depth > depthMax {
		return s
	}
	ast.Inspect(body, func(n ast.Node) bool {
		c, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch f := c.Fun.(type) {
		case *ast.SelectorExpr:
			if f.Sel.Name == "Run" && len(c.Args) == 1 { // a suite, whose tests another package names
				s.computed = true
				return true
			}
			if f.Sel.Name != "Run" || len(c.Args) != 2 {
				return true
			}
			inner := subtests{computed: true}
			switch run := c.Args[1].(type) {
			case *ast.FuncLit:
				inner = p.below(run.Body, depth+1)
			case *ast.Ident:
				if g, ok := p[run.Name]; ok {
					inner = p.below(g.Body, depth+1)
				}
			}
			if literal, ok := c.Args[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
				name, _ := strconv.Unquote(literal.Value)
				s.named[strings.ReplaceAll(name, " ", "_")] = inner
			} else {
				s.computed = true
			}
			return false
		case *ast.Ident:
			if g, ok := p[f.Name]; ok && !isTest(f.Name) {
				helper := p.below(g.Body, depth+1)
				s.computed = s.computed || helper.computed
				for name, inner := range helper.named {
					s.named[name] = inner
				}
			}
		}
		return true
	})
	return s
}

// Has reports whether a package has the test, TestX or TestX/Sub/Sub. Any package
// if dir is empty.
func (t Tests) Has(dir, name string) bool {
	for folder, tests := range t {
		if (dir == "" || dir == folder) && tests.has(strings.Split(name, "/")) {
			return true
		}
	}
	return false
}

func (s subtests) has(path []string) bool {
	if len(path) == 0 {
		return true
	}
	inner, ok := s.named[path[0]]
	return ok && inner.has(path[1:]) || s.computed
}
